"""What `llama-server` is in the image of these tests: llama.cpp's own server, out of the xllamacpp wheel.

Run in the container, as the image's entrypoint. It takes the flags that the docker driver sets, and
after them those of `deploy.engine.flags`.
"""

import argparse
import importlib
import signal
import sys

from deploy.drivers.llama_child import build_params
from deploy.engine.flags import parse_flags


def main() -> None:
    parser = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False)
    for name in ("--model", "--alias", "--host", "--log-verbosity"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--metrics", action="store_true", required=True)
    given, rest = parser.parse_known_args()
    xllamacpp = importlib.import_module("xllamacpp")
    params = build_params(xllamacpp, given.model, given.alias, parse_flags(given.alias, tuple(rest), cores=2))
    params.hostnames = [given.host]
    params.port = given.port
    server = xllamacpp.Server(params)
    print(f"llama-server: listening at {server.listening_address}", file=sys.stderr, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
