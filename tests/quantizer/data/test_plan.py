"""Plans: the shipped one holds the seeds' five kinds, what it says is new and clear of the suites, and faults are named."""

from itertools import islice
from pathlib import Path

import pytest

from quantizer.core.errors import RecipeError
from quantizer.data.near_duplicates import NearDuplicates
from quantizer.data.plan import load_plan
from quantizer.data.scripts import ConversationScript, make_scripts
from tests.quantizer.data.teachers import PLAN, plan_file


def drawn(count: int, name: str = "annie") -> dict[str, list[ConversationScript]]:
    plan = load_plan(name)
    return {c.name: list(islice(make_scripts(plan, c, lambda turns: ""), count)) for c in plan.categories}


def test_the_shipped_plan_has_the_five_kinds() -> None:
    plan, made = load_plan("annie"), drawn(30)

    assert {c.name: c.count for c in plan.categories} == dict.fromkeys(
        ("greeting", "factual", "memory", "web", "multi_turn"), 100
    )
    called = {
        name: {call["name"] for s in found for p in s.turns for call in p.calls}
        for name, found in made.items()
    }
    assert called["greeting"] == called["factual"] == set()
    assert called["memory"] == {"search_memory"} and called["web"] == {"web_search"}
    assert {len(script.turns) for script in made["multi_turn"]} == {5}


@pytest.mark.parametrize(
    "old, new, line",
    [
        ("seed = 1", "sead = 1", "sead: unknown key; did you mean 'seed'?"),
        ("{person} say", "{persons} say", "{persons} is no slot; did you mean 'person'?"),
        ("{land.capital}", "{land.town}", "{land.town}: the slot has no such field"),
        ('name = "search_memory",', 'name = "memory_search",', "'memory_search' is no tool of the plan"),
        ("weight = 1", "weight = 0", "languages.en.weight: must be a number above 0, not 0"),
        ('result = "', 'reslt = "', "reslt: unknown key; did you mean 'result'?"),
        ("say.en = [\"What is", "say.de = [\"What is", "'de' is no language of the plan"),
        ("version = 1", "version = ", "not TOML"),
    ],
)  # fmt: skip
def test_a_fault_in_a_plan_is_one_line_with_its_key(old: str, new: str, line: str, tmp_path: Path) -> None:
    path = plan_file(tmp_path, PLAN.replace(old, new))
    with pytest.raises(RecipeError) as caught:
        load_plan(str(path))

    assert line in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_texts_that_are_nearly_the_same_are_found_and_others_are_not() -> None:
    long = "tell me all about the garden and the house and the long road that goes up to the old temple on the hill"
    seen = NearDuplicates()
    assert seen.add("a", long) is None
    assert seen.add("b", "something else that nobody has ever said before in here") is None
    assert seen.add("c", f"{long.upper()}!") == ("a", 1.0)
    like = seen.add("d", f"{long} today")
    assert like is not None and like[0] == "a" and like[1] == pytest.approx(21 / 22, abs=0.01)
    assert (
        seen.add("e", long.replace("garden", "river").replace("road", "wall").replace("temple", "bridge"))
        is None
    )
