"""The ledger: what is on file stays, a torn end is cut off, and nothing else that is wrong passes."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gates.contracts.errors import RunError, SamplesError
from gates.contracts.sample import Sample, render
from gates.run.sample_store import SampleStore, read_samples
from tests.gates.run.parts import ARTEFACT, ENGINE, OTHER, SUITE, sample

THREE = [
    sample("one"),
    sample("two", b"data: \xff\xf0 caf\xc3\xa9\r\n"),
    replace(sample("three"), heard="data: [DONE]\n\n"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with three samples."""
    file = tmp_path / "samples.jsonl"
    with SampleStore(file, suite=SUITE) as ledger:
        ledger.append(THREE[:1])
        ledger.append(THREE[1:])
    return file


def lines(path: Path) -> list[str]:
    return path.read_text("ascii").splitlines(keepends=True)


@pytest.mark.parametrize("kept", [0, 1, 10, 400])
def test_a_torn_last_line_is_cut_off(path: Path, kept: int) -> None:
    path.write_text("".join(lines(path)[:2]) + lines(path)[2][:kept], "ascii")
    with SampleStore(path, suite=SUITE) as ledger:
        assert len(ledger) == 2
        ledger.append([THREE[2]])

    assert list(read_samples(path)) == THREE


DAMAGE: dict[str, tuple[Callable[[list[str]], str], str]] = {
    "torn-in-the-middle": (lambda rows: rows[0] + rows[1][:99] + "\n" + rows[2], ":2: not a whole sample"),
    "zeroes-in-the-middle": (lambda rows: rows[0] + "\0" * 64 + "\n" + rows[1], ":2: not a whole sample"),
    "a-key-edited": (lambda rows: rows[0].replace('"repeat":0', '"repeat":1') + rows[1], ":1: the id does not"),
    "a-request-edited": (lambda rows: rows[0].replace('"temperature":0.0', '"temperature":0.9'), ":1: the request"),
    "a-field-lost": (lambda rows: rows[0].replace('"ended_ns":9,', ""), ":1: not a whole sample"),
    "bytes-of-another-encoding": (lambda rows: rows[0].replace("annie", "ännie"), ":1: not a whole sample"),
    "another-schema": (lambda rows: rows[0].replace("sample/v1", "sample/v9"), ":1: schema"),
    "twice": (lambda rows: rows[0] + rows[1] + rows[0], ":3: candidate/one (stream, repeat 0) is there a second"),
    "another-suite": (lambda rows: rows[0] + render(sample(suite=OTHER)), f":2: a sample of the suite {OTHER}"),
}  # fmt: skip


@pytest.mark.parametrize("spoil, told", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_refused_with_its_line_and_left_as_it_is(
    path: Path, spoil: Callable[[list[str]], str], told: str
) -> None:
    path.write_bytes(spoiled := spoil(lines(path)).encode())

    for read in (lambda: SampleStore(path, suite=SUITE), lambda: list(read_samples(path, suite=SUITE))):
        with pytest.raises(SamplesError) as caught:
            read()
        assert f"{path}{told}" in str(caught.value) and "\n" not in str(caught.value)
    assert path.read_bytes() == spoiled


@pytest.mark.parametrize("what", ["artefact", "engine"])
def test_an_arm_is_one_artefact_on_one_engine(path: Path, what: str) -> None:
    mine = {"artefact": ARTEFACT, "engine": ENGINE} | {what: OTHER}
    known = {"candidate": (mine["artefact"], mine["engine"])}

    with pytest.raises(SamplesError, match=f":1: candidate was another {what}"):
        SampleStore(path, suite=SUITE, arms=known)
    SampleStore(path, suite=SUITE, arms={"baseline": (OTHER, OTHER)}).close()


@pytest.mark.parametrize("odd", [sample("one"), sample(suite=OTHER), sample(request=OTHER)])
def test_a_sample_that_may_not_stand_there_is_not_written(path: Path, odd: Sample) -> None:
    before = path.read_bytes()
    with SampleStore(path, suite=SUITE) as ledger, pytest.raises(SamplesError):
        ledger.append([sample("four"), odd])

    assert path.read_bytes() == before


def test_two_runs_cannot_write_one_file(path: Path) -> None:
    code = f"from gates.run.sample_store import SampleStore; from pathlib import Path; SampleStore(Path({str(path)!r}), suite='x')"
    with SampleStore(path, suite=SUITE):
        with pytest.raises(SamplesError, match="another run is writing it"):
            SampleStore(path, suite=SUITE)
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "another run is writing it" in other.stderr
    SampleStore(path, suite=SUITE).close()


@pytest.mark.parametrize("refused", ["write", "fsync"])
def test_a_full_disk_ends_the_run_and_leaves_whole_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    real, before = os.write, path.read_bytes()

    def full(file: int, data: bytes = b"") -> int:
        if data and os.fstat(file).st_size == len(before):
            return real(file, data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    with SampleStore(path, suite=SUITE) as ledger:
        monkeypatch.setattr(os, refused, full)
        with pytest.raises(RunError, match="No space left on device.*the 3 samples before are safe"):
            ledger.append([sample("four")])
        monkeypatch.undo()
        assert path.read_bytes() == before
        ledger.append([sample("four")])
    assert len(list(read_samples(path))) == 4
