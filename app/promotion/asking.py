"""One question to an engine, asked as the gates ask it: the edge that warming and the canary share."""

from collections.abc import Mapping

from gates.contracts.case import Case, Sampling
from gates.contracts.sample import Key, Mode, Sample
from gates.reply.reply import Reply, read_reply
from gates.run.http import Wire
from gates.run.request import build, digest, encoded
from gates.run.target import Dialect, Target, Variant


def target_of(
    url: str, served_name: str, dialect: Dialect, headers: Mapping[str, str] | None = None
) -> Target:
    """An engine that is asked and not judged, so that its digests do not matter. Raises RunError."""
    return Target(
        url=url, served_model=served_name, dialect=dialect, artefact="", engine="", headers=headers or {}
    )


async def ask(
    wire: Wire,
    target: Target,
    case: Case,
    sampling: Sampling,
    variant: Variant | None = None,
    mode: Mode = "stream",
) -> tuple[Reply, float]:
    """The reply, whatever it is, and the seconds from the request's first byte to the reply's last.

    Raises:
        RunError: the engine's dialect has no word for a sampling parameter.
    """
    body = build(case, sampling, target, variant or Variant(), mode)
    attempt = await wire.ask(target, encoded(body))
    key = Key("", target.artefact, target.engine, digest(body), "canary", case.id, 0, mode)
    sample = Sample(
        key=key,
        request=body,
        started=attempt.started,
        status=attempt.status,
        headers_ns=attempt.headers_ns,
        reads=tuple(attempt.reads),
        ended_ns=attempt.ended_ns,
        fault=attempt.fault,
    )
    return read_reply(sample), attempt.ended_ns / 1e9
