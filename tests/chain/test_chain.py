"""The chain's own parts: it goes on where it stopped, its checks can fail, its page is of its files, its settings load.

The chain itself runs by `make chain`: a vLLM and llama.cpp, for minutes.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: make quantizer")

from app.config.config import load
from gates.policy.load import load_policy
from tests.chain.__main__ import part, steps_of
from tests.chain.page import checks, section, write_page
from tests.chain.place import BAD, FOLDERS, SPARE, TRAINED, TUNED, ChainError, Place
from tests.chain.record import Record
from tests.chain.settings import ROOT, SETTINGS, Dose
from tests.scale import scaled

RUNS = ROOT / "docs" / "chain"
"""What ran, and what the page is made of."""


def run() -> dict[str, Any]:
    """One of them, whole."""
    found: dict[str, Any] = json.loads((RUNS / "cpu.json").read_text("utf-8"))
    return found


def test_a_step_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    done: list[str] = []

    def work(name: str) -> dict[str, Any]:
        done.append(name)
        return {"found": name}

    path = tmp_path / "chain.json"
    first = Record(path, lambda _: None)
    first.step("one", lambda: work("one"))
    with pytest.raises(ZeroDivisionError):
        first.step("two", lambda: {"found": 1 / 0})
    second = Record(path, lambda _: None)
    second.step("one", lambda: work("one"))
    assert second.step("two", lambda: work("two"))["found"] == "two"
    assert done == ["one", "two"]
    assert list(Record(path, lambda _: None).steps) == ["one", "two"]


def test_of_steps_that_run_together_one_that_fails_keeps_no_other_from_its_end(tmp_path: Path) -> None:
    other = Event()

    def fails() -> dict[str, Any]:
        other.wait(30)
        raise ChainError("one")

    def ends() -> dict[str, Any]:
        other.set()
        return {"found": 2}

    path = tmp_path / "chain.json"
    with pytest.raises(ChainError, match="one"):
        Record(path, lambda _: None).together({"one": fails, "two": ends}, 2)
    assert {name: step["found"] for name, step in Record(path).steps.items()} == {"two": 2}


def test_a_run_that_is_committed_came_out_as_it_should() -> None:
    for path in RUNS.glob("*.json"):
        found = json.loads(path.read_text("utf-8"))
        if "live" not in found["steps"]:  # the page says why it went no further
            assert found["note"]
            continue
        assert [words for words, true in checks(found) if not true] == [], path


def spoiled(change: Callable[[Any], None]) -> list[str]:
    """What a run shows to be wrong after a change."""
    found = copy.deepcopy(run())
    change(found["steps"])
    return [words for words, true in checks(found) if not true]


@pytest.mark.parametrize(
    "change",
    [
        lambda steps: steps["gate: PTQ"].update(verdict="pass"),
        lambda steps: steps["gate: QAT on vLLM"].update(verdict="inconclusive"),
        lambda steps: steps["live"]["refused"].update(code="mismatch_engine"),
        lambda steps: steps["live"]["promoted"].update(phase="failed"),
        lambda steps: steps["live"]["rolled back"].update(phase="succeeded"),
        lambda steps: steps["live"]["rolled back"].update(live="bad"),
        lambda steps: steps["live"]["killed"].update({"answered by the fallback": 0}),
        lambda steps: steps["live"]["streams"][-1].update(lost=1),
        lambda steps: steps["live"]["streams"][-1].update(truncated=99),
        lambda steps: steps["live"]["audit"].update({"chain holds": False}),
    ],
)
def test_each_thing_that_must_be_so_can_fail(change: Callable[[Any], None]) -> None:
    assert len(spoiled(change)) == 1


def test_the_page_is_of_its_files(tmp_path: Path) -> None:
    write_page(RUNS, tmp_path / "chain.md")
    assert (tmp_path / "chain.md").read_text("utf-8") == (ROOT / "docs" / "chain.md").read_text("utf-8")


def test_a_run_that_is_not_over_makes_a_page() -> None:
    found = run()
    names = list(found["steps"])
    for count in range(len(names)):
        part = {**found, "steps": {name: found["steps"][name] for name in names[:count]}}
        assert all(isinstance(words, str) for words, _ in checks(part))
        assert section(part, "cpu.json")


def configured(base: Path, name: str) -> Place:
    """A place with a configuration, as if its models had been made."""
    place = Place(base, SETTINGS[name])
    for engine in (TUNED, SPARE, BAD, TRAINED):
        folder = place.models / FOLDERS[engine]
        folder.mkdir()
        (folder / "artefact.json").write_text("{}", "utf-8")
    (place.models / FOLDERS[TRAINED] / "config.json").write_text("{}", "utf-8")
    place.configure()
    return place


def test_gates_that_run_beside_one_another_have_a_state_each_and_one_key(tmp_path: Path) -> None:
    place = configured(tmp_path, "cuda")
    paths = (place.config, place.own_config("first"), place.own_config("second"))
    states = [load(path).state_dir for path in paths]
    assert len(set(states)) == 3
    assert len({(state / "keys" / "report.pub").read_bytes() for state in states}) == 1


@pytest.mark.parametrize("name", SETTINGS)
def test_its_configuration_is_one(tmp_path: Path, name: str) -> None:
    place = configured(tmp_path, name)
    config = load(place.config)
    assert config.engines[TRAINED].driver == "process" and config.engines[SPARE].driver == "embedded"
    assert config.engines[TRAINED].gpu == ("all" if SETTINGS[name].cuda else "none")
    assert config.models["annie"].fallback == (SPARE,)
    assert load_policy(config.gates.policy).run.system == ""
    assert "NEVER" in load_policy(str(place.hardened())).run.system


CHAIN = ["gate: PTQ", "gate: QAT on vLLM"]


@pytest.mark.parametrize(
    ("setting", "only", "gates", "doses"),
    [
        ("cpu", None, scaled(2, 5), scaled(0, 1)),
        ("cpu", "all", 5, 1),
        ("cpu", "chain", 2, 0),
        ("cpu", "live", 5, 0),
        ("cpu", "models", 0, 0),
        ("cuda", None, 5, 2),
    ],
)
def test_what_only_the_questions_need_is_left_out_on_a_cpu_and_never_on_a_gpu(
    tmp_path: Path, setting: str, only: str | None, gates: int, doses: int
) -> None:
    place = configured(tmp_path, setting)
    steps = list(steps_of(place, part(only, place.setting)))
    assert len([name for name in steps if name.startswith("gate: ")]) == gates
    assert len([name for name in steps if name.startswith("no-think dose, ")]) == doses
    assert not gates or set(CHAIN) <= set(steps)


def test_a_dose_is_the_flags_of_a_training() -> None:
    assert Dose(3, 512, 1e-5).flags[:2] == ("--set", "train.max_steps=3")
