"""The nano models of other architectures: in small, every step gives a result or a refusal by name; at length, the committed
results are those of the code's effort and of models that have learned."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")
pytest.importorskip("transformers", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from gates.stats.binomial import wilson  # noqa: E402
from quantizer.experiments.nano.cases import HeldOutCase, ModelReply  # noqa: E402
from quantizer.experiments.nano.score_hf import replies  # noqa: E402
from quantizer.experiments.nano.template import render  # noqa: E402
from quantizer.experiments.study import architectures, architectures_page  # noqa: E402
from quantizer.experiments.study.architectures import GGUFS, KINDS, PTQ, SMALL, TINY, Nano  # noqa: E402
from tests.scale import scaled  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
STUDY = Path(__file__).parents[2] / "docs" / "study"
STEPS = ("learned", "bf16", *PTQ, "qad", *(f"gguf {kind}" for kind in GGUFS))
TOKENIZER = Path("models/annie-nano-hf/tokenizer.json")
REFUSED = {
    "llama": set(),
    "gemma3": {"gguf q8_0", "gguf q4_k_m", "gguf nvfp4"},
    "qwen3_moe": {"gguf nvfp4"},
}


def checked(record: dict[str, Any]) -> None:
    """Every step of an architecture is done, or refused where refusing is right, and the folders are proven."""
    steps = {step: record[step] for step in STEPS}
    assert not [found for found in steps.values() if "error" in found]
    assert {step for step, found in steps.items() if "refused" in found} == REFUSED[record["name"]]
    for step in (*PTQ, "qad"):
        assert steps[step]["sound"] and steps[step]["parity"]["equal"] == steps[step]["parity"]["tokens"] > 0


REPLY = scaled(8, 160)
"""Tokens of a reply: a model that has learned nothing never ends one."""
PROMPT = scaled(275, 4096)
"""Tokens of a case's prompt: all are padded to the longest, and two of 18 are three times as long as the others."""


def length(nano: Nano, case: HeldOutCase) -> int:
    text = render(case.messages, case.tools, style=case.style, thinking=case.thinking)
    return len(nano.tokenizer.encode(text).ids)


@pytest.mark.timeout(1200)  # a busy machine took more than 300 s for the mixture of experts
@pytest.mark.nightly  # tests/quantizer/test_architectures.py takes each as far, test_study_ladder.py the study's own steps
@pytest.mark.slow  # a model is trained, rounded three times and asked
@pytest.mark.parametrize("name", KINDS)
def test_every_step_is_done_or_refused_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")
    monkeypatch.setattr(architectures, "replies", partial(replies, max_new=REPLY))
    (tmp_path / name).mkdir()
    saved: list[dict[str, Any]] = []
    nano = Nano(name, tmp_path, TOKENIZER, TINY)
    nano.asked = [case for case in nano.asked if length(nano, case) <= PROMPT]
    nano.run(saved.append)
    checked(saved[-1])


def test_a_file_is_asked_only_where_there_is_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantizer.gguf.write.write_gguf", lambda source, target, *more: target.touch() or {})
    monkeypatch.setattr(architectures, "answers", lambda target, asked: [ModelReply("Hello.") for _ in asked])
    nano = Nano("llama", tmp_path, TOKENIZER, TINY)
    nano.folder.mkdir()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    right, asked = nano._gguf("q8_0")["served"]["manners"]
    assert 0 < right < asked < len(nano.asked)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert nano._gguf("q8_0") == {"bytes": 0, "types": []}


def test_the_committed_results_are_those_of_the_small_effort() -> None:
    records = architectures_page.read(STUDY)
    assert {one["name"] for one in records} == KINDS.keys()
    for one in records:
        checked(dict(one))
        assert one["effort"] == json.loads(json.dumps(asdict(SMALL)))


def test_the_committed_nanos_have_learned_and_their_files_have_answered() -> None:
    for one in architectures_page.read(STUDY):
        assert wilson(*one["bf16"]["manners"])[0] > wilson(*one["learned"]["untrained"]["manners"])[1]
        for kind in GGUFS:
            found = one[f"gguf {kind}"]
            assert "refused" in found or found["served"]["manners"][1] == one["bf16"]["hermes"]["manners"][1]


def test_the_page_is_what_the_results_say(tmp_path: Path) -> None:
    page, results = architectures_page.PAGE, architectures_page.RESULTS
    (tmp_path / page).write_bytes((STUDY / page).read_bytes())
    (tmp_path / results).symlink_to(STUDY / results)
    architectures_page.write(tmp_path)
    assert (tmp_path / page).read_bytes() == (STUDY / page).read_bytes()
