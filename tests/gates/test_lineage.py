"""Is the baseline the candidate's own model? By the manifests of what was made of what."""

from pathlib import Path

import pytest

from gates.artefact.artefact import load
from gates.artefact.manifest import Artefact, FileEntry, Provenance, root_digest, same_lineage

MODELS = Path(__file__).parents[2] / "models"


def made(name: str, of: str | None = None, format: str = "hf-bf16", **parents: Artefact) -> Artefact:
    """An artefact with a root of its own, of a base model and of other artefacts."""
    files = (FileEntry(f"{name}.{format}", 1, "0" * 64),)
    origin = Provenance(of, {role: parent.root for role, parent in parents.items()})
    return Artefact(name, format, root_digest(files), files, "2026-11-21T00:00:00Z", origin)


QWEN = made("qwen")
QWEN_Q4 = made("qwen", format="gguf-q4_k_m", source=QWEN)
ANNIE = made("annie", "qwen", base=QWEN)
Q4 = made("annie", "qwen", "gguf-q4_k_m", source=ANNIE)
NVFP4 = made("annie", "qwen", "hf-nvfp4", source=ANNIE)
QAT = made("annie-qat", "qwen", base=ANNIE)
QAT_NVFP4 = made("annie-qat", "qwen", "hf-nvfp4", source=QAT)
QAD_NVFP4 = made("annie-qad", "qwen", "hf-nvfp4", base=QAT, teacher=ANNIE)
BOB = made("bob", "qwen", base=QWEN)
BOB_Q4 = made("bob", "qwen", "gguf-q4_k_m", source=BOB)

KIN = [
    (Q4, Q4, (), "the same artefact on another engine"),
    (NVFP4, Q4, (), "two conversions of one checkpoint"),
    (ANNIE, Q4, (), "a checkpoint and its conversion"),
    (Q4, ANNIE, (), "the other way round"),
    (QAT, Q4, (), "recovered from what the baseline is made of"),
    (Q4, QAT, (), "a candidate against what was recovered from its source"),
    (QAT_NVFP4, Q4, (QAT,), "and converted, by a checkpoint in between"),
    (QAD_NVFP4, Q4, (), "distilled from what the baseline is made of"),
    (QWEN_Q4, QWEN, (), "without a base model of their own"),
]
STRANGERS = [
    (NVFP4, QWEN_Q4, (ANNIE,), "annie (hf-nvfp4) is based on qwen; qwen (gguf-q4_k_m) names no base model"),
    (QWEN_Q4, Q4, (ANNIE,), "qwen (gguf-q4_k_m) names no base model; annie (gguf-q4_k_m) is based on qwen"),
    (NVFP4, BOB_Q4, (ANNIE, BOB), "neither annie (hf-nvfp4) nor bob (gguf-q4_k_m) comes from what the other"),
    (ANNIE, BOB, (QWEN,), "neither annie (hf-bf16) nor bob (hf-bf16)"),
    (QAT_NVFP4, Q4, (), "neither annie-qat (hf-nvfp4) nor annie (gguf-q4_k_m)"),
    (made("a"), made("b"), (), "neither a (hf-bf16) nor b (hf-bf16)"),
    (made("a", "x"), made("b", "y"), (), "a (hf-bf16) is based on x; b (hf-bf16) is based on y"),
]


@pytest.mark.parametrize("candidate, baseline, known, why", KIN, ids=[case[3] for case in KIN])
def test_these_are_one_model(
    candidate: Artefact, baseline: Artefact, known: tuple[Artefact, ...], why: str
) -> None:
    found = same_lineage(candidate, baseline, known)

    assert found and "sha256:" in found.reason


@pytest.mark.parametrize("candidate, baseline, known, why", STRANGERS, ids=[case[3] for case in STRANGERS])
def test_these_are_two(
    candidate: Artefact, baseline: Artefact, known: tuple[Artefact, ...], why: str
) -> None:
    found = same_lineage(candidate, baseline, known)

    assert not found
    assert found.reason.startswith(why)


def test_parents_in_a_circle_come_to_an_end() -> None:
    one = made("one")
    two = made("two", source=one)
    round_again = Artefact(
        one.name, one.format, one.root, one.files, one.created, Provenance(None, {"source": two.root})
    )

    assert same_lineage(two, made("three"), (round_again,)).same is False


def test_the_shipped_models_know_their_own() -> None:
    q4, f16, stranger = (
        load(MODELS / name) for name in ("annie-nano-q4_k_m", "annie-nano-f16", "stranger-nano-q4_k_m")
    )

    assert same_lineage(q4, f16)
    assert not same_lineage(q4, stranger) and not same_lineage(stranger, q4)
