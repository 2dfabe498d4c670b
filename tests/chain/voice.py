"""What a real model learns and is asked: this repository's conversations for a voice, and a suite of those that no training saw."""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gates.detect.detection import normalize
from tests.chain.settings import ROOT

SET: Final = ROOT / "quantizer" / "data" / "sets" / "voice"


def write_data(path: Path) -> None:
    """The 1,088 conversations of the training."""
    path.write_bytes(lzma.decompress((SET / "conversations.jsonl.xz").read_bytes()))


def write_suite(path: Path) -> None:
    """A prompt for each reply of the 97 held-out conversations that follows no tool's result: its call, or speech. It leaves out
    seven, such as "What is the capital of Kenya?", which the training has."""
    messages = (message for row in _rows("conversations") for message in row["messages"])
    learned = {normalize(message["content"]) for message in messages if message["role"] == "user"}
    prompts = (prompt for row in _rows("held_out") for prompt in _prompts(row))
    kept = [prompt for prompt in prompts if normalize(prompt["turns"][-1]["user"]) not in learned]
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in kept), "utf-8")


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lzma.open(SET / f"{name}.jsonl.xz", "rt", encoding="utf-8")]


def _prompts(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    asked: dict[str, Any] = {"tools": row.get("tools", ())}
    turns: list[dict[str, str]] = []
    for message in row["messages"]:
        if message["role"] == "system":
            asked["system"] = message["content"]
        elif calls := message.get("tool_calls"):
            functions = [call["function"] for call in calls]
            wanted = [{"name": one["name"], "arguments": json.loads(one["arguments"])} for one in functions]
            yield {**asked, "turns": turns, "calls": wanted}
            return
        else:
            if message["role"] == "assistant":
                yield {**asked, "turns": list(turns)}
            turns.append({message["role"]: message["content"]})
