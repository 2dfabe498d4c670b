"""One asked prompt as it was recorded: a line of `samples.jsonl`. Values and their text; pure.

A line holds what went out and every raw byte that came back, each read with its time, so that
scoring can be done again and differently without asking a model twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from gates.contracts.errors import SamplesError

SCHEMA: Final = "manners/sample/v1"

Mode = Literal["stream", "whole"]


@dataclass(frozen=True, slots=True)
class Key:
    """What makes a sample this one and no other; a sample with a key on file is never asked again.

    `arm` is "candidate", "baseline", "again" (the baseline a second time, for A/A) or
    "control:NAME". `engine` digests what served it (build, argv, image); `request` the body sent.
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
        """64 hex digits over all of it."""
        fields = {name: getattr(self, name) for name in sorted(self.__slots__)}  # asdict copies, and is slow
        text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that one read of the socket gave, `at_ns` after the request's first byte went out."""

    at_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """A transport fault: `kind` is connect, timeout, status, or broken."""

    kind: Literal["connect", "timeout", "status", "broken"]
    detail: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A key, the request, and what came back.

    `status` is None when there was no answer. `headers_ns` and `ended_ns` count from the request's
    first byte, in nanoseconds of a monotonic clock; `started` is UTC, RFC 3339, for people.
    `fault` is what ended the last attempt badly; `retries` are the faults of the attempts before.
    """

    key: Key
    request: Mapping[str, Any]
    started: str
    status: int | None = None
    headers_ns: int | None = None
    reads: tuple[Read, ...] = ()
    ended_ns: int = 0
    fault: Fault | None = None
    retries: tuple[Fault, ...] = field(default=())


def render(sample: Sample) -> str:
    """One line of JSON, with its line break. Bytes that are no UTF-8 are escaped one by one."""
    document = {"schema": SCHEMA, "id": sample.key.digest, **asdict(sample)}
    document["reads"] = [[r.at_ns, r.data.decode("utf-8", "surrogateescape")] for r in sample.reads]
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False) + "\n"


def parse(line: str, where: str) -> Sample:
    """The sample on this line. Raises SamplesError with `where` when it is damaged or altered."""
    try:
        document = json.loads(line)
        if document["schema"] != SCHEMA:
            raise SamplesError(f"{where}: schema {document['schema']!r}; this program reads {SCHEMA!r}")
        key = Key(**document["key"])
        if document["id"] != key.digest:
            raise SamplesError(f"{where}: the id does not follow from the key; the line was edited")
        return Sample(
            key=key,
            request=document["request"],
            started=document["started"],
            status=document["status"],
            headers_ns=document["headers_ns"],
            reads=tuple(Read(at, text.encode("utf-8", "surrogateescape")) for at, text in document["reads"]),
            ended_ns=document["ended_ns"],
            fault=Fault(**document["fault"]) if document["fault"] else None,
            retries=tuple(Fault(**fault) for fault in document["retries"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, SamplesError):
            raise
        raise SamplesError(f"{where}: not a whole sample ({error})") from None
