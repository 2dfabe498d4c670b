"""A reply as a caller received it, and its departures from OpenAI's format. Pure."""

import json
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from gates.contracts.sample import TimedRead
from gates.reply.reply import Reply, read_body
from gates.reply.sse import SSEDecoder

ENVELOPE = {"message", "type", "code", "param"}


@dataclass(frozen=True, slots=True)
class ObservedReply(Reply):
    """One reply of the gateway. `faults` are protocol violations. `thought_tokens`: by the engine's own tokenizer, if it has one."""

    faults: tuple[str, ...] = ()
    thought_tokens: int | None = None


def observed(status: int, body: bytes) -> ObservedReply:
    """A reply, streamed or whole. Raises ValueError or LookupError where a client would."""
    reply, is_whole = read_body((TimedRead(0, body),), status), body.startswith(b"{")
    payloads = [body] if is_whole else SSEDecoder(len(body)).feed(body)
    documents = [json.loads(payload) for payload in payloads if payload != b"[DONE]"]
    errors = [document["error"].keys() for document in documents if "error" in document]
    faults = [f"not OpenAI's error envelope: {[*keys]}" for keys in errors if keys != ENVELOPE]
    if not is_whole:
        faults += _faults(body, documents, reply)
    told = {field.name: getattr(reply, field.name) for field in fields(Reply)}
    return ObservedReply(**told, faults=tuple(faults))


def _faults(body: bytes, documents: list[Any], reply: Reply) -> list[str]:
    """Violations of what clients of a stream rely on."""
    chunks = [document for document in documents if "error" not in document]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    ends = [choice["finish_reason"] is not None for choice in choices]
    counted = [chunk for chunk in chunks if chunk.get("usage") is not None]
    heads = {(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}
    roles = sum("role" in choice["delta"] for choice in choices)
    indexes = [part["index"] for choice in choices for part in choice["delta"].get("tool_calls") or ()]
    rules = {
        "the stream ends inside an event": not body.endswith(b"\n\n"),
        "something follows [DONE]": reply.done and not body.endswith(b"data: [DONE]\n\n"),
        f"{roles} role chunks": roles != 1 and reply.error is None,
        "id, created or model changes inside a reply": len(heads) > 1,
        "[DONE] without a finish_reason": reply.done and not any(ends),
        "an error after a finish_reason": reply.error is not None and any(ends),
        "a delta follows the finish_reason": any(ends[:-1]),
        "usage elsewhere than in its own chunk": len(counted) > 1 or any(c["choices"] for c in counted),
        "call indexes out of order": any(b - a not in (0, 1) for a, b in pairwise([-1, *indexes])),
    }
    return [told for told, is_broken in rules.items() if is_broken]
