"""Host memory does not grow with the model: nothing is ever there as a whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")
pytest.importorskip("gguf", reason="needs the quantizer extra: pip install -e '.[quantizer]'")
pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")

ROOT = Path(__file__).parents[2]
ALLOWED = 96 * 2**20
"""What a step may take more for a model that is 260 MiB larger. Its largest matrix alone is 128 MiB, in float32 256."""
CHILD = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path

import torch

from tests.gpu import random_folder
from tests.gpu.random_folder import write_random
from quantizer.nano import conversations
from quantizer.gguf.make import GgufJob, make_gguf
from quantizer.ptq.parity import served_model
from quantizer.ptq.quantize import run
from quantizer.recipes.recipe import load_recipe
from quantizer.surgery.plan import apply_plan, make_plan
from quantizer.surgery.operation import parse_server
from quantizer.verify import folder
from quantizer.verify.check import verify

folder.PART_BYTES, random_folder.NUMBERS = 2**22, 2**20
NOW, place = datetime.now(UTC), Path(sys.argv[1])
SHAPE = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 128, "linear_num_key_heads": 4, "linear_num_value_heads": 8}
data = conversations.write(place / "rows.jsonl", 1)


def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def step(work):
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    work()
    return memory("VmHWM") - before


def steps(vocabulary, layers):
    at = place / f"{vocabulary}"
    bf16, nvfp4, wrapped, gguf = (at / one for one in ("bf16", "nvfp4", "wrapped", "gguf"))
    make = lambda: write_random(bf16, {**SHAPE, "vocab_size": vocabulary, "num_hidden_layers": layers},
                                shard_bytes=2**25)
    ptq = lambda: run(load_recipe("default", ["calibrate.conversations=1"]), bf16, data, nvfp4, now=NOW, device="cpu")
    surgery = lambda: apply_plan(make_plan(nvfp4, parse_server("vllm-0.24")), wrapped, NOW)
    return {"make": step(make), "ptq": step(ptq), "verify": step(lambda: verify(nvfp4, bf16)),
            "surgery": step(surgery), "gguf": step(lambda: make_gguf(GgufJob(bf16, gguf, "q4_k_m"), NOW))}


steps(4096, 4)
print(json.dumps([steps(16384, 4), steps(131072, 12)]))
"""


def above(folder: Path) -> dict[str, str]:
    """The steps that take too much more for the larger model, and what they took for each."""
    folder.mkdir()
    (folder / "child.py").write_text(CHILD)
    alone = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, folder / "child.py", folder], env=alone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    small, large = json.loads(done.stdout.splitlines()[-1])
    told = {name: f"{small[name] >> 20} and {large[name] >> 20} MiB" for name in small}
    print(told)
    return {name: said for name, said in told.items() if large[name] - small[name] >= ALLOWED}


@pytest.mark.nightly  # test_no_process_holds_the_whole_model_while_it_loads measures a load, tests/quantizer/plan what is planned
@pytest.mark.slow  # three models are made and taken through everything
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux, to measure a peak")
def test_no_step_takes_more_for_a_larger_model(tmp_path: Path) -> None:
    once = above(tmp_path / "once")
    again = above(tmp_path / "again") if once else {}
    assert not once.keys() & again.keys(), (once, again)
