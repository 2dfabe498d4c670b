"""The state of a generation run: which conversations are open, which are kept, and why others were rejected.

A pure core: answers go in, the next requests come out.

    state   a fit answer              next state
    ASKED   a call was wanted         RESULT   the call and its result are appended, and the answer to them is requested
    ASKED   none was wanted           ASKED    the next user turn, or KEPT after the last
    RESULT                            ASKED    the same
    any     (unfit)                   REJECTED with the reason

What is kept depends only on the plan and the answers, not on the order in which conversations ended.
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
from gates.reply.reply import Reply
from gates.run.request import PlannedRequest, planned_request
from gates.run.target import Arm
from gates.suite.contamination import ContaminationCheck
from quantizer.data.judge import find_faults
from quantizer.data.near_duplicates import NearDuplicates, compared_text
from quantizer.data.plan import Category, DataPlan
from quantizer.data.scripts import BlockReason, ConversationScript, ScriptedTurn, make_scripts

ARM: Final = "teacher"
SPARE: Final = 32
"""Additional candidates for small categories. Also the number of failed candidates after which a category without
any success gives up."""

MAX_BLOCKED: Final = 10
"""Scripts that a category may use up, as a multiple of its candidates, before it gives up because nearly all are
blocked."""

Row = Mapping[str, Any]


class DataCollector:
    """All categories of a plan. counts: the number of conversations wanted, by category. thinking: tokens that the teacher
    may think before each answer; a row then keeps its thoughts, and must have one."""

    def __init__(
        self,
        plan: DataPlan,
        counts: Mapping[str, int],
        arm: Arm,
        checks: Sequence[ContaminationCheck] = (),
        thinking: int = 0,
    ) -> None:
        self.plan, self._arm, self._checks, self._digest = plan, arm, checks, plan.digest
        self._thinking = thinking
        self._categories = [
            _CategoryProgress(plan, c, counts.get(c.name, c.count), self.block_reason, thinking > 0)
            for c in plan.categories
        ]
        self._seen = NearDuplicates()

    @property
    def wanted(self) -> int:
        """The number of conversations of all categories."""
        return sum(progress.count for progress in self._categories)

    @property
    def kept(self) -> int:
        """The number of conversations kept so far."""
        return sum(min(progress.kept, progress.count) for progress in self._categories)

    @property
    def steps_left(self) -> int:
        """The number of answers still needed if all of them are fit."""
        return sum(progress.steps_left for progress in self._categories)

    def block_reason(self, turns: Sequence[str]) -> str:
        """Why these user turns may not be used; "" if they may."""
        return self._overlap([{"role": "user", "content": turn} for turn in turns])

    def next_requests(self, limit: int) -> list[tuple[ConversationBuilder, PlannedRequest]]:
        """At most `limit` requests that can be made now, in order. Empty if everything is collected or nothing more
        can be."""
        found = self._open(limit)
        if not found:
            self._settle()
            found = self._open(limit)
        return found

    def feed(self, conversation: ConversationBuilder, reply: Reply) -> None:
        """Process the answer to one request."""
        conversation.feed(reply)
        if conversation.state is ConversationState.KEPT:
            self._examine(conversation)

    def rows(self) -> Iterator[Row]:
        """The kept conversations, category by category. Call it after `next_requests` has returned an empty list."""
        for progress in self._categories:
            yield from (conversation.row() for conversation in progress.taken())

    def rejected(self) -> dict[str, dict[str, int]]:
        """The number of rejected conversations, by category and reason."""
        return {
            progress.category.name: dict(progress.reasons().most_common()) for progress in self._categories
        }

    def shortfalls(self) -> list[str]:
        """One line for each category that has too few conversations, with the most common reasons."""
        return [progress.summary() for progress in self._categories if len(progress.taken()) < progress.count]

    def _open(self, limit: int) -> list[tuple[ConversationBuilder, PlannedRequest]]:
        found: list[tuple[ConversationBuilder, PlannedRequest]] = []
        for conversation in chain.from_iterable(progress.open() for progress in self._categories):
            if len(found) == limit:
                break
            found.append((conversation, self._ask(conversation)))
        return found

    def _ask(self, conversation: ConversationBuilder) -> PlannedRequest:
        most = self.plan.sampling.max_tokens + self._thinking
        sampling = replace(self.plan.sampling, seed=conversation.seed, max_tokens=most)
        return planned_request(
            self._digest, self._arm, conversation.case(), sampling, conversation.step, "whole"
        )

    def _examine(self, conversation: ConversationBuilder) -> None:
        """Reject a complete conversation that overlaps with a suite or is a near-duplicate."""
        if why := self._overlap(conversation.messages):
            conversation.reject(why)
        elif like := self._seen.add(conversation.script.id, compared_text(conversation.messages)):
            conversation.duplicate = f"duplicate: {'same' if like[1] == 1.0 else 'near'}"

    def _settle(self) -> None:
        """Compare all conversations again in the order of their numbers, which is not the order in which they
        ended."""
        self._seen = NearDuplicates()
        for conversation in chain.from_iterable(progress.conversations for progress in self._categories):
            if conversation.state is ConversationState.KEPT:
                conversation.duplicate = ""
                self._examine(conversation)

    def _overlap(self, messages: Sequence[Mapping[str, Any]]) -> str:
        found = (overlap for check in self._checks for overlap in check.overlaps([{"messages": messages}]))
        first = next(found, None)
        return f"wall: {first.kind}" if first else ""


class _CategoryProgress:
    """One category: its scripts, and the conversations that were started."""

    def __init__(
        self, plan: DataPlan, category: Category, count: int, block_reason: BlockReason, thinking: bool
    ) -> None:
        self.category, self.count, self._thinking = category, count, thinking
        self.conversations: list[ConversationBuilder] = []
        self._limit = plan.tries * count + SPARE
        self._scripts: Iterator[ConversationScript] = make_scripts(plan, category, block_reason)
        self._said_all = False

    @property
    def kept(self) -> int:
        return sum(conversation.is_kept for conversation in self.conversations)

    @property
    def steps_left(self) -> int:
        live = [conversation for conversation in self.conversations if conversation.state in OPEN]
        mean = (
            sum(conversation.steps for conversation in self.conversations) / len(self.conversations)
            if self.conversations
            else 1.0
        )
        more = max(0, self.count - self.kept - len(live))
        return sum(conversation.steps - conversation.step for conversation in live) + round(more * mean)

    def open(self) -> list[ConversationBuilder]:
        """Conversations that wait for an answer. Starts new ones while too few are kept or open."""
        live = [conversation for conversation in self.conversations if conversation.state in OPEN]
        missing = self.count - self.kept - len(live)
        while missing > 0 and self._may_try():
            script = next(self._scripts, None)
            if script is None:
                self._said_all = True
                break
            self.conversations.append(ConversationBuilder(script, self._thinking))
            if not script.blocked:
                live.append(self.conversations[-1])
                missing -= 1
        return live

    def taken(self) -> list[ConversationBuilder]:
        return [conversation for conversation in self.conversations if conversation.is_kept][: self.count]

    def reasons(self) -> Counter[str]:
        return Counter(
            conversation.reason or conversation.duplicate
            for conversation in self.conversations
            if conversation.reason or conversation.duplicate
        )

    def summary(self) -> str:
        common = ", ".join(f"{reason} ({n})" for reason, n in self.reasons().most_common(3))
        end = "; the plan has nothing more to say" if self._said_all else ""
        return f"{self.category.name}: {len(self.taken())} of {self.count}, rejected for {common or 'nothing'}{end}"

    def _may_try(self) -> bool:
        tried = [conversation for conversation in self.conversations if not conversation.script.blocked]
        over = [conversation for conversation in tried if conversation.state not in OPEN]
        hopeless = len(over) >= SPARE and not self.kept
        room = len(tried) < self._limit and len(self.conversations) < MAX_BLOCKED * self._limit
        return room and not (self._said_all or hopeless)


class ConversationState(Enum):
    """The state of a conversation."""

    ASKED = "asked"
    RESULT = "result"
    KEPT = "kept"
    REJECTED = "rejected"


OPEN: Final = (ConversationState.ASKED, ConversationState.RESULT)


class ConversationBuilder:
    """A conversation being built from a script. `thinking`: thoughts are kept, and there has to be one."""

    def __init__(self, script: ConversationScript, thinking: bool = False) -> None:
        self.script, self._thinking = script, thinking
        self.messages: list[dict[str, Any]] = []
        self.state, self.reason, self.duplicate = ConversationState.ASKED, "", ""
        self._index = self._step = self._calls = 0
        if script.blocked:
            self.reject(script.blocked)
            return
        if script.system:
            self.messages.append({"role": "system", "content": script.system})
        self.messages.append({"role": "user", "content": script.turns[0].say})

    @property
    def step(self) -> int:
        """The number of answers received."""
        return self._step

    @property
    def is_kept(self) -> bool:
        """Whether the conversation is complete and not a duplicate."""
        return self.state is ConversationState.KEPT and not self.duplicate

    @property
    def steps(self) -> int:
        """The number of answers it needs if all are fit."""
        return sum(2 if part.calls else 1 for part in self.script.turns)

    @property
    def seed(self) -> int:
        """The sampling seed. Each conversation has its own, so that similar questions get different answers."""
        return int.from_bytes(hashlib.sha256(self.script.id.encode()).digest()[:4], "big") >> 1

    def case(self) -> Case:
        """The next request."""
        return Case(
            id=self.script.id, gates=(), messages=tuple(self.messages), tools=tuple(self.script.tools)
        )

    def feed(self, reply: Reply) -> None:
        """Process the answer to the request. Raises ValueError if no answer is expected."""
        if self.state not in OPEN:
            raise ValueError(f"{self.script.id}: nothing was asked, it is {self.state.value}")
        self._step += 1
        if why := _broken(reply) or self._unfit(reply):
            self.reject(why)
            return
        self.messages.append(self._message(reply))
        if reply.calls:
            self._hand_result()
            self.state = ConversationState.RESULT
        else:
            self._next_turn()

    def reject(self, why: str) -> None:
        """Reject for a reason found outside: an overlap with a suite, or a similar conversation."""
        self.state, self.reason = ConversationState.REJECTED, why

    def row(self) -> dict[str, Any]:
        """The conversation as a line of the output file."""
        row: dict[str, Any] = {"id": self.script.id, "messages": self.messages}
        if self.script.tools:
            row["tools"] = list(self.script.tools)
        row["chat_template_kwargs"] = {"enable_thinking": self._thinking}
        return row | {"category": self.script.category, "language": self.script.language}

    @property
    def _part(self) -> ScriptedTurn:
        return self.script.turns[self._index]

    def _unfit(self, reply: Reply) -> str:
        part, answers = self._part, self.state is ConversationState.RESULT or not self._part.calls
        expect = {
            "calls": [] if answers else list(part.calls),
            "max_seconds": self.script.max_seconds,
            "script": self.script.script,
            "answer": part.answer if answers else None,
        }
        found = find_faults(reply, Case("", (), (), tools=tuple(self.script.tools), expect=expect))
        return f"{found[0].detector}: {found[0].kind}" if found else ""

    def _message(self, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.content.strip()}
        if self._thinking and reply.reasoning.strip():
            message["reasoning_content"] = reply.reasoning.strip()
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
        self._index += 1
        if self._index == len(self.script.turns):
            self._end()
            return
        self.messages.append({"role": "user", "content": self._part.say})
        self.state = ConversationState.ASKED

    def _end(self) -> None:
        self.state = ConversationState.KEPT
        if self._thinking and not any("reasoning_content" in message for message in self.messages):
            self.reject("thought: none")


def _broken(reply: Reply) -> str:
    """Why the answer is incomplete; "" if it is complete."""
    if reply.fault is not None:
        return f"lost: {reply.fault.kind}"
    if reply.error is not None:
        return f"refused: HTTP {reply.status}"
    if reply.finish_reason == "content_filter":
        return "refused: by the teacher"
    if reply.finish_reason == "length" or not reply.complete:
        return "cut off: " + ("too many tokens" if reply.finish_reason == "length" else "no end")
    return ""
