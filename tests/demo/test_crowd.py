"""What the demo judges of the words that its callers heard."""

import json

import pytest

from tests.demo.crowd import Heard, _Reply, spoken_since


def reply(text: str, finish: str | None = "stop") -> Heard:
    heard = _Reply(0.0)
    heard._status = 200
    for delta, reason in ((text, None), ("", finish)):
        read = {"choices": [{"delta": {"content": delta}, "finish_reason": reason}]}
        heard.feed(b"data: " + json.dumps(read).encode())
    heard.feed(b"data: [DONE]")
    return heard.over()


def said(engine: str, ended: float) -> Heard:
    return Heard(0.0, ended, None, "whole", "", engine, frozenset())


def test_clean_speech_has_no_fault() -> None:
    assert reply("The capital of France is Paris.").faults == set()


@pytest.mark.parametrize(
    "text, finish, end",
    [("Hi.", "stop", "whole"), ("Hi.", None, "truncated"), ("", "stop", "lost"), ("", None, "lost"), ("", "length", "whole")],
)  # fmt: skip
def test_a_stream_is_whole_if_it_says_something_or_that_its_tokens_are_used_up(
    text: str, finish: str | None, end: str
) -> None:
    assert reply(text, finish).end == end


@pytest.mark.parametrize("tag", ["<think>", "</think>", "< /THINKING>", "</thought>", "<think"])
def test_a_think_tag_that_is_heard_is_a_fault_of_its_own(tag: str) -> None:
    assert "think_tag" in reply(f"Hello!{tag} How are you?").faults


def test_a_thought_without_a_tag_is_a_leak_and_no_think_tag() -> None:
    assert reply("Nice They They ask how I am. I will use headings and bullet points.").faults == {"leak"}


def test_what_a_spoiled_engine_said_is_whatever_she_ended_after_the_moment() -> None:
    under_way, before, another = said("hers", 2.0), said("hers", 0.5), said("other", 2.0)
    assert spoken_since([under_way, before, another], "hers", 1.0) == [under_way]


def test_an_engine_that_was_never_spoiled_said_nothing_since() -> None:
    assert spoken_since([said("hers", 2.0)], "hers", None) == []
