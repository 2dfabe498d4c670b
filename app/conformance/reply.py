"""What a caller received, read from the wire as an OpenAI client reads it. Pure."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ObservedCall:
    """One tool call, joined from its fragments."""

    id: str
    name: str
    arguments: str

    @property
    def values(self) -> Any:
        """The arguments as JSON; None if they are not JSON."""
        try:
            return json.loads(self.arguments)
        except ValueError:
            return None


@dataclass
class ObservedReply:
    """One reply, streamed or whole. `faults` are protocol violations that the reader saw.

    `content_tokens` and `thought_tokens` are counted by the engine's own tokenizer, if it has an endpoint
    for that and the check wants the counts; otherwise None.
    """

    status: int = 200
    content: str = ""
    thought: str = ""
    calls: list[ObservedCall] = field(default_factory=list)
    finish: str | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    done: bool = False
    faults: list[str] = field(default_factory=list)
    content_tokens: int | None = None
    thought_tokens: int | None = None

    @property
    def completion(self) -> int:
        """`completion_tokens` of the usage, or 0."""
        return int((self.usage or {}).get("completion_tokens") or 0)

    @property
    def prompt(self) -> int:
        """`prompt_tokens` of the usage, or 0."""
        return int((self.usage or {}).get("prompt_tokens") or 0)


def read_whole(status: int, body: bytes) -> ObservedReply:
    """A reply that is one JSON object: a completion or an error."""
    data = json.loads(body)
    if "error" in data:
        return ObservedReply(status, error=data["error"])
    choice = data["choices"][0]
    message = choice["message"]
    calls = [
        ObservedCall(c["id"], c["function"]["name"], c["function"]["arguments"])
        for c in message.get("tool_calls") or ()
    ]
    return ObservedReply(
        status,
        message.get("content") or "",
        message.get("reasoning_content") or "",
        calls,
        choice["finish_reason"],
        data.get("usage"),
        done=True,
    )


class StreamReader:
    """Reads a stream of server-sent events; violations of what clients rely on go to `faults`."""

    def __init__(self) -> None:
        self.reply = ObservedReply()
        self._heads: set[tuple[Any, ...]] = set()
        self._roles = 0

    def read(self, wire: bytes) -> ObservedReply:
        """A whole stream."""
        *events, rest = wire.split(b"\n\n")
        self._need(rest == b"", "the stream ends inside an event")
        for event in events:
            if not event.startswith(b":"):
                self._event(event)
        self._need(self._roles == 1 or self.reply.error is not None, f"{self._roles} role chunks")
        self._need(len(self._heads) <= 1, "id, created or model changes inside a reply")
        return self.reply

    def _need(self, true: bool, otherwise: str) -> None:
        if not true:
            self.reply.faults.append(otherwise)

    def _event(self, event: bytes) -> None:
        reply = self.reply
        self._need(event.startswith(b"data: "), "an event without data")
        self._need(not reply.done, "something follows [DONE]")
        payload = event.removeprefix(b"data: ")
        if payload == b"[DONE]":
            self._need(reply.finish is not None, "[DONE] without a finish_reason")
            reply.done = True
            return
        data = json.loads(payload)
        if "error" in data:
            reply.error = data["error"]
            self._need(reply.finish is None, "an error after a finish_reason")
            return
        self._heads.add((data["id"], data["created"], data["model"], data["object"]))
        if data.get("usage") is not None:
            self._need(reply.usage is None and not data["choices"], "usage elsewhere than in its own chunk")
            reply.usage = data["usage"]
        for choice in data["choices"]:
            self._need(reply.finish is None, "a delta follows the finish_reason")
            self._delta(choice["delta"])
            reply.finish = choice["finish_reason"]

    def _delta(self, delta: dict[str, Any]) -> None:
        self._roles += "role" in delta
        self.reply.content += delta.get("content") or ""
        self.reply.thought += delta.get("reasoning_content") or ""
        for part in delta.get("tool_calls") or ():
            calls, function = self.reply.calls, part["function"]
            if part["index"] == len(calls):
                calls.append(ObservedCall(part["id"], function["name"], function.get("arguments") or ""))
            else:
                self._need(part["index"] == len(calls) - 1, "call indexes out of order")
                calls[part["index"]].arguments += function.get("arguments") or ""
