"""`manners bench --matrix FILE` over real engines: what starts is checked and timed, what does not is a line that says why."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from app.bench.load import body
from app.bench.memory import group_pss
from app.bench.variants import MatrixRun, _cause
from deploy.profiles.variants import MatrixTable, load_matrix
from gates.decode import decoder
from tests.app.api.nanos import MODELS

DIES = "raise ModuleNotFoundError(\"No module named 'flashinfer'\")"
HEAD = f"""
title = "T"
about = "A."
prompt = 8
reply = 4
loads = [{{ streams = 1, requests = 2 }}, {{ streams = 4, requests = 4 }}]
[servers.llama]
driver = "embedded"
artefact = "{MODELS / "annie-nano-q4_k_m"}"
weights = "random"
[servers.dies]
driver = "process"
command = ["{sys.executable}", "-c", "{DIES.replace('"', chr(92) + '"')}"]
artefact = "{MODELS / "annie-nano-hf"}"
gpu = "none"
[servers.sleeps]
driver = "process"
command = ["{sys.executable}", "-c", "import time; time.sleep(600)"]
artefact = "{MODELS / "annie-nano-hf"}"
gpu = "none"
"""


def variant(name: str, profile: str, server: str) -> str:
    return f'[[variants]]\nname = "{name}"\nprofile = "{profile}"\nserver = "{server}"\n'


def matrix_run(folder: Path, *variants: str, budget_s: float | None = None) -> MatrixRun:
    file = folder / "m.toml"
    file.write_text(HEAD + "".join(variants), "utf-8")
    return MatrixRun(matrix=load_matrix(file), out=folder / "out", state=folder / "state", budget_s=budget_s)


def read(folder: Path) -> dict[str, Any]:
    told = json.loads((folder / "out" / "matrix.json").read_text("utf-8"))
    return {one["variant"]: one for one in told["variants"]}


@pytest.mark.slow  # starts two engines, and sends one a load
@pytest.mark.engine
@pytest.mark.asyncio
async def test_what_dies_is_a_line_and_what_comes_after_it_is_measured(tmp_path: Path) -> None:
    run = matrix_run(
        tmp_path, variant("dies", "vllm-bf16-9b", "dies"), variant("works", "nano-embedded", "llama")
    )
    await run.run()
    found = read(tmp_path)
    assert found["dies"]["why"] == "ModuleNotFoundError: No module named 'flashinfer'"
    assert found["dies"]["start_s"] is None and found["dies"]["log"]
    works = found["works"]
    assert works["why"] == "" and works["start_s"] > 0 and works["build"].startswith("llama.cpp")
    assert works["checks"] and set(works["checks"].values()) == {""}
    assert [(one["streams"], one["requests"], one["failed"]) for one in works["loads"]] == [
        (1, 2, 0),
        (4, 4, 0),
    ]
    assert all(0 < one["ttft_p50"] <= one["ttft_p99"] and one["tokens_per_s"] > 0 for one in works["loads"])
    assert run.broken == 1
    table = (tmp_path / "out" / "matrix.md").read_text("utf-8")
    assert "| works | nano-embedded |" in table and "* dies: ModuleNotFoundError" in table


@pytest.mark.asyncio
async def test_a_spent_budget_leaves_what_was_not_reached_with_its_reason(tmp_path: Path) -> None:
    run = matrix_run(
        tmp_path,
        variant("a", "nano-embedded", "llama"),
        variant("b", "nano-embedded", "llama"),
        budget_s=1e-9,
    )
    await run.run()
    assert {one["why"] for one in read(tmp_path).values()} == {"not reached: the budget of 1e-09 s was spent"}
    assert run.broken == 2 and not (tmp_path / "state").exists()


@pytest.mark.asyncio
async def test_a_budget_that_ends_a_start_makes_no_run_of_its_profile(tmp_path: Path) -> None:
    run = matrix_run(tmp_path, variant("slow", "vllm-bf16-9b", "sleeps"), budget_s=1.5)
    await run.run()
    slow = read(tmp_path)["slow"]
    assert slow["why"] == "not started: the budget of 1.5 s was spent" and slow["at"] is None


def test_every_variant_is_written_before_the_first_starts(tmp_path: Path) -> None:
    run = matrix_run(tmp_path, variant("a", "nano-embedded", "llama"))
    run.write()
    assert read(tmp_path)["a"]["why"] == "not reached"


LOGS = {
    "a warning that names an error": ("WARNING 11-24 18:38:09 [x.py:1] may cause errors like `OSError: [Errno 24] Too many`\n", ""),
    "a traceback": ("Traceback (most recent call last):\n  File \"a\"\nValueError: no such flag\n", "ValueError: no such flag"),
    "the first of two": ("ImportError: cause\nRuntimeError: Engine core initialization failed.\n", "ImportError: cause"),
    "vLLM's own form": ("(EngineCore pid=7) ERROR 11-24 18:38:09 [core.py:1] RuntimeError: out of memory\n", "RuntimeError: out of memory"),
    "of two lines": ("pydantic.ValidationError: 1 validation error\n  Value error, so it is\n  more\n", "pydantic.ValidationError: 1 validation error Value error, so it is"),
    "nothing": ("all is well\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_the_cause_is_the_first_error_that_ended_a_traceback(name: str, tmp_path: Path) -> None:
    text, cause = LOGS[name]
    (tmp_path / "log").write_text(text, "utf-8")
    assert _cause(tmp_path / "log") == cause


def test_prompts_are_new_each_time_and_the_same_in_every_run() -> None:
    table = decoder.read(
        MatrixTable,
        {
            "title": "t", "about": "a", "prompt": 32, "vocabulary": 100,
            "loads": [{"streams": 1, "requests": 1}],
            "servers": {"s": {"driver": "embedded", "artefact": "x"}},
            "variants": [{"name": "a", "profile": "nano-embedded", "server": "s"}],
        },
    )  # fmt: skip
    prompts = [body(table, "m", number)["prompt"] for number in (1, 2, 1)]
    assert prompts[0] == prompts[2] != prompts[1]
    assert len(prompts[0]) == 32 and max(prompts[0]) < 100


def test_the_memory_of_a_process_group_is_seen() -> None:
    assert group_pss(os.getpgrp()) > 1 << 20
