"""Callers who stream all the while, and the numbers that they bring home."""

import asyncio
import json
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Final, Literal

import aiohttp

from gates.detect.detection import Detection
from gates.detect.live import find_violations

CALLERS: Final = 4
PAUSE: Final = (0.1, 0.6)
"""Seconds that a caller is silent between two questions."""
QUESTIONS: Final = (
    "Hello!", "Good morning!", "How are you today?", "What is the capital of France?", "What is 4 plus 5?",
    "What is the capital of Spain?", "What is 12 minus 7?", "Thank you!", "Who wrote Hamlet?",
    "What is the capital of Japan?", "Good night!", "What is the largest planet?",
)  # fmt: skip
SYSTEM: Final = "You are Annie, Rajesh's personal voice assistant. Speak in plain sentences."

End = Literal["whole", "truncated", "lost"]


@dataclass(frozen=True, slots=True)
class Heard:
    """One stream. Times are of time.monotonic(); `ttft` is seconds to the first content, None without."""

    opened: float
    ended: float
    ttft: float | None
    end: End
    why: str
    engine: str
    faults: frozenset[str]
    """What the gates' live detectors find in the words that the caller heard. A leak that is a think tag is
    `think_tag`: the gateway lets none of an engine's own through, whatever becomes of its weights."""


@dataclass
class Crowd:
    """Callers of the model `annie` at `url`."""

    url: str
    callers: int = CALLERS
    heard: list[Heard] = field(default_factory=list)
    opened: int = 0
    open: int = 0
    _over: bool = False

    async def __aenter__(self) -> "Crowd":
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        self._tasks = [asyncio.create_task(self._talk(number)) for number in range(self.callers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True  # everybody hears the rest of the reply
        await asyncio.gather(*self._tasks)
        await self._client.close()

    async def _talk(self, number: int) -> None:
        chance = random.Random(number)
        while not self._over:
            self.opened += 1
            self.open += 1
            self.heard.append(await self._ask(chance.choice(QUESTIONS)))
            self.open -= 1
            await asyncio.sleep(chance.uniform(*PAUSE))

    async def _ask(self, question: str) -> Heard:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        body = {"model": "annie", "stream": True, "max_tokens": 120, "messages": messages}
        reply = _Reply(time.monotonic())
        try:
            async with self._client.post(f"{self.url}/v1/chat/completions", json=body) as response:
                reply.begins(response)
                async for line in response.content:
                    reply.feed(line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reply.fault = f"{type(error).__name__}: {error}"
        return reply.over()

    def between(self, begin: float, end: float) -> list[Heard]:
        """Streams that were opened in a stretch of time."""
        return [one for one in self.heard if begin <= one.opened < end]


class _Reply:
    """One stream, as it is heard."""

    def __init__(self, opened: float) -> None:
        self._opened = opened
        self._text, self._reason, self._done = "", "", False
        self._status, self._engine, self.fault = 0, "none", ""
        self._first: float | None = None

    def begins(self, response: aiohttp.ClientResponse) -> None:
        self._status = response.status
        self._engine = response.headers.get("x-manners-engine", "none")

    def feed(self, line: bytes) -> None:
        data = line.removeprefix(b"data: ").strip()
        if not line.startswith(b"data: "):
            self.fault = self.fault or (line.decode(errors="replace") if self._status != 200 else "")
            return
        if data == b"[DONE]":
            self._done = True
            return
        read: Any = json.loads(data)
        self.fault = self.fault or (str(read["error"]) if "error" in read else "")
        for choice in read.get("choices", ()):
            self._reason = choice.get("finish_reason") or self._reason
            self._text += choice["delta"].get("content") or ""
        if self._text and self._first is None:
            self._first = time.monotonic()

    def over(self) -> Heard:
        """Whole: 200, words, a reason to end, `[DONE]`. Lost: nothing was heard.

        `length` without a word is whole: a spoiled engine thinks until its tokens are used up, and the caller is told.
        """
        ended = self._status == 200 and self._done and not self.fault
        whole = ended and (self._reason == "length" or (self._reason and self._text))
        end: End = "whole" if whole else "truncated" if self._text else "lost"
        why = "" if whole else self.fault or f"status {self._status}, ended with {self._reason or 'nothing'}"
        ttft = None if self._first is None else self._first - self._opened
        findings = find_violations(self._text, calls=0)
        found = frozenset("think_tag" if _is_think_tag(one) else one.detector for one in findings) - {"empty"}
        return Heard(self._opened, time.monotonic(), ttft, end, why, self._engine, found)


def _is_think_tag(one: Detection) -> bool:
    return one.kind == "tag" and one.excerpt.lower().lstrip("</ ").startswith(("think", "thought"))


def spoken_since(heard: Iterable[Heard], engine: str, moment: float | None) -> list[Heard]:
    """What an engine said after a moment, were it only the end of a reply; nothing if the moment never came.

    Of a spoiled engine that is speech of two models in one: what she has in her key-value cache is of
    the weights before. Thoughts then come without a tag, which the think filter cannot tell from an
    answer: they are what she is rolled back for.
    """
    return [one for one in heard if moment is not None and one.engine == engine and one.ended > moment]


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts, and times to first content in ms (None with fewer than two)."""

    streams: int
    whole: int
    truncated: int
    lost: int
    p50: float | None
    p95: float | None


def figures(heard: Iterable[Heard]) -> Figures:
    """What these streams come to."""
    streams = list(heard)
    times = [one.ttft * 1000 for one in streams if one.ttft is not None]
    ends = [one.end for one in streams]
    p95 = quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else None
    p50 = median(times) if len(times) > 1 else None
    return Figures(len(streams), ends.count("whole"), ends.count("truncated"), ends.count("lost"), p50, p95)
