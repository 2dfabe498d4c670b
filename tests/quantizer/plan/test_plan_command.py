"""`manners quantize plan`, and the same check before a job."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from app.__main__ import main
from quantizer.plan import machine
from quantizer.plan.machine import GIB, GpuMemory, HostMemory, Machine
from tests.quantizer.plan import sparse

pytestmark = pytest.mark.torch

KEYS = ("parameters", "peak_device_bytes", "peak_host_bytes", "disk_bytes", "seconds", "fits")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    at = tmp_path_factory.mktemp("models")
    configs = {
        "9B": sparse.QWEN35_9B,
        "27B": sparse.QWEN35_27B,
        "0.47B": sparse.QWEN3_HALF,
        "Llama": sparse.LLAMA,
    }
    return {
        name: sparse.write(at / name, config, sparse.shapes(config, mtp=name == "27B"))
        for name, config in configs.items()
    }


def plan(source: Path, *more: str) -> int:
    return main(["quantize", "plan", "--source", str(source), *more])


def printed_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize(
    "name, more, code",
    [
        ("9B", ("--machine", "spark"), 0),
        ("27B", ("--machine", "spark"), 0),
        ("9B", ("--machine", "spark", "--recipe", "qat"), 1),
        ("9B", ("--machine", "spark", "--recipe", "qat", "--set", "train.optimizer=adamw_8bit",
                "--set", "train.recompute=true"), 0),
        ("27B", ("--machine", "h200", "--recipe", "qat", "--set", "train.recompute=true", "--processes", "8"), 0),
        ("Llama", ("--machine", "h100"), 0),
    ],
)  # fmt: skip
def test_the_exit_code_says_whether_it_fits(
    name: str, more: tuple[str, ...], code: int, models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(models[name], *more, "--json") == code
    made = printed_json(capsys)

    assert tuple(made)[: len(KEYS)] == KEYS
    assert made["fits"] is (code == 0)
    assert made["peak_device_bytes"] > 2 * GIB and made["disk_bytes"] > 0


@pytest.mark.parametrize(
    "more, words",
    [
        (("--machine", "spark", "--processes", "0"), "--processes 0: must be from 1 to 1024"),
        (("--machine", "abacus"), "--machine abacus: known are spark, h100, h200"),
        (("--recipe", "qatt"), "qatt: no such recipe; did you mean 'qat'"),
        (("--data", "/nowhere.jsonl"), "/nowhere.jsonl: cannot be read (No such file"),
    ],
)
def test_a_wrong_call_is_one_line(
    more: tuple[str, ...], words: str, models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 64 <= plan(models["9B"], *more) <= 78
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


# -------------------------------------------------------------------------------- the same check before a job


@pytest.fixture
def poor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark on which an engine runs."""
    host = HostMemory(121 * GIB, 14 * GIB, 12 * GIB)
    monkeypatch.setattr(
        machine,
        "read_machine",
        lambda read_host, out, device: Machine(GpuMemory("NVIDIA GB10"), host, 500 * GIB),
    )


@pytest.mark.usefixtures("poor")
@pytest.mark.parametrize("verb", ["ptq", "qat", "qad", "sft"])
def test_a_job_that_does_not_fit_is_refused_in_one_line(
    verb: str, models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("{}\n")
    given = [
        "--source",
        str(models["9B"]),
        "--data",
        str(data),
        "--out",
        str(tmp_path / "out"),
        "--device",
        "cpu",
    ]

    assert main(["quantize", verb, *given]) == 75
    error = capsys.readouterr().err

    assert error.startswith(f"manners quantize {verb}: needs ") and error.count("\n") == 1
    assert "GiB of memory, and 2.0 GiB can be taken" in error and "--force" in error
    assert main(["quantize", verb, *given, "--force"]) not in (0, 75)  # the data are no conversations
