"""Which conversations are still to be had, which are kept, and why others are not. Pure: answers in, questions out.

What is kept follows from the plan and the answers alone: conversations are compared with those before them by number,
whenever they were over, and the first so many of a category are taken.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain
from typing import Any, Final

from gates.contracts.case import Case
from gates.contracts.sample import Sample
from gates.reply.reply import Reply, read_reply
from gates.run.plan import Ask, ask
from gates.run.target import Arm
from gates.suite.contamination import Wall
from quantizer.data import judge
from quantizer.data.near_duplicates import Seen, spoken
from quantizer.data.plan import Category, Plan
from quantizer.data.scripts import Part, Script, scripts

ARM: Final = "teacher"
SPARE: Final = 32
"""Candidates that a small category may take beyond its tries; and as many that all failed are enough to see that more
would fail too."""

BARRED: Final = 10
"""Numbers that a category may use up, as a multiple of its candidates: where nearly all is barred, it ends too."""

Row = Mapping[str, Any]


class Harvest:
    """All categories of a plan. counts: conversations wanted, by category."""

    def __init__(self, plan: Plan, counts: Mapping[str, int], arm: Arm, walls: Sequence[Wall] = ()) -> None:
        self.plan, self._arm, self._walls, self._digest = plan, arm, walls, plan.digest
        self._fields = [_Field(plan, c, counts.get(c.name, c.count), self.bar) for c in plan.categories]
        self._seen = Seen()

    @property
    def wanted(self) -> int:
        """Conversations of all categories."""
        return sum(field.count for field in self._fields)

    @property
    def kept(self) -> int:
        """Those that are had by now, as far as is known."""
        return sum(min(field.kept, field.count) for field in self._fields)

    @property
    def steps_left(self) -> int:
        """Answers still to come if all of them are fit."""
        return sum(field.steps_left for field in self._fields)

    def bar(self, turns: Sequence[str]) -> str:
        """Why a user may not say this, or ""."""
        return self._walled([{"role": "user", "content": turn} for turn in turns])

    def asks(self, limit: int) -> list[tuple[Walk, Ask]]:
        """At most so many questions that can be asked now, in order; none when all is had or nothing helps."""
        found = self._open(limit)
        if not found:
            self._settle()
            found = self._open(limit)
        return found

    def feed(self, walk: Walk, sample: Sample) -> None:
        """The answer to one of them."""
        walk.feed(sample)
        if walk.state is State.KEPT:
            self._examine(walk)

    def rows(self) -> Iterator[Row]:
        """What is kept, category by category. After `asks` gave nothing more."""
        for field in self._fields:
            yield from (walk.row() for walk in field.taken())

    def rejected(self) -> dict[str, dict[str, int]]:
        """Conversations that were not kept, by category and reason."""
        return {field.category.name: dict(field.reasons().most_common()) for field in self._fields}

    def got(self) -> dict[str, int]:
        """Conversations that are kept, by category."""
        return {field.category.name: len(field.taken()) for field in self._fields}

    def short(self) -> list[str]:
        """A line for each category that has less than was wanted, with its commonest reasons."""
        return [field.told() for field in self._fields if len(field.taken()) < field.count]

    def _open(self, limit: int) -> list[tuple[Walk, Ask]]:
        found: list[tuple[Walk, Ask]] = []
        for walk in chain.from_iterable(field.open() for field in self._fields):
            if len(found) == limit:
                break
            found.append((walk, self._ask(walk)))
        return found

    def _ask(self, walk: Walk) -> Ask:
        sampling = replace(self.plan.sampling, seed=walk.seed)
        return ask(self._digest, self._arm, walk.case(), sampling, walk.step, "whole")

    def _examine(self, walk: Walk) -> None:
        """Reject what a whole conversation shows."""
        if why := self._walled(walk.messages):
            walk.reject(why)
        elif like := self._seen.add(walk.script.id, spoken(walk.messages)):
            walk.like = f"duplicate: {'same' if like[1] == 1.0 else 'near'}"

    def _settle(self) -> None:
        """Compare all in the order of their numbers, which is not the order in which they came to their end."""
        self._seen = Seen()
        for walk in chain.from_iterable(field.walks for field in self._fields):
            if walk.state is State.KEPT:
                walk.like = ""
                self._examine(walk)

    def _walled(self, messages: Sequence[Mapping[str, Any]]) -> str:
        found = (overlap for wall in self._walls for overlap in wall.overlaps({"messages": messages}))
        first = next(found, None)
        return f"wall: {first.kind}" if first else ""


class _Field:
    """One category: its scripts, and the conversations that were begun."""

    def __init__(self, plan: Plan, category: Category, count: int, bar: Any) -> None:
        self.category, self.count = category, count
        self.walks: list[Walk] = []
        self._limit = plan.tries * count + SPARE
        self._scripts: Iterator[Script] = scripts(plan, category, bar)
        self._said_all = False

    @property
    def kept(self) -> int:
        return sum(walk.is_kept for walk in self.walks)

    @property
    def steps_left(self) -> int:
        live = [walk for walk in self.walks if walk.state in OPEN]
        mean = sum(walk.steps for walk in self.walks) / len(self.walks) if self.walks else 1.0
        more = max(0, self.count - self.kept - len(live))
        return sum(walk.steps - walk.step for walk in live) + round(more * mean)

    def open(self) -> list[Walk]:
        """Conversations that wait for an answer; new ones are begun while some are missing."""
        live = [walk for walk in self.walks if walk.state in OPEN]
        missing = self.count - self.kept - len(live)
        while missing > 0 and self._may_try():
            script = next(self._scripts, None)
            if script is None:
                self._said_all = True
                break
            self.walks.append(Walk(script))
            if not script.barred:
                live.append(self.walks[-1])
                missing -= 1
        return live

    def taken(self) -> list[Walk]:
        return [walk for walk in self.walks if walk.is_kept][: self.count]

    def reasons(self) -> Counter[str]:
        return Counter(walk.why or walk.like for walk in self.walks if walk.why or walk.like)

    def told(self) -> str:
        common = ", ".join(f"{reason} ({n})" for reason, n in self.reasons().most_common(3))
        end = "; the plan has nothing more to say" if self._said_all else ""
        return f"{self.category.name}: {len(self.taken())} of {self.count}, rejected for {common or 'nothing'}{end}"

    def _may_try(self) -> bool:
        tried = [walk for walk in self.walks if not walk.script.barred]
        over = [walk for walk in tried if walk.state not in OPEN]
        hopeless = len(over) >= SPARE and not self.kept
        room = len(tried) < self._limit and len(self.walks) < BARRED * self._limit
        return room and not (self._said_all or hopeless)


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
