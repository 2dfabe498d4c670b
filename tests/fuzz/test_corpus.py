"""Every input of the corpus through its target once: what a fuzzer found stays found, without a fuzzer."""

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path(__file__).parent / "found"
"""What was wrong once, by name; the corpus is only what reaches all of the code."""
MOST_BYTES = 2 << 20


def wrong(name: str, folder: Path) -> list[str]:
    """The inputs in a folder that a target does not answer rightly, and why."""
    faults = []
    for path in sorted(folder.glob(f"{name}/*")):
        try:
            TARGETS[name].run(path.read_bytes())
        except Exception as error:
            faults.append(f"{name}/{path.name}: {type(error).__name__}: {error}")
    return faults


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_of_a_target_is_answered_rightly(name: str) -> None:
    assert any((CORPUS / name).iterdir()), "a target without a corpus has never been fuzzed"
    assert not wrong(name, CORPUS)


@pytest.mark.parametrize("name", sorted(path.name for path in FOUND.iterdir()))
def test_what_was_found_once_is_answered_rightly(name: str) -> None:
    assert not wrong(name, FOUND)


def test_the_corpus_is_small_and_belongs_to_targets_that_there_are() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    assert {path.parent.name for path in files} == {*TARGETS, "safetensors"}
