"""Teachers for the tests: a plan of a few kinds, and a scripted server that answers what it is asked by it."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.scale import PATIENCE
from tests.script import Step, status
from tests.scripted_engine import ScriptedEngine, Seen

PLAN = """
name = "small"
version = 1
seed = 1
tries = 3
description = "for tests"
forms = ["en"]
tools = ["search_memory", "web_search", "set_timer"]
systems = ["You are Annie, a voice assistant. Answer in one to three short spoken sentences. Never use markdown."]

[sampling]
temperature = 0.0
max_tokens = 64

[languages.en]
weight = 1
script = "Latn"

[slots]
person = ["Priya", "Arjun", "Meera", "Ravi", "Anita", "Kiran", "Divya", "Suresh", "Lakshmi", "Mohan"]
topic = ["wedding", "house", "movie night", "garden", "train", "party", "office", "festival", "phone bill", "dentist"]
day = ["Monday", "Tuesday", "Friday"]
land = [
    { name = "Japan", capital = "Tokyo" }, { name = "France", capital = "Paris" }, { name = "Italy", capital = "Rome" },
    { name = "Nepal", capital = "Kathmandu" }, { name = "Spain", capital = "Madrid" }, { name = "Egypt", capital = "Cairo" },
]

[[categories]]
name = "factual"
count = 3
max_seconds = 10
[[categories.scenes]]
[[categories.scenes.turns]]
say.en = ["What is the capital of {land.name}?"]
answer = ["{land.capital}"]

[[categories]]
name = "memory"
count = 4
max_seconds = 10
[[categories.scenes]]
[[categories.scenes.turns]]
say.en = ["What did {person} say about the {topic}?"]
call = { name = "search_memory", arguments = { query = ["{person}"] } }
result = "{person} said the {topic} is on {day}."
answer = ["{day}"]
"""


def plan_file(folder: Path, text: str = PLAN) -> Path:
    """The plan as a file."""
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def whole(content: str = "", calls: Sequence[tuple[str, str]] = (), reason: str = "") -> tuple[Step, ...]:
    """A reply in one piece."""
    made = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if made:
        message["tool_calls"] = made
    choice = {"index": 0, "message": message, "finish_reason": reason or ("tool_calls" if made else "stop")}
    return status(200, {"id": "c-1", "object": "chat.completion", "model": "scripted", "choices": [choice]})


CAPITALS = {
    "Japan": "Tokyo",
    "France": "Paris",
    "Italy": "Rome",
    "Nepal": "Kathmandu",
    "Spain": "Madrid",
    "Egypt": "Cairo",
}


def well(body: dict[str, Any]) -> tuple[Step, ...]:
    """What a good teacher answers to the plan."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return whole(f"I remember. {last['content']}")
    words = last["content"].rstrip("?").split()
    if words[-1] in CAPITALS:
        return whole(f"The capital of {words[-1]} is {CAPITALS[words[-1]]}.")
    about = f"{words[2]} {' '.join(words[6:])}"
    return whole(calls=[("search_memory", json.dumps({"query": about}))])


Answer = Callable[[dict[str, Any]], Sequence[Step]]


class Teacher(ScriptedEngine):
    """Answers by the request. `mischief` may answer in its place; None leaves it to the good one."""

    def __init__(self) -> None:
        super().__init__()
        self.mischief: Callable[[dict[str, Any], int], Sequence[Step] | None] = lambda body, number: None

    async def script_for(self, seen: Seen) -> Sequence[Step]:
        if not seen.path.endswith("/chat/completions"):
            return await super().script_for(seen)
        await self._note(seen)
        return self.mischief(seen.body, len(self.requests)) or well(seen.body)


@contextmanager
def teaching(kind: type[Teacher] = Teacher) -> Iterator[Teacher]:
    """A teacher in a thread of its own, for commands that bring their own event loop."""
    teacher, loop, up = kind(), asyncio.new_event_loop(), threading.Event()
    over = asyncio.Event()

    async def serve() -> None:
        async with teacher:
            up.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert up.wait(PATIENCE)
        yield teacher
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
