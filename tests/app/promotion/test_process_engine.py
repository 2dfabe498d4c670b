"""An engine of the process driver takes over from llama.cpp, dies, is stood in for, and gives way again."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.config.config import Config, parse
from gates.contracts.numerics import Numerics
from tests.app.promotion.stage import MODELS, stage, statement, tables
from tests.app.promotion.stage import quick as quick
from tests.deploy.test_process import SERVER

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("quick")]


def settings(state: Path, **changes: Any) -> Config:
    """`small` is live, `spare` stands in, and `other` is a server of another environment."""
    found = tables(state, fallback=["spare"])
    kept = {name: table for name, table in found["engines"].items() if name in ("small", "spare")}
    other = {
        "dialect": "vllm", "driver": "process", "artefact": str(MODELS / "annie-nano-hf"), "gpu": "none",
        "command": [sys.executable, str(SERVER)], "args": ["--max-model-len", "4096"],
        "env": {"VLLM_CPU_KVCACHE_SPACE": "0", "PACE": "0.01", "VERSION": "1"},
    }  # fmt: skip
    return parse({**found, "engines": {**kept, "other": {**other, **changes}}}, state)


MARLIN, CUTLASS = "MarlinNvFp4LinearKernel", "FlashInferCutlassNvFp4LinearKernel"


@pytest.mark.slow  # engines are started as processes of their own: 7 s
async def test_a_report_of_weight_only_does_not_open_the_door_to_four_bit_inputs(tmp_path: Path) -> None:
    """The same folder, flags and build on another GPU: what the log names is known once it runs."""
    env = {"VLLM_CPU_KVCACHE_SPACE": "0", "VERSION": "1", "KERNEL": CUTLASS}
    config = settings(tmp_path, env=env)
    async with stage(tmp_path, config) as it:
        arm = statement(config, "other", "small").candidate
        hopper = replace(arm, numerics=Numerics(kernel=MARLIN, scheme="W4A16"))
        _, begun = await it.wish("other", await it.report("other", "small", candidate=hopper))
        ended = await it.ended(begun["id"])
        assert ended["error"]["code"] == "mismatch_numerics", ended
        assert "quantization scheme was W4A16 in the report and is W4A4 here" in ended["error"]["message"]
        assert (await it.house.ask()).headers["x-manners-engine"] == "small"
        spark = replace(arm, numerics=Numerics(kernel=CUTLASS, scheme="W4A4"))
        _, begun = await it.wish("other", await it.report("other", "small", candidate=spark))
        assert (await it.ended(begun["id"]))["phase"] == "succeeded"
