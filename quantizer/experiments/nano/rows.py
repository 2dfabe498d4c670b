"""Dialogues of the nano models in the JSONL format that training and calibration read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quantizer.experiments.nano import annie
from quantizer.experiments.nano.generate import conversation


def row(seed: int, index: int) -> dict[str, Any]:
    """One dialogue with its history, tools and thinking switch."""
    made = conversation(seed, "train", index)
    lesson, thought = made.lesson, made.lesson.thought if made.thinking else ""
    messages = annie.opening(made)
    if lesson.calls:
        messages += annie.called(lesson, thought)
        thought = lesson.after if made.thinking else ""
    messages.append({"role": "assistant", "content": lesson.answer, "reasoning_content": thought})
    kept = [{key: value for key, value in message.items() if value != ""} for message in messages]
    switches = {"enable_thinking": made.thinking}
    return {"messages": kept, "tools": made.schemas, "chat_template_kwargs": switches}


def write(path: Path, count: int, seed: int = 7) -> Path:
    """Write a file of `count` dialogues."""
    lines = (json.dumps(row(seed, index), ensure_ascii=False) for index in range(count))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
