"""A reply as a caller received it, and its departures from OpenAI's format. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from gates.contracts.sample import TimedRead
from gates.reply.reply import Reply, read_body
from gates.reply.sse import SSEDecoder


@dataclass(frozen=True, slots=True)
class ObservedReply(Reply):
    """One reply of the gateway. `faults` are protocol violations, `envelope` is the error as it was sent.

    `content_tokens` and `thought_tokens` are counted by the engine's own tokenizer, if it has an endpoint
    for that and the check wants the counts; otherwise None.
    """

    envelope: Mapping[str, Any] | None = None
    faults: tuple[str, ...] = ()
    content_tokens: int | None = None
    thought_tokens: int | None = None


def observed(status: int, body: bytes) -> ObservedReply:
    """A reply, streamed or whole. Raises ValueError or LookupError where a client would."""
    reply = read_body((TimedRead(0, body),), status)
    payloads = (
        [body] if body.startswith(b"{") else [p for p in SSEDecoder(len(body)).feed(body) if p != b"[DONE]"]
    )
    documents = [json.loads(payload) for payload in payloads]
    return ObservedReply(
        **{field.name: getattr(reply, field.name) for field in fields(Reply)},
        envelope=next((document["error"] for document in documents if "error" in document), None),
        faults=() if body.startswith(b"{") else tuple(_faults(body, documents, reply)),
    )


def _faults(body: bytes, documents: list[Any], reply: Reply) -> Iterator[str]:
    """Violations of what clients of a stream rely on."""
    chunks = [document for document in documents if "error" not in document]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    ends = [choice["finish_reason"] is not None for choice in choices]
    counted = [chunk for chunk in chunks if chunk.get("usage") is not None]
    roles = sum("role" in choice["delta"] for choice in choices)
    indexes = [part["index"] for choice in choices for part in choice["delta"].get("tool_calls") or ()]
    if not body.endswith(b"\n\n"):
        yield "the stream ends inside an event"
    if reply.done and not body.endswith(b"data: [DONE]\n\n"):
        yield "something follows [DONE]"
    if roles != 1 and reply.error is None:
        yield f"{roles} role chunks"
    if len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) > 1:
        yield "id, created or model changes inside a reply"
    if reply.done and not any(ends):
        yield "[DONE] without a finish_reason"
    if reply.error is not None and any(ends):
        yield "an error after a finish_reason"
    if any(ends[:-1]):
        yield "a delta follows the finish_reason"
    if len(counted) > 1 or any(chunk["choices"] for chunk in counted):
        yield "usage elsewhere than in its own chunk"
    if any(after - before not in (0, 1) for before, after in pairwise([-1, *indexes])):
        yield "call indexes out of order"
