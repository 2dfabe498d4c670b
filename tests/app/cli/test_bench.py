"""`manners bench`: real engines by turns, and refusals in one line."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from deploy.drivers.url import UrlEngine
from tests.app.api.nanos import MODELS

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUICK = ("--rounds", "1", "--prompts", "1", "--length", "60", "--pause", "0", "--max-tokens", "24")


async def bench(*args: str) -> int:
    """The command, which has an event loop of its own."""
    return await asyncio.to_thread(main, ["bench", *args])


def settings(folder: Path) -> str:
    """The embedded default, with its state in the test's folder."""
    text = (Path(__file__).parents[3] / "deploy" / "embedded.toml").read_text("utf-8")
    path = folder / "manners.toml"
    path.write_text(
        f'[gateway]\nstate = "{folder}/state"\n' + text.replace("../models", str(MODELS)), "utf-8"
    )
    return str(path)


@pytest.mark.slow  # times two real engines in every way
@pytest.mark.engine
async def test_two_engines_are_timed_every_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of the configuration, one from a profile; a whole reply has no decode rate and no early content."""
    other = f"nano-embedded={MODELS / 'annie-nano-f16'}"
    args = ("--matrix", "--engine", "annie-nano", "--profile", other, "--config", settings(tmp_path))
    assert await bench(*args, *QUICK, "--out", str(tmp_path / "out"), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    rows = {(r["engine"], r["thinking"], r["stream"]): r for r in told["rows"]}
    assert len(rows) == 8 and {name for name, *_ in rows} == {"annie-nano", "nano-embedded"}
    for (_, thinking, _), row in rows.items():
        assert (row["n"], row["failed"], row["length"]) == (2, 0, 60)
        assert 0 < row["ttft_median"] <= row["ttft_p95"]
        assert row["thought"] == (2 if thinking else 0)
    assert all(rows[name, t, False]["decode_median"] is None for name, t, stream in rows if not stream)
    lines = (tmp_path / "out" / "samples.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 16  # warm-ups are not there

    assert await bench(*args, *QUICK, "--out", str(tmp_path / "out")) == 0  # asks nothing, tells the same
    shown = capsys.readouterr().out
    assert "nano-embedded" in shown and "on, 2 thought" in shown and "that is no TTFT" in shown
    assert len((tmp_path / "out" / "samples.jsonl").read_text("utf-8").splitlines()) == 16


@pytest.mark.slow  # starts two real engines three times each, one after the other
@pytest.mark.engine
async def test_engines_that_do_not_fit_together_take_turns_by_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = (
        "--apart",
        "--engine",
        "annie-nano",
        "--engine",
        "annie-nano-bf16",
        "--config",
        settings(tmp_path),
    )
    assert await bench(*args, *QUICK, "--rounds", "4", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(r["engine"], r["n"], r["failed"]) for r in rows] == [
        ("annie-nano", 4, 0),
        ("annie-nano-bf16", 4, 0),
    ]


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "an engine that is not there": (["--engine", "nobody"], 64, "there is no engine 'nobody'"),
    "a profile without a place": (["--profile", "nano-embedded"], 64, "write NAME=WHERE"),
    "a profile that is not there": (["--profile", "nano-embeded=x"], 78, "no such profile; did you mean 'nano-embedded'?"),
    "an image that is not pinned": (["--profile", "vllm-nvfp4-9b=x"], 78, "is not pinned"),
    "one at a time, for one round": (["--apart", "--rounds", "1"], 64, "needs --rounds 4 at least"),
    "a suite that is not there": (["--suite", "nobody"], 78, "nobody: no such suite"),
    "weights that are not there": (["--profile", "nano-embedded=/nowhere"], 78, "/nowhere does not exist"),
    "a budget without a file": (["--budget", "9"], 64, "--budget is for --matrix FILE"),
    "a file of variants that is not there": (["--matrix", "gpu-9"], 78, "no such file of variants; did you mean 'gpu-9b'?"),
    "a variant that is not there": (["--matrix", "cpu", "--engine", "xml"], 78, "there is no 'xml'"),
    "a profile beside a file of variants": (["--matrix", "cpu", "--profile", "nano-embedded=x"], 64, "the file names its profiles"),
    "the same twice": (["--engine", "annie-nano", "--profile", "nano-embedded=a", "--profile", "nano-embedded=b"], 64, "two engines are named"),
    "nobody at the address": (["--profile", "sglang-nvfp4-9b=http://127.0.0.1:9"], 69, "sglang-nvfp4-9b"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_timed_is_one_line_and_its_code(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    defaults = UrlEngine.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "start_timeout_s", 0.2)
    args, code, why = REFUSED[name]
    assert await bench(*args, "--config", settings(tmp_path)) == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("manners bench: ") and why in err, err


@pytest.mark.parametrize("args", [["--length", "short"], ["--rounds", "0"], ["--regime", "warm"]])
async def test_a_wrong_flag_is_one_line_and_code_64(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> Any:
    with pytest.raises(SystemExit) as caught:
        await bench(*args)
    assert caught.value.code == 64
    assert capsys.readouterr().err.count("\n") == 1
