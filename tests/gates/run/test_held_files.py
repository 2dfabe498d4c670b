"""No report is signed about files that were exchanged while a gate ran."""

import asyncio
import os
import shutil
import time
from dataclasses import replace
from os import EX_UNAVAILABLE
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from app.cli import gate, gate_engines
from gates.artefact import artefact
from gates.contracts.errors import RunError
from gates.run.job import HELD, GateJob, ServedModel, check_held
from tests.gates.test_job import JOB

MANIFEST = Path(__file__).parents[3] / "models" / "annie-nano-q4_k_m" / "artefact.json"


@pytest.fixture
def model(tmp_path: Path) -> ServedModel:
    folder = tmp_path / "shelf" / "annie"
    folder.mkdir(parents=True)
    shutil.copy(MANIFEST, folder)
    (folder / "weights").write_bytes(b"good")
    time.sleep(0.02)  # the kernel's clock ticks
    return replace(JOB.candidate, files=artefact.snapshot(folder))


def folder_of(model: ServedModel) -> Path:
    return Path(model.files[0][0])


def rewrite(folder: Path) -> None:
    """Evil for the load, good again afterwards, with the times that it had."""
    path = folder / "weights"
    times = path.stat()
    for data in (b"evil", b"good"):
        path.write_bytes(data)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("text", ["{", "[]", "5"])
def test_a_record_that_is_none_is_an_error_that_says_what_to_do(
    tmp_path: Path, model: ServedModel, text: str
) -> None:
    (tmp_path / HELD).write_text(text)
    with pytest.raises(RunError, match="--out DIR"):
        check_held(tmp_path, [model])


async def test_nothing_is_signed_after_an_exchange(
    tmp_path: Path, model: ServedModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = replace(JOB, candidate=model)

    async def make(*_: Any, **__: Any) -> GateJob:
        return replace(job, candidate=replace(model, files=artefact.snapshot(folder_of(model))))

    async def ask(*_: Any, **__: Any) -> None:
        rewrite(folder_of(model))

    monkeypatch.setattr(gate_engines, "make_job", make)
    monkeypatch.setattr(gate, "run_job", ask)
    (tmp_path / "c.toml").write_text(
        f'[gateway]\nstate = "{tmp_path / "state"}"\n[engines.a]\ndialect = "vllm"\ndriver = "url"\n'
        'url = "http://127.0.0.1:1"\n[models.annie]\nlive = "a"\n'
    )
    words = ["gate", "run", "--candidate", "a", "--baseline", "a", "--out", str(tmp_path / "out")]
    for _ in ("while it is judged", "since a run that is continued"):
        assert await asyncio.to_thread(main, [*words, "--config", str(tmp_path / "c.toml")]) == EX_UNAVAILABLE
        assert "since this run began" in capsys.readouterr().err
    assert not (tmp_path / "out" / "report.json").exists()
