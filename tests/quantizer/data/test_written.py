"""Plans that answer themselves, and the set that is made of one and shipped: the same bytes, fit, and split."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from quantizer.core.errors import RecipeError
from quantizer.data.conversation import file_digest
from quantizer.data.generate import is_held_out
from quantizer.data.plan import load_plan, written
from tests.quantizer.data.teachers import PLAN, plan_file

ROOT = Path(__file__).parents[3]
SET = ROOT / "quantizer" / "data" / "sets" / "voice"
FILES = ("conversations", "held_out")
KINDS = {
    "greeting", "factual", "memory", "web", "multi_turn",  # the field notes'
    "error_handling", "context_switch", "personality",  # that they asked for
    "everyday", "unavailable", "house",
}  # fmt: skip

ANSWERED = PLAN.replace(
    'answer = ["{land.capital}"]', 'answer = ["{land.capital}"]\nreply.en = ["It is {land.capital}."]'
)
ANSWERED = ANSWERED.replace(
    'answer = ["{day}"]', 'answer = ["{day}"]\nreply.en = ["{person} says the {topic} is on {day}."]'
).replace('query = ["{person}"] } }', 'query = ["{person}"] }, write = { query = "{person} {topic}" } }')


def shipped(name: str) -> list[dict[str, Any]]:
    with lzma.open(SET / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def first_turn(row: dict[str, Any]) -> str:
    return str(next(m["content"] for m in row["messages"] if m["role"] == "user"))


@pytest.mark.slow  # makes and checks all of it
def test_the_shipped_set_is_made_again_to_the_byte(tmp_path: Path) -> None:
    suites = ["--suite", "annie", "--suite", "annie-nano"]
    assert main(["data", "generate", "--plan", "voice", "--written", "--out", str(tmp_path), *suites]) == 0
    for name in FILES:
        packed = lzma.decompress((SET / f"{name}.jsonl.xz").read_bytes())
        assert (tmp_path / f"{name}.jsonl").read_bytes() == packed, "pack it again: docs/data.md says how"
    made, stated = (json.loads((folder / "manifest.json").read_text()) for folder in (tmp_path, SET))
    assert {**made, "clear_of": 0} == {**stated, "clear_of": 0}  # a suite may have changed, and the rows not


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_shipped_set_is_fit_and_clear_of_every_shipped_suite(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "validate", str(SET / f"{name}.jsonl.xz"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fit"] and report["with_thoughts"] == 0 and set(report["categories"]) == KINDS


def test_it_is_a_thousand_of_all_kinds_as_its_manifest_says() -> None:
    manifest = json.loads((SET / "manifest.json").read_text())
    rows, apart = (shipped(name) for name in FILES)
    assert len(rows) == manifest["conversations"] >= 1000
    assert dict(Counter(row["category"] for row in rows)) == manifest["categories"]
    assert set(manifest["categories"]) == KINDS and min(manifest["categories"].values()) >= 80
    assert len(apart) == manifest["held_out"]["conversations"] and manifest["plan"]["seed"]
    assert manifest["plan"]["digest"] == written(load_plan("voice")).digest
    for entry, name in ((manifest["file"], FILES[0]), (manifest["held_out"], FILES[1])):
        assert entry["digest"] == file_digest(SET / f"{name}.jsonl.xz")  # of what is packed
    assert sum(path.stat().st_size for path in SET.iterdir()) < 100_000


def test_the_documents_say_how_many_there_are() -> None:
    manifest = json.loads((SET / "manifest.json").read_text())
    rows, apart = manifest["conversations"], manifest["held_out"]["conversations"]
    told = (ROOT / "docs" / "data.md").read_text()
    assert f"has {rows:,} conversations of a voice" in told and f"has {apart} more for measuring" in told
    assert f"{manifest['with_calls']} rows have calls" in told


def test_no_first_turn_is_in_both_files() -> None:
    kept, apart = ({first_turn(row) for row in shipped(name)} for name in FILES)
    assert not kept & apart


def test_tools_that_fail_are_owned_up_to_and_others_work() -> None:
    """After an error the answer repeats nothing that the plan knows and the tool did not say."""
    rows = [row for name in FILES for row in shipped(name)]
    known = [matter["tell"][0] for matter in load_plan("voice").slots["matter"]]
    results = Counter(
        "error" in message["content"].lower() or "false" in message["content"]
        for row in rows
        for message in row["messages"]
        if message["role"] == "tool"
    )
    assert results[True] > 100 and results[False] > 500
    for row in (row for row in rows if row["category"] == "error_handling"):
        said = " ".join(m["content"] for m in row["messages"] if m["role"] == "assistant")
        assert not any(text in said for text in known), said


def test_a_plan_that_answers_itself_asks_nobody(tmp_path: Path) -> None:
    plan, out = plan_file(tmp_path, ANSWERED), tmp_path / "out"
    assert (
        main(["data", "generate", "--plan", str(plan), "--written", "--out", str(out), "--suite", "annie"])
        == 0
    )
    rows = [json.loads(line) for line in (out / "conversations.jsonl").read_text().splitlines()]
    assert Counter(row["category"] for row in rows) == {"factual": 3, "memory": 4}
    call = rows[-1]["messages"][2]["tool_calls"][0]["function"]
    assert call["name"] == "search_memory" and set(json.loads(call["arguments"])) == {"query"}
    assert not (out / "ledger.jsonl").exists() and "created" not in json.loads(
        (out / "manifest.json").read_text()
    )


def test_a_plan_without_answers_needs_a_teacher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_file(tmp_path)
    assert main(["data", "generate", "--plan", str(plan), "--written", "--out", str(tmp_path / "out")]) == 78
    assert "no scene of factual has a reply to every turn" in capsys.readouterr().err


def test_answers_are_no_part_of_a_plan_that_has_none(tmp_path: Path) -> None:
    """A ledger that was begun before plans could answer themselves is still this plan's."""
    assert load_plan(str(plan_file(tmp_path))).digest.startswith("sha256:ea01a8fd081b43e4")
    assert load_plan(str(plan_file(tmp_path, ANSWERED))).digest != load_plan(str(plan_file(tmp_path))).digest


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("reply.en", "reply.kn", "reply"),
        ("seed = 1", "seed = 1\nheld_out = 1.0", "held_out: must be from 0 to less than 1"),
        ('"It is {land.capital}."', '"It is {land.town}."', "{land.town}: the slot has no such field"),
        ("write = { query", "writes = { query", "writes: unknown key; did you mean 'write'?"),
    ],
)
def test_a_fault_in_the_answers_is_one_line(old: str, new: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load_plan(str(plan_file(tmp_path, ANSWERED.replace(old, new, 1))))
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_arguments_have_the_types_of_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timed = ANSWERED.replace('name = "search_memory", arguments = { query = ["{person}"] }, write = { query = "{person} {topic}" }',
                             'name = "set_timer", arguments = {}, write = { minutes = "MINUTES" }')  # fmt: skip
    plan = plan_file(tmp_path, timed.replace("MINUTES", "2.5"))
    command = ["data", "generate", "--written", "--suite", "annie", "--out", str(tmp_path / "out"), "--plan"]
    assert main([*command, str(plan)]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out" / "conversations.jsonl").read_text().splitlines()]
    assert json.loads(rows[-1]["messages"][2]["tool_calls"][0]["function"]["arguments"]) == {"minutes": 2.5}
    plan_file(tmp_path, timed.replace("MINUTES", "a few"))
    assert main([*command, str(plan)]) == 78
    assert "set_timer: write.minutes = 'a few' is no JSON" in capsys.readouterr().err


def test_a_share_is_held_out_by_the_first_turn() -> None:
    rows = [{"messages": [{"role": "user", "content": f"question {i}"}]} for i in range(2000)]
    assert 140 < sum(is_held_out(row, 0.1) for row in rows) < 260
    assert not any(is_held_out(row, 0.0) for row in rows)
    assert is_held_out(rows[0], 0.3) == is_held_out(
        {"messages": [*rows[0]["messages"], {"role": "user", "content": "x"}]}, 0.3
    )
