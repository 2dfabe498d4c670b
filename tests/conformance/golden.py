"""Golden streams: the bytes that real engines sent, and what a caller hears of them.

`tests/data/streams/ENGINE-NAME.sse` holds the raw body, `.json` beside it who sent it and to what
request, `.heard.json` what a caller hears of it, streaming and not. `tests.conformance.record` makes them; nothing
here touches a network.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from app.api.chat_request import ChatRequest
from app.api.engine_request import AskedEngine, stream_policy
from app.conformance.checks import (
    BOTH,
    FRANCE,
    HELLO,
    LIGHT,
    MEMORY,
    NO_SUCH,
    ON,
    PRIYA,
    RESULT,
    SUM,
    TIMER,
    WEB,
    user,
)
from app.errors.translate import from_status
from app.stream.pipeline import StreamPolicy
from deploy.engine.abilities import Abilities
from tests.app.stream.wire import Heard, heard_streaming, heard_whole

CLOSER = 2043
"""The id of annie-nano's `</think>`, which the gateway asks an engine for when it comes up."""

FOLDER = Path(__file__).parents[1] / "data" / "streams"


@dataclass(frozen=True)
class Shot:
    """One thing to record: what a caller asks, and how much of the reply is read (`cut` bytes)."""

    name: str
    asked: dict[str, Any]
    cut: int | None = None
    kill_at: int | None = None  # bytes after which the engine is killed
    metered: bool = False  # asked so that the gateway can count a thought's tokens


def shot(name: str, *messages: dict[str, Any], cut: int | None = None, **fields: Any) -> Shot:
    """A greedy, bounded request."""
    return Shot(name, {"messages": list(messages), "temperature": 0, "max_tokens": 200, **fields}, cut)


def budget(tokens: int) -> dict[str, Any]:
    """The switch for a thought of so many tokens."""
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


TOOLS, LONG = [MEMORY, WEB], user("hello " * 6000)
SHOTS = (
    shot("hello", HELLO),
    shot("fact", FRANCE),
    shot("tool", PRIYA, tools=TOOLS),
    shot("tool-parallel", BOTH, tools=[LIGHT, TIMER]),
    shot("tool-result", PRIYA, *RESULT, tools=TOOLS),
    shot("tool-required", PRIYA, tools=TOOLS, tool_choice="required"),
    shot("tool-after-thought", PRIYA, tools=TOOLS, **ON),
    shot("tool-cut-by-length", PRIYA, tools=TOOLS, max_tokens=12),
    shot("thinking", SUM, **ON),
    shot("thinking-budget-1", SUM, **budget(1)),
    shot("thinking-budget-8", SUM, **budget(8)),
    shot("thinking-cut-by-length", SUM, max_tokens=5, **ON),
    shot("length", user("Tell me about yourself"), max_tokens=3),
    shot("stop", FRANCE, stop=["Paris"]),
    shot("prefill", FRANCE, {"role": "assistant", "content": "The capital of"}),
    shot("error-field", HELLO, response_format=NO_SUCH),
    shot("error-too-long", LONG),
    shot("cancelled-at-once", HELLO, cut=0),
    shot("cancelled-in-the-role", HELLO, cut=100),
    shot("cancelled-in-speech", user("Tell me about yourself"), cut=2500),
    shot("cancelled-in-thought", SUM, cut=1500, **ON),
    shot("cancelled-in-a-call", PRIYA, cut=1500, tools=TOOLS),
)
FATAL = Shot(
    "killed",
    {"messages": [user("Tell me about yourself")], "max_tokens": 2000, "ignore_eos": True},
    kill_at=3000,
)
"""The engine dies in mid-reply; the last thing to ask of one."""


METERED = Shot("thinking-metered", shot("", SUM, **ON).asked, metered=True)
"""Where the gateway ends a thought itself: every token by its id."""


def shots_for(kind: str) -> tuple[Shot, ...]:
    """All for each engine's plain setting; for the others what is different there."""
    if kind.startswith("sglang-"):  # a budget is not sent; why a call cannot be required there, known.py says
        beside = {"thinking-budget-1", "thinking-budget-8", "tool-required"}
        tools = kind.endswith("-xml")
        chosen = (
            s for s in SHOTS if s.name not in beside and (not tools or "tool" in s.name or "call" in s.name)
        )
        return tuple(chosen) if tools else (*chosen, FATAL)
    if kind.endswith("-xml"):
        return tuple(s for s in SHOTS if "tool" in s.name or "call" in s.name)
    if kind.startswith("gpu-") and kind != "gpu-hermes":
        words = ("tool", "call", "think", "thought")
        # Without its ids nothing marks the end of this one's thought; the gateway always asks for them.
        unasked = {"thinking"} if kind == "gpu-xml-tools" else set()
        chosen = (s for s in SHOTS if any(word in s.name for word in words) and s.name not in unasked)
        return (*chosen, METERED)
    if kind == "llama-stranger":
        names = ("hello", "fact", "tool", "thinking", "length", "cancelled-in-speech")
        return tuple(s for s in SHOTS if s.name in names)
    return SHOTS if kind == "vllm-raw" else (*SHOTS, FATAL)


@dataclass(frozen=True)
class Golden:
    """A recorded reply."""

    name: str
    sidecar: dict[str, Any] = field(repr=False)
    raw: bytes = field(repr=False)

    @property
    def status(self) -> int:
        """The HTTP status that it came with."""
        return int(self.sidecar["status"])

    @cached_property
    def whole(self) -> dict[str, Any]:
        """What callers hear when the bytes arrive in one piece."""
        return self.heard()

    @cached_property
    def _policies(self) -> dict[bool, StreamPolicy]:
        return {stream: self.policy(stream) for stream in (True, False)}

    def policy(self, stream: bool) -> StreamPolicy:
        """What the gateway assumes of the reply to this request."""
        request = read({**self.sidecar["asked"], "stream": stream})
        dialect, sent = self.sidecar["dialect"], self.sidecar["sent"]
        guided = "response_format" in sent and "response_format" not in self.sidecar["asked"]
        abilities = Abilities(parses_tools=not guided, calls=None if guided else "xml")
        engine = AskedEngine(dialect, abilities=abilities, thinking=request.thinking_or(0))
        policy = stream_policy(request, engine, "t")
        told = sent.get("return_token_ids")
        return msgspec.structs.replace(policy, closer=CLOSER if told else None)

    def heard(self, sizes: Iterable[int] = ()) -> dict[str, Any]:
        """What callers hear when the bytes arrive in pieces of these sizes (none: in one)."""
        if self.status != 200:
            error = from_status(self.status, self.raw)
            told = {"status": error.status, "type": error.type, "error": error.code}
            return {"streaming": told, "whole": told}
        sizes = list(sizes)
        streaming = heard_streaming(self.raw, self._policies[True], sizes)
        return {
            "streaming": _plain(streaming),
            "whole": _plain(heard_whole(self.raw, self._policies[False], sizes)),
        }


def abilities_of(kind: str) -> Abilities:
    """What an engine of this kind is found to do, as far as requests depend on it."""
    return Abilities(parses_tools=kind != "vllm-raw", calls="xml" if "-xml" in kind else "hermes")


def read(asked: dict[str, Any]) -> ChatRequest:
    """The gateway's own reading of a caller's request."""
    return ChatRequest.model_validate({"model": "annie", **asked})


def _plain(heard: Heard) -> dict[str, Any]:
    """As JSON has it, without what says nothing."""
    plain = json.loads(json.dumps(asdict(heard)))
    return {key: value for key, value in plain.items() if value not in ("", None, [], False)}


def load() -> list[Golden]:
    """Every recorded reply, by name."""
    found = sorted(FOLDER.glob("*.sse"))
    return [
        Golden(p.stem, json.loads(p.with_suffix(".json").read_text("utf-8")), p.read_bytes()) for p in found
    ]


def expectation(name: str) -> Path:
    """Where it is written what a caller hears."""
    return FOLDER / f"{name}.heard.json"
