# The gateway: no torch, no CUDA, no compiler; nobody's root. The nano models are in it, so that it answers
# without any other engine.
#
#   docker build --build-arg BASE=python:3.11-slim-bookworm@sha256:... -t manners .
#
# BASE is any Debian with Python 3.11 or newer. Give its digest: the tag is for trying it out, and a tag can be moved.

ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN python3 -m venv /opt/venv
WORKDIR /opt/manners
COPY requirements/gateway.txt requirements/
RUN /opt/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --require-hashes -r requirements/gateway.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY docs/runbook.md docs/runbook.md
COPY deploy deploy
COPY gates gates
# The command line knows its words; what it needs to carry them out is not in here.
COPY quantizer quantizer
RUN /opt/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --editable . \
 && /opt/venv/bin/pip uninstall --quiet --yes pip \
 && /opt/venv/bin/python -m compileall -q app deploy gates quantizer
COPY models/annie-nano-q4_k_m models/annie-nano-q4_k_m
COPY models/annie-nano-f16 models/annie-nano-f16
COPY models/stranger-nano-q4_k_m models/stranger-nano-q4_k_m

FROM ${BASE}
# llama.cpp's threads are OpenMP's.
RUN ldconfig -p | grep -q libgomp.so.1 \
 || { apt-get update -q && apt-get install -qy --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*; }
RUN mkdir -p /var/lib/manners && chown 10001:10001 /var/lib/manners && chmod 0700 /var/lib/manners
COPY --from=build /opt /opt
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/var/lib/manners
USER 10001:10001
WORKDIR /opt/manners
EXPOSE 8080 8081
VOLUME /var/lib/manners
STOPSIGNAL SIGTERM
# That the process lives; whether some engine streams is /readyz, and no reason to restart the gateway.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["manners"]
CMD ["serve", "--config", "/opt/manners/deploy/compose/embedded.toml"]
