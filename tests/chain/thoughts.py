"""What a dose of no-think training does: lengths of thoughts, and when the first sentence can be spoken."""

import asyncio
import json
import re
import time
from statistics import mean, median
from typing import Any, Final

import aiohttp

from gates.suite.load import load_suite
from tests.chain.live import gateway
from tests.chain.place import FOLDERS, LLAMA, SUITE, TRAINED_GGUF, TUNED, Place
from tests.chain.record import Figures

SENTENCE: Final = re.compile(r"[.!?](\s|$)")
MODEL: Final = """
[models.{name}]
live = "{name}"
thinking = "on"
reasoning = "separate"
max_tokens = 400
"""


def lengths_of_thoughts(place: Place) -> Figures:
    """Ask the fine-tune, its QAT and each dose the same questions with thinking on, all on llama.cpp."""
    served = {
        "fine-tune": FOLDERS[TUNED],
        "qat": TRAINED_GGUF,
        **{f"no-think-{name}": f"no-think-{name}-nvfp4" for name in place.setting.doses},
    }
    engines = "".join(
        LLAMA.format(name=name, folder=place.models / folder) for name, folder in served.items()
    )
    place.configure(models=engines + "".join(MODEL.format(name=name) for name in served))
    try:
        return asyncio.run(_asked(place, list(served)))
    finally:
        place.configure()


def questions(count: int) -> list[str]:
    """Cases of the suite without tools, from all over it."""
    found = [case for case in load_suite(SUITE).cases if not case.tools and len(case.messages) <= 2]
    texts = [str(case.messages[-1]["content"]) for case in found]
    return texts[:: max(1, len(texts) // count)][:count]


async def _asked(place: Place, names: list[str]) -> Figures:
    asked = questions(place.setting.questions)
    found: Figures = {}
    async with gateway(place, "thoughts"), aiohttp.ClientSession() as client:
        for name in names:
            replies = [await _ask(client, place.url, name, text) for text in asked]
            found[name] = _figures(replies)
    return {"questions": len(asked), "models": found}


async def _ask(client: aiohttp.ClientSession, url: str, model: str, text: str) -> tuple[int, float | None]:
    """Characters of the thought, and milliseconds until a whole sentence of the answer was there."""
    body = {"model": model, "stream": True, "temperature": 0, "messages": [{"role": "user", "content": text}]}
    began, thought, said = time.monotonic(), 0, ""
    first: float | None = None
    async with client.post(f"{url}/v1/chat/completions", json=body) as response:
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            read: Any = json.loads(line.removeprefix(b"data: "))
            for choice in read.get("choices", ()):
                thought += len(choice["delta"].get("reasoning_content") or "")
                said += choice["delta"].get("content") or ""
            if first is None and SENTENCE.search(said):
                first = 1000 * (time.monotonic() - began)
    return thought, first


def _figures(replies: list[tuple[int, float | None]]) -> Figures:
    lengths = [length for length, _ in replies]
    times = [first for _, first in replies if first is not None]
    return {
        "thought, mean characters": round(mean(lengths), 1),
        "thought, median characters": median(lengths),
        "without a thought": sum(length == 0 for length in lengths),
        "first sentence, median ms": round(median(times)) if times else None,
        "replies with a sentence": len(times),
    }
