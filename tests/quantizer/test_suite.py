"""The gates' suite annie-nano: made of held-out lessons, and clean of every training conversation."""

from __future__ import annotations

import json

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("jinja2", reason=INSTALL)

from gates.suite.contamination import NGRAM_WORDS, overlaps, prompt_of  # noqa: E402
from gates.suite.load import FILES, load_suite  # noqa: E402
from gates.suite.normalize import normalize  # noqa: E402
from quantizer.experiments.nano.__main__ import wall  # noqa: E402
from quantizer.experiments.nano.asked import is_asked  # noqa: E402
from quantizer.experiments.nano.recipe import NANO, TINY  # noqa: E402
from quantizer.experiments.nano.suite import SEED, SOURCES, learned, texts  # noqa: E402
from quantizer.experiments.nano.vocabulary import normalise, split_of  # noqa: E402

LOOKED_AT = 3000
TRAINING = {"base": NANO.data_seed, "annie": NANO.data_seed + 1}


def test_the_committed_cases_are_the_generators() -> None:
    """`python -m quantizer.experiments.nano suite` writes what is there already, byte for byte."""
    made = texts()
    assert {name: (FILES.folder / name).read_text("utf-8") for name in made} == made


def test_no_training_and_no_score_has_the_suites_seed() -> None:
    """data_seed is the base's, + 1 annie's, + 2 the score's."""
    assert SEED not in {*TRAINING.values(), NANO.data_seed + 2}


@pytest.mark.parametrize("seed", TRAINING.values(), ids=TRAINING)
def test_the_suite_is_clean_of_what_the_models_learned_from(seed: int) -> None:
    """The wall over the beginning of both models' data; `python -m quantizer.experiments.nano wall` is over all."""
    assert overlaps(load_suite("annie-nano"), learned(seed, LOOKED_AT)) == []


def test_the_wall_sees_a_training_prompt() -> None:
    """A suite that asks one is not clean: the search above can fail."""
    seen = next(learned(NANO.data_seed + 1, 1))
    prompt = next(m["content"] for m in reversed(seen["messages"]) if m["role"] == "user")
    suite = load_suite("annie-nano")
    case = suite.cases[0]
    spoilt = type(case)("spoilt", ("leak",), ({"role": "user", "content": prompt},))

    (found,) = overlaps(
        type(suite)("", 1, "", suite.sampling, (case, spoilt), ""), learned(NANO.data_seed + 1, 1)
    )

    assert (found.case, found.kind) == ("spoilt", "same")


def test_the_command_looks_through_a_recipes_conversations(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m quantizer.experiments.nano wall`, here over the tiny recipe's."""
    assert wall(TINY)
    assert "0 overlaps with annie-nano sha256:" in capsys.readouterr().out


def test_every_prompt_is_held_out_from_data_of_any_seed() -> None:
    """Held out as a whole, too short for a part to count, and one prompt to the wall if to the split.

    A prompt of training has another text than this one by the split's comparison. By the wall's it
    could only be the same if the two cut words otherwise, which they do at signs between digits.
    """
    for case in load_suite("annie-nano").cases:
        prompt = prompt_of(case)
        if "everyday" in case.gates:
            assert is_asked(prompt), case.id  # held out by hand, and too long or too short as it comes
            continue
        assert split_of(prompt) == "test", case.id
        assert len(normalize(prompt).split()) < NGRAM_WORDS, case.id
        assert not prompt.isascii() or normalise(prompt) == normalize(prompt) or "." in prompt, case.id


def test_cases_without_a_tool_message_end_with_the_held_out_prompt() -> None:
    """And those with one hold the calls' results, as they came over the wire."""
    turns = {source.turn: source.result for source in SOURCES}
    for case in load_suite("annie-nano").cases:
        last = case.messages[-1]
        assert (last["role"] == "tool") is turns.get(case.turn, False), case.id
        for message in case.messages:
            for call in message.get("tool_calls", ()):
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
