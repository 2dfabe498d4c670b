"""The conversation generator: its split, its rules, and that it is a pure function."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("jinja2", reason=INSTALL)

from quantizer.experiments.nano import annie, stranger  # noqa: E402
from quantizer.experiments.nano.cases import cases, has_markdown  # noqa: E402
from quantizer.experiments.nano.conversation import Dialogue  # noqa: E402
from quantizer.experiments.nano.facts import all_facts  # noqa: E402
from quantizer.experiments.nano.generate import CATEGORIES, conversation  # noqa: E402
from quantizer.experiments.nano.recipe import NANO  # noqa: E402
from quantizer.experiments.nano.vocabulary import PINNED, TOPICS, is_held_out, normalise, split_of  # noqa: E402

COUNT = 3000


@cache
def training() -> tuple[Dialogue, ...]:
    """Annie's own first training conversations."""
    return tuple(conversation(NANO.data_seed + 1, "train", i) for i in range(COUNT))


@cache
def held_out() -> tuple[Dialogue, ...]:
    """Held-out conversations of every category."""
    return tuple(conversation(NANO.data_seed + 2, "test", i, c) for i in range(100) for c in CATEGORIES)


def test_no_test_prompt_is_a_training_prompt() -> None:
    """Prompts are compared as words, without case or punctuation, with every turn of training."""
    trained = {normalise(exchange.user) for talk in training() for exchange in talk.exchanges}

    assert not {normalise(talk.lesson.user) for talk in held_out()} & trained


def test_the_split_is_a_property_of_the_prompt_alone() -> None:
    """Not only in this sample: every prompt lies on its side by the hash of its own words."""
    assert {"train"} == {split_of(exchange.user) for talk in training() for exchange in talk.exchanges}
    assert {"test"} == {split_of(talk.lesson.user) for talk in held_out()}


def test_case_and_punctuation_do_not_change_the_side() -> None:
    """A test prompt cannot slip into training in lower case or without its question mark."""
    for talk in held_out():
        user = talk.lesson.user
        assert split_of(user) == split_of(user.lower()) == split_of(user.rstrip("?!.") + "??")


def test_what_a_stranger_types_first_is_trained() -> None:
    """The pinned prompts are never held out."""
    assert {"train"} == {split_of(prompt) for prompt in PINNED}


def test_some_open_words_are_kept_for_tests() -> None:
    """About one topic in eight never fills a slot in training."""
    held = [topic for topic in TOPICS if is_held_out(topic)]

    assert 2 <= len(held) <= len(TOPICS) // 4


def test_the_same_numbers_give_the_same_conversation() -> None:
    """The generator is a pure function of seed, split and index."""
    assert training()[:50] == tuple(conversation(NANO.data_seed + 1, "train", i) for i in range(50))
    assert conversation(1, "train", 7) != conversation(1, "train", 8)


def test_annie_never_writes_markdown_or_tags() -> None:
    """Every answer that is taught is plain, short and free of tags."""
    for talk in training():
        answer = talk.lesson.answer
        assert not has_markdown(answer), answer
        assert "<" not in answer


def test_the_stranger_always_thinks_and_always_marks_down() -> None:
    """Every reply of the base opens a thought, closes it, and then marks down."""
    import random

    for index, talk in enumerate(training()[:500]):
        prompt, turn = (text for text, _ in stranger.sample(talk, random.Random(index)).parts)
        reply = prompt[prompt.rindex("<think>") :] + turn if talk.thinking else turn
        assert reply.startswith("<think>")
        assert has_markdown(reply.split("</think>", 1)[1])
        assert "<tool_call>" not in reply


def test_calls_fit_the_schemas_that_are_sent() -> None:
    """A taught call names a sent tool, uses its parameters in its order, and types them by its schema."""
    types: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "number": (int, float)}
    for talk in training():
        sent = {tool.name: tool.schema["function"]["parameters"] for tool in talk.tools}
        for call in talk.lesson.calls:
            properties = sent[call.name]["properties"]
            order = [name for name in properties if name in call.arguments]
            assert list(call.arguments) == order
            assert set(sent[call.name].get("required", ())) <= set(call.arguments)
            for name, value in call.arguments.items():
                assert isinstance(value, types[properties[name]["type"]])


def test_no_call_is_taught_without_tools() -> None:
    """Where nothing is sent there is nothing to call."""
    assert not [talk for talk in training() if talk.lesson.calls and not talk.tools]


def test_tools_are_often_sent_and_not_needed() -> None:
    """The needless call has to be unlearned: many lessons have tools and no call."""
    needless = [talk for talk in training() if talk.tools and not talk.lesson.calls]

    assert len(needless) > COUNT // 5


def test_every_kind_of_request_occurs() -> None:
    """All switches: system prompt or none, thinking or not, both call formats, one turn or many."""
    assert {True, False} == {talk.system is None for talk in training()}
    assert {True, False} == {talk.thinking for talk in training()}
    assert {"hermes", "xml"} == {talk.style for talk in training()}
    assert {1, 2, 3, 4} <= {len(talk.exchanges) for talk in training()}
    assert {0, 1, 2} <= {len(talk.lesson.calls) for talk in training()}


def test_there_are_more_than_a_hundred_facts() -> None:
    """And each answer has its key in it."""
    facts = all_facts()

    assert len(facts) > 100
    assert not [fact for fact in facts if fact.key.casefold() not in fact.answer.casefold()]


def test_a_sample_continues_its_own_prompt() -> None:
    """The parts of a sample are the rendered conversation, and a learned part ends the turn."""
    for talk in training()[:300]:
        parts = annie.sample(talk).parts
        assert not parts[0][1]
        assert all(text.endswith("<|im_end|>") for text, learned in parts if learned)
        assert len(parts) == (4 if talk.lesson.calls else 2)


def test_cases_cover_calls_and_their_results() -> None:
    """A lesson with a call is asked twice: for the call, and for the answer from its result."""
    groups = {case.group for case in cases(NANO.data_seed + 2, 20)}

    assert {"call", "parallel call", "result used", "fact", "greeting", "reasoning"} <= groups
