"""Labels that a model makes itself: lines from replies, and the engine that is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gates.detect.__main__ import main
from gates.detect.label import MIN_THOUGHT_CHARS, LabelledReplies, lines, read_prompts

THOUGHT = "Okay, the user is asking for a capital. That is Bengaluru, and one sentence is enough."
ASKED = LabelledReplies(THOUGHT, "The capital is Bengaluru.", "It is Bengaluru.")


def made(*asked: LabelledReplies) -> list[dict[str, Any]]:
    return list(lines(asked, "annie"))


def test_answers_are_clean_and_thoughts_are_hits() -> None:
    by_label = {
        label: [line["text"] for line in made(ASKED) if line["label"] == label] for label in ("hit", "clean")
    }
    assert by_label["clean"] == ["The capital is Bengaluru.", "It is Bengaluru."]
    assert all("Okay, the user" in text for text in by_label["hit"])


def test_over_some_prompts_every_form_of_a_leak_is_made() -> None:
    texts = [line["text"] for line in made(*[ASKED] * 8) if line["label"] == "hit"]
    assert f"<think>\n{THOUGHT}\n</think>\n\n{ASKED.answer}" in texts
    assert f"{THOUGHT}\n</think>\n\n{ASKED.answer}" in texts
    assert f"{THOUGHT}\n\n{ASKED.answer}" in texts
    assert THOUGHT in texts
    assert sum(text.startswith("<think>") and "</think>" not in text for text in texts) == 2
    assert len(texts) == len(set(texts))


def test_a_short_thought_without_tags_is_shown_and_does_not_count() -> None:
    short = [
        line
        for line in made(*[LabelledReplies("It worked.", "Done.", "Done.")] * 8)
        if line["label"] == "hit"
    ]
    assert {line["text"] for line in short if line.get("counts") is False} == {
        "It worked.\n\nDone.",
        "It worked.",
    }
    assert all("think>" in line["text"] for line in short if line.get("counts", True))


def test_a_cut_without_tags_leaves_enough_to_be_told() -> None:
    for line in made(*[ASKED] * 8):
        if line["label"] == "hit" and "cut" in line["why"] and "<think>" not in line["text"]:
            assert len(line["text"]) >= MIN_THOUGHT_CHARS


def test_a_reply_that_leaks_by_itself_labels_nothing() -> None:
    leaky = LabelledReplies("", "<think>x</think>Yes.", "No.</think>")
    assert made(leaky) == []


def test_groups_name_the_model() -> None:
    assert {line["group"].split(",")[0] for line in made(ASKED)} == {"annie"}


# ------------------------------------------------------------------------------------------ the edge


class _Engine(BaseHTTPRequestHandler):
    """Thinks aloud in the reasoning field when it is asked to."""

    asked: list[dict[str, Any]]

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "nano"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(body)
        text = body["messages"][-1]["content"]
        message = {"content": f"About {text}."}
        if body["chat_template_kwargs"]["enable_thinking"]:
            message["reasoning_content"] = (
                f"The user is asking about this: {text}. I should answer in one sentence."
            )
        self._answer({"choices": [{"message": message}]})

    def _answer(self, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[str]:
    _Engine.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow  # an engine is asked every prompt: 2 s
def test_an_engine_is_asked_every_prompt_with_thinking_on_and_off(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "leak-nano.jsonl"
    assert main(["label", engine, "--source", "nano", "--out", str(out)]) == 0
    prompts = read_prompts()
    asked = len(prompts.plain) + len(prompts.with_tools)
    assert len(_Engine.asked) == 2 * asked
    assert sum(body["chat_template_kwargs"]["enable_thinking"] for body in _Engine.asked) == asked
    assert sum("tools" in body for body in _Engine.asked) == 2 * len(prompts.with_tools)
    assert {(body["model"], body["temperature"]) for body in _Engine.asked} == {("nano", 0)}
    labels = [json.loads(line)["label"] for line in out.read_text(encoding="utf-8").splitlines()]
    assert labels.count("clean") == asked
    assert 2 * asked < labels.count("hit") <= 3 * asked  # a cut may leave the same words of two thoughts


def test_an_engine_that_is_gone_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["label", "http://127.0.0.1:9", "--source", "nano"]) == 69
    assert "is the engine up?" in capsys.readouterr().err
