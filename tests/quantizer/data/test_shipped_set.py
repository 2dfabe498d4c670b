"""The shipped set of conversations: fit, split, and as its manifest says."""

import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from quantizer.data.conversation import file_digest

ROOT = Path(__file__).parents[3]
SET = ROOT / "quantizer" / "data" / "sets" / "voice"
FILES = ("conversations", "held_out")
KINDS = {
    "greeting", "factual", "memory", "web", "multi_turn",  # the field notes'
    "error_handling", "context_switch", "personality",  # that they asked for
    "everyday", "unavailable", "house",
}  # fmt: skip


def shipped(name: str) -> list[dict[str, Any]]:
    with lzma.open(SET / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_shipped_set_is_fit_and_clear_of_every_shipped_suite(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "validate", str(SET / f"{name}.jsonl.xz"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fit"] and report["with_thoughts"] == 0


def test_it_is_a_thousand_of_all_kinds_as_its_manifest_says() -> None:
    manifest = json.loads((SET / "manifest.json").read_text())
    rows, apart = (shipped(name) for name in FILES)
    assert len(rows) == manifest["conversations"] >= 1000
    assert dict(Counter(row["category"] for row in rows)) == manifest["categories"]
    assert set(manifest["categories"]) == KINDS and min(manifest["categories"].values()) >= 80
    assert len(apart) == manifest["held_out"]["conversations"]
    for entry, name in ((manifest["file"], FILES[0]), (manifest["held_out"], FILES[1])):
        assert entry["digest"] == file_digest(SET / f"{name}.jsonl.xz")  # of what is packed
    assert sum(path.stat().st_size for path in SET.iterdir()) < 100_000
