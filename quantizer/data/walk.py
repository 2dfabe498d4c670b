"""One conversation on its way: what the teacher is asked next, and what became of its answers. Pure.

A conversation is open until it is kept or rejected, and takes an answer at a time:

    state      an answer that is fit    then
    ASKED      a call was wanted        RESULT    the call and its result are in, and the answer to them is asked for
    ASKED      none was                 ASKED     the next user turn, or KEPT after the last
    RESULT                              ASKED     the same
    any        (unfit)                  REJECTED  with the reason
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any, Final

from gates.contracts.case import Case
from gates.contracts.sample import Sample
from gates.reply.reply import Reply, read_reply
from quantizer.data import judge
from quantizer.data.script import Part, Script


class State(Enum):
    """Where a conversation stands."""

    ASKED = "asked"
    RESULT = "result"
    KEPT = "kept"
    REJECTED = "rejected"


OPEN: Final = (State.ASKED, State.RESULT)


class Walk:
    """A script being gone through. `messages` are all so far; `why` is the reason of a rejection. `like` is set from
    outside where another conversation that is kept is too much like this one."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.messages: list[dict[str, Any]] = []
        self.state, self.why, self.like = State.ASKED, "", ""
        self._turn = self._step = self._calls = 0
        if script.barred:
            self.reject(script.barred)
            return
        if script.system:
            self.messages.append({"role": "system", "content": script.system})
        self.messages.append({"role": "user", "content": script.parts[0].say})

    @property
    def step(self) -> int:
        """So many answers it has taken."""
        return self._step

    @property
    def is_kept(self) -> bool:
        """Whether it came to its end, and says something that no other does."""
        return self.state is State.KEPT and not self.like

    @property
    def steps(self) -> int:
        """So many answers it takes if all are fit."""
        return sum(2 if part.calls else 1 for part in self.script.parts)

    @property
    def seed(self) -> int:
        """Of its sampling: another for each, so that like questions get unlike answers."""
        return int.from_bytes(hashlib.sha256(self.script.id.encode()).digest()[:4], "big") >> 1

    def case(self) -> Case:
        """What is asked next."""
        return Case(
            id=self.script.id, gates=(), messages=tuple(self.messages), tools=tuple(self.script.tools)
        )

    def feed(self, sample: Sample) -> None:
        """The answer to that. Raises ValueError if nothing was asked."""
        if self.state not in OPEN:
            raise ValueError(f"{self.script.id}: nothing was asked, it is {self.state.value}")
        self._step += 1
        reply = read_reply(sample)
        if why := _broken(sample, reply) or self._unfit(reply):
            self.reject(why)
            return
        self.messages.append(self._message(reply))
        if reply.calls:
            self._hand_result()
            self.state = State.RESULT
        else:
            self._next_turn()

    def reject(self, why: str) -> None:
        """For a reason that is not in its answers: the wall, or another conversation that is like it."""
        self.state, self.why = State.REJECTED, why

    def row(self) -> dict[str, Any]:
        """As a line of a file of conversations."""
        row: dict[str, Any] = {"id": self.script.id, "messages": self.messages}
        if self.script.tools:
            row["tools"] = list(self.script.tools)
        row["chat_template_kwargs"] = {"enable_thinking": False}
        return row | {"category": self.script.category, "language": self.script.language}

    @property
    def _part(self) -> Part:
        return self.script.parts[self._turn]

    def _unfit(self, reply: Reply) -> str:
        part, answers = self._part, self.state is State.RESULT or not self._part.calls
        expected = judge.Expected(
            calls=() if answers else part.calls,
            tools=self.script.tools,
            max_seconds=self.script.max_seconds,
            script=self.script.script,
            answer=part.answer if answers else None,
        )
        found = judge.faults(reply, expected)
        return judge.reason(found[0]) if found else ""

    def _message(self, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.content.strip()}
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{self._calls + i}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for i, call in enumerate(reply.calls)
            ]
            self._calls += len(reply.calls)
        return message

    def _hand_result(self) -> None:
        for call in self.messages[-1]["tool_calls"]:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": self._part.result})

    def _next_turn(self) -> None:
        self._turn += 1
        if self._turn == len(self.script.parts):
            self.state = State.KEPT
            return
        self.messages.append({"role": "user", "content": self._part.say})
        self.state = State.ASKED


def _broken(sample: Sample, reply: Reply) -> str:
    """Why there is no whole answer, or ""."""
    if sample.fault is not None:
        return f"lost: {sample.fault.kind}"
    if reply.error is not None:
        return f"refused: HTTP {sample.status}"
    if reply.finish_reason == "length" or not reply.complete:
        return "cut off: " + ("too many tokens" if reply.finish_reason == "length" else "no end")
    return ""
