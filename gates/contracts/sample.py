"""One recorded request and reply: a line of `samples.jsonl`, with every byte and its time, so that it can be scored again. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Final, Literal

from gates.contracts import strict_json
from gates.contracts.errors import SamplesError
from gates.decode.decoder import REFUSED, convert

SCHEMA: Final = "manners/sample/v1"

CANDIDATE: Final = "candidate"
BASELINE: Final = "baseline"
AGAIN: Final = "again"
"""The arm of the baseline that is asked a second time, for A/A."""
HEARD: Final = (CANDIDATE, BASELINE, AGAIN)
"""The arms whose replies are also judged as callers of the gateway hear them. Controls show that the detectors can fail an engine."""
OTHER_PREFIX: Final = {"through": "engine:", "engine": "through:"}
"""The prefix of those arms' other replies in a report, by those that the policy judges: `engine:candidate` is the engine alone."""
CONTROL_PREFIX: Final = "control:"
"""The prefix of the arms of negative controls."""
LATENCY_PREFIX: Final = "latency:"
"""The prefix of the arms of latency samples, which are timed and not judged."""

Mode = Literal["stream", "whole"]


@dataclass(frozen=True, slots=True)
class SampleKey:
    """What identifies a sample; a key that is on file is never asked again. `engine` is a digest of what served it, `request` of the body.

    `arm`: "candidate", "baseline", "again" (the baseline asked a second time, for A/A), "control:NAME" or "latency:ARM".
    """

    suite: str  # digests, each sha256:...
    artefact: str
    engine: str
    request: str
    arm: str
    case: str
    repeat: int
    mode: Mode

    @property
    def digest(self) -> str:
        """SHA-256 over all fields, as 64 hex digits."""
        return _digest_of(self)


@lru_cache(maxsize=1 << 15)  # asked for several times, and a job judges thousands of samples more than once
def _digest_of(key: SampleKey) -> str:
    text = json.dumps(asdict(key), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TimedRead:
    """The bytes of one read of the socket, `at_ns` nanoseconds after the request's first byte was sent."""

    at_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class TransportFault:
    """A transport failure. `kind` is connect, timeout, status or broken."""

    kind: Literal["connect", "timeout", "status", "broken"]
    detail: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A key, the request, and what came back. `status` None: there was no answer. Times are in ns from the request's first byte.

    `fault` is the failure of the last attempt, `retries` are those of earlier ones. `heard` is the stream that a caller of the gateway
    gets instead; None if that says the same, and in files of earlier programs.
    """

    key: SampleKey
    request: Mapping[str, Any]
    started: str
    status: int | None = None
    headers_ns: int | None = None
    reads: tuple[TimedRead, ...] = ()
    ended_ns: int = 0
    fault: TransportFault | None = None
    retries: tuple[TransportFault, ...] = field(default=())
    heard: str | None = None


_SAMPLE_FIELDS: Final = tuple(field.name for field in fields(Sample))
_WRITTEN: Final = {*_SAMPLE_FIELDS, "id"} - {"heard"}
"""The keys of every line."""


def render(sample: Sample) -> str:
    """The sample as one line of JSON with its line break. Bytes that are not UTF-8 are escaped."""
    document: dict[str, Any] = {"schema": SCHEMA, "id": sample.key.digest}
    document |= {name: getattr(sample, name) for name in _SAMPLE_FIELDS}  # `asdict` would copy the request
    document["key"] = asdict(sample.key)
    document["reads"] = [[r.at_ns, r.data.decode("utf-8", "surrogateescape")] for r in sample.reads]
    document["fault"] = sample.fault and asdict(sample.fault)
    document["retries"] = [asdict(fault) for fault in sample.retries]
    if sample.heard is None:
        del document["heard"]
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False) + "\n"


def parse(line: str, where: str) -> Sample:
    """Read one line. Raises SamplesError, which names `where`, for a damaged or edited line."""
    try:
        document = strict_json.loads(line)
        if document["schema"] != SCHEMA:
            raise SamplesError(f"{where}: schema {document['schema']!r}; this program reads {SCHEMA!r}")
        reads = tuple(
            TimedRead(at, text.encode("utf-8", "surrogateescape")) for at, text in document["reads"]
        )
        sample: Sample = convert({**document, "reads": ()}, Sample)
        if missing := _WRITTEN - document.keys():
            raise ValueError(f"{min(missing)} is missing")
        if document["id"] != sample.key.digest:
            raise SamplesError(f"{where}: the id does not match the key: the line was edited")
    except (ValueError, KeyError, TypeError, AttributeError, *REFUSED) as error:
        if isinstance(error, SamplesError):
            raise
        raise SamplesError(f"{where}: not a whole sample ({error})") from None
    return replace(sample, reads=reads)
