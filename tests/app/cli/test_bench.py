"""`manners bench`: real engines by turns."""

import asyncio
import json
from pathlib import Path

import pytest

from app.__main__ import main
from tests.app.api.nanos import MODELS

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUICK = ("--rounds", "1", "--length", "60")


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
async def test_two_engines_are_timed_every_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole reply has no decode rate and no early content."""
    monkeypatch.setattr("app.cli.bench.PROMPTS", 1)
    monkeypatch.setattr("app.cli.bench.PAUSE_S", (0.0, 0.0))
    engines = ("--engine", "annie-nano", "--engine", "annie-nano-bf16")
    args = ("--matrix", *engines, "--config", settings(tmp_path))
    assert await bench(*args, *QUICK, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    rows = {(r["engine"], r["thinking"], r["stream"]): r for r in told["rows"]}
    assert len(rows) == 8 and {name for name, *_ in rows} == {"annie-nano", "annie-nano-bf16"}
    for (_, thinking, stream), row in rows.items():
        assert (row["n"], row["failed"], row["length"]) == (2, 0, 60)
        assert 0 < row["ttft_median"] <= row["ttft_p95"]
        assert row["thought"] == (2 if thinking else 0)
        assert stream or row["decode_median"] is None

    assert await bench("--config", settings(tmp_path), *QUICK) == 0
    assert "annie-nano " in capsys.readouterr().out
