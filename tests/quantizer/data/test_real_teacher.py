"""Conversations from a real teacher: annie-nano behind llama.cpp's server, and training that reads what she said."""

import json
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")

from app.__main__ import main
from tests.llama_server import serving
from tests.quantizer.data.teachers import plan_file

MODELS = Path(__file__).parents[3] / "models"
TEACHER = MODELS / "annie-nano-q4_k_m" / "annie-nano-q4_k_m.gguf"


@pytest.mark.slow  # a real engine writes the conversations
@pytest.mark.engine
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_a_real_engine_gives_conversations_that_training_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")
    out, plan = tmp_path / "out", str(plan_file(tmp_path))
    counts = ["--count", "factual=2", "--count", "memory=2", "--tries", "10", "--concurrency", "2"]
    with serving(TEACHER, slots=2, context=2048) as base:
        fixed = [
            "--url",
            base,
            "--dialect",
            "llama-server",
            "--plan",
            plan,
            "--out",
            str(out),
            "--suite",
            "annie",
        ]
        assert main(["data", "generate", *fixed, *counts, "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)

    assert manifest["categories"] == {"factual": 2, "memory": 2} and manifest["with_calls"] == 2
    rows = [json.loads(line) for line in (out / "conversations.jsonl").read_text().splitlines()]
    called = rows[-1]["messages"][-3]["tool_calls"][0]["function"]
    assert called["name"] == "search_memory" and json.loads(called["arguments"])["query"]

    source = ["--source", str(MODELS / "annie-nano-hf"), "--suite", "annie", "--json"]
    assert main(["data", "validate", str(out / "conversations.jsonl"), *source]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fit"] and report["tokens"]["learned"] >= 4 * 5
