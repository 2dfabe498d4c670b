"""Around a gate job: flags, the wall, and what an engine is called in a report."""

import argparse
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from app.__main__ import _parser
from app.cli import gate_engines
from app.cli.gate_engines import make_job, special_tokens
from app.config.config import load
from gates.artefact import artefact
from gates.contracts.case import drawn
from gates.contracts.errors import ManifestError, SuiteError
from gates.contracts.numerics import Numerics
from gates.suite.load import load_suite
from tests.gates.test_job import JOB

MODELS = Path(__file__).parents[3] / "models"
ANNIE = MODELS / "annie-nano-q4_k_m"


def flags(candidate: str, baseline: str, *more: str) -> argparse.Namespace:
    """Of a gate run over the nano models' suite, by default with its policy."""
    words = f"gate run --suite annie-nano --policy annie-nano --candidate {candidate} --baseline {baseline}"
    return _parser().parse_args([*words.split(), *more])


def conversation(said: str) -> str:
    return json.dumps(
        {"messages": [{"role": "user", "content": said}, {"role": "assistant", "content": "Yes."}]}
    )


def test_data_is_named_by_its_digest_and_refused_if_it_holds_a_prompt_of_the_suite(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(conversation("Something else entirely, about boats."))
    (pinned,) = gate_engines.check_contamination(JOB, [path])
    assert (pinned.name, pinned.digest) == ("train.jsonl", f"sha256:{artefact.hash_file(path)[1]}")
    path.write_text(conversation(JOB.suite.cases[0].messages[-1]["content"]))
    with pytest.raises(SuiteError, match=r"train\.jsonl: 1 prompts"):
        gate_engines.check_contamination(JOB, [path])


def test_special_tokens_come_from_the_tokenizer(tmp_path: Path) -> None:
    assert "<tool_call>" in special_tokens(MODELS / "annie-nano-hf")
    assert special_tokens(ANNIE) == frozenset()
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ManifestError, match="not a tokenizer"):
        special_tokens(tmp_path)


@pytest.mark.slow
async def test_a_short_policy_asks_what_it_draws_of_the_whole_suite(tmp_path: Path) -> None:
    """The suite stays the one in force, so that the policy alone tells the report from a whole one's."""
    (tmp_path / "c.toml").write_text(
        f'[gateway]\nstate = "{tmp_path}/state"\n[engines.a]\ndialect = "llama-server"\ndriver = "embedded"\n'
        f'artefact = "{ANNIE}"\n[models.annie]\nlive = "a"\n'
    )
    async with AsyncExitStack() as stack:
        asked = flags("a", "a", "--policy", "annie-nano-short", "--any-baseline")
        job = await make_job(load(tmp_path / "c.toml"), asked, stack)
        whole = load_suite("annie-nano")

    assert job.suite == drawn(whole, job.policy.draw) != whole
    assert job.suite.digest == whole.digest
    assert job.candidate.numerics == Numerics(kv_cache="K f16, V f16")


async def test_a_folder_that_was_changed_is_not_judged(tmp_path: Path) -> None:
    copy = tmp_path / "annie"
    copy.mkdir()
    for path in ANNIE.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    with (copy / "annie-nano-q4_k_m.gguf").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x00")
    (tmp_path / "c.toml").write_text(
        f'[engines.a]\ndialect = "llama-server"\ndriver = "embedded"\nartefact = "{copy}"\n[models.annie]\nlive = "a"\n'
    )
    async with AsyncExitStack() as stack:
        with pytest.raises(ManifestError, match="changed"):
            await make_job(load(tmp_path / "c.toml"), flags("a", "a"), stack)


@pytest.mark.parametrize(
    ("candidate", "baseline", "told"),
    [
        ("stranger-nano", "annie-nano-bf16", "baseline_lineage: .*--any-baseline"),
        ("annie-nano", "annie-nano", "both annie-nano, which proves nothing"),
        ("annie-nano-nvfp4", "annie-nano", "the configuration's baseline is annie-nano-bf16"),
    ],
)
async def test_a_comparison_that_no_promotion_accepts_is_refused_before_an_engine_starts(
    candidate: str, baseline: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_engines, "started", lambda *_, **__: pytest.fail("an engine was started"))
    asked = flags(candidate, baseline)
    async with AsyncExitStack() as stack:
        with pytest.raises(ManifestError, match=told):
            await make_job(load(None), asked, stack)
