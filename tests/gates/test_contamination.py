"""The contamination wall: what counts as a suite's prompt in training data, and what does not."""

from typing import Any

import pytest

from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.errors import SuiteError
from gates.suite.contamination import ContaminationCheck, Overlap

SHORT = "When is my dentist appointment?"
LONG = (
    "I'm off to Madikeri on Friday with my two children and a very old dog, "
    "so what will the weather be like up there?"
)
GRAM_OF_LONG = "on friday with my two children and a very old dog so what"


def suite(*messages: list[dict[str, Any]]) -> Suite:
    cases = tuple(Case(f"case-{i}", ("leak",), tuple(talk)) for i, talk in enumerate(messages))
    return Suite("little", 1, "", Sampling(), cases, "sha256:" + "0" * 64)


def asked(*texts: str) -> Suite:
    return suite(*([{"role": "user", "content": text}] for text in texts))


def talk(*turns: str) -> dict[str, Any]:
    """A conversation of user and assistant in turn, with a system prompt."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return {"messages": [{"role": "system", "content": "You are Annie."}, *said], "tools": []}


def kinds(found: list[Overlap]) -> set[str]:
    return {overlap.kind for overlap in found}


FOUND = [
    (SHORT, "when is MY dentist-appointment", {"same"}),
    (SHORT, "Annie, when is my dentist appointment?", set()),
    (SHORT, "When is my eye doctor's appointment?", set()),
    (LONG, LONG.upper(), {"same"}),
    (LONG, f"Hey. {GRAM_OF_LONG} shall I pack for us all, and should I bring a coat and boots as well?", {"gram"}),
    (LONG, f"Hey. {' '.join(GRAM_OF_LONG.split()[1:])} shall I pack for all of us, and is it far?", set()),
    (LONG, LONG.replace("Friday", "Sunday"), {"gram"}),
    ("ಊಟ ಆಯ್ತಾ ಆನಿ?", "ಊಟ ಆಯ್ತಾ, ಆನಿ", {"same"}),
    ("ಊಟ ಆಯ್ತಾ ಆನಿ?", "ಊಟ ಆಯ್ತು ಆನಿ", set()),
    ("👍", "👌", set()),
]  # fmt: skip


@pytest.mark.parametrize("prompt, trained, rules", FOUND)
def test_a_prompt_is_found_by_these_rules(prompt: str, trained: str, rules: set[str]) -> None:
    assert (
        kinds(ContaminationCheck(asked(prompt)).overlaps([talk("Hello", "Hi!", trained, "Fine.")])) == rules
    )


def test_of_a_case_only_the_last_words_of_the_user_count() -> None:
    scene: list[dict[str, Any]] = [
        {"role": "user", "content": LONG},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": SHORT},
        {"role": "assistant", "content": "", "tool_calls": []},
        {"role": "tool", "tool_call_id": "c", "content": "Monday"},
    ]

    assert ContaminationCheck(suite(scene)).overlaps([talk(LONG, "Sunny.")]) == []
    assert kinds(ContaminationCheck(suite(scene)).overlaps([talk(SHORT, "On Monday.")])) == {"same"}


def test_each_rule_tells_the_first_conversation_that_has_the_prompt() -> None:
    data = [talk("Hello", "Hi!"), talk(SHORT, "Monday."), talk(SHORT, "Monday.")]

    (found,) = ContaminationCheck(asked(SHORT, LONG)).overlaps(data)

    assert (found.case, found.conversation, found.kind) == ("case-0", 1, "same")
    assert "when is my dentist appointment" in str(found)


@pytest.mark.parametrize("conversation", [{}, {"messages": "hi"}, {"messages": ["hi"]}, {"text": LONG}])
def test_what_cannot_be_read_cannot_be_cleared(conversation: dict[str, Any]) -> None:
    with pytest.raises(SuiteError, match="conversation 1: has no list of messages"):
        ContaminationCheck(asked(SHORT)).overlaps([talk("Hello"), conversation])
