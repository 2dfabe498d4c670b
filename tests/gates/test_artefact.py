"""The identity of an artefact: sealed folders, their root digest, and every way to break one."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gates.artefact.artefact import (
    MANIFEST,
    Artefact,
    FileEntry,
    Problem,
    Provenance,
    load,
    parse,
    root_digest,
    same_lineage,
    seal,
    verify,
)
from gates.contracts.errors import ManifestError

WHEN = datetime(2026, 11, 21, 9, 30, 15, 250_000, tzinfo=UTC)
ORIGIN = Provenance(
    base_model="stranger-nano",
    parents={"base": f"sha256:{'a' * 64}"},
    recipe={"mix": "q4_k_m", "steps": 200},
    data_digest=f"sha256:{'b' * 64}",
    tools={"gguf": "0.19.0"},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sealed folder with two files, one of them in a folder of its own."""
    home = tmp_path / "annie"
    (home / "more").mkdir(parents=True)
    (home / "model.gguf").write_bytes(b"GGUF" + bytes(1000))
    (home / "more" / "notes.txt").write_text("namaskara\n", encoding="utf-8")
    sealed(home)
    return home


def sealed(home: Path) -> Artefact:
    return seal(home, name="annie", format="gguf-q4_k_m", created=WHEN, provenance=ORIGIN)


def edited(folder: Path, **changes: object) -> str:
    """The manifest's text with some keys changed, or dropped where the value is `...`."""
    document = json.loads((folder / MANIFEST).read_text(encoding="utf-8")) | changes
    return json.dumps({k: v for k, v in document.items() if v is not ...})


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="needs coreutils: apt install coreutils")
def test_the_root_can_be_checked_with_coreutils(folder: Path) -> None:
    line = (
        "find . -type f ! -path ./artefact.json -printf '%P\\0' | LC_ALL=C sort -z"
        " | xargs -0 sha256sum | sha256sum"
    )
    out = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, check=True)

    assert load(folder).root == f"sha256:{out.stdout.split()[0]}"


def rewrite(folder: Path) -> None:
    with (folder / "model.gguf").open("r+b") as file:
        file.seek(500)
        file.write(b"\x01")


def link(folder: Path) -> None:
    moved = (folder / "model.gguf").rename(folder.parent / "model.gguf")
    (folder / "model.gguf").symlink_to(moved)


DIFFERENCES: list[tuple[Callable[[Path], object], Problem]] = [
    (rewrite, Problem("changed", "model.gguf", "same size, other content")),
    (lambda folder: (folder / "more" / ".hidden").write_text("x"), Problem("extra", "more/.hidden")),
    (lambda folder: (folder / "model.gguf").unlink(), Problem("missing", "model.gguf")),
    (link, Problem("symlink", "model.gguf")),
    (lambda folder: os.mkfifo(folder / "pipe"), Problem("special", "pipe")),
]


@pytest.mark.parametrize("change, problem", DIFFERENCES, ids=lambda one: getattr(one, "kind", ""))
def test_every_difference_from_the_manifest_is_found(
    folder: Path, change: Callable[[Path], object], problem: Problem
) -> None:
    change(folder)
    assert verify(folder) == [problem]


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lambda folder: (folder / "link").symlink_to("model.gguf"), "link is a symlink file"),
        (lambda folder: (folder / "bad\nname").write_text("x"), "cannot be part of an artefact"),
    ],
)
def test_a_refused_sealing_leaves_no_manifest(
    folder: Path, spoil: Callable[[Path], object], why: str
) -> None:
    spoil(folder)
    with pytest.raises(ManifestError, match=why):
        sealed(folder)
    with pytest.raises(ManifestError, match="not complete, or nobody has sealed it"):
        load(folder)


def test_a_manifest_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / MANIFEST).rename(tmp_path / "real.json")
    (folder / MANIFEST).symlink_to(tmp_path / "real.json")
    with pytest.raises(ManifestError, match="is a link"):
        load(folder)


FIRST = {"path": "model.gguf", "size": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"colour": "red"}, "colour: unknown key"),
        ({"root": ...}, "root: is missing"),
        ({"schema": "manners/artefact/v9"}, "schema: must be manners/artefact/v1"),
        ({"format": "onnx-int8"}, "format: must be a text that matches (hf|gguf)-[a-z0-9][a-z0-9_]*, not 'onnx-int8'"),
        ({"name": "../annie"}, "name: must be a text that matches"),
        ({"root": f"sha256:{'0' * 64}"}, "root does not follow from the listed files"),
        ({"files": []}, "files: must be a list that is not empty"),
        ({"parents": {"base": "latest"}}, "parents.base: must be a text that matches"),
        ({"created": "yesterday"}, "created is 'yesterday'"),
        ({"files": [FIRST | {"path": "../x"}]}, "files[0].path '../x' is not a plain path"),
        ({"files": [FIRST | {"path": "/etc/passwd"}]}, "not a plain path"),
        ({"files": [FIRST | {"path": "artefact.json"}]}, "not a plain path"),
        ({"files": [FIRST | {"path": "a\\b"}]}, "not a plain path"),
        ({"files": [FIRST | {"size": -1}]}, "files[0].size: must be a whole number of at least 0"),
        ({"files": [FIRST, FIRST]}, "byte order"),
    ],
)  # fmt: skip
def test_a_wrong_manifest_names_the_place(folder: Path, changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(edited(folder, **changes))
    assert complaint in str(caught.value)


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


@pytest.mark.parametrize("candidate, baseline, known, why", KIN + STRANGERS)
def test_only_forms_of_one_model_are_kin(
    candidate: Artefact, baseline: Artefact, known: tuple[Artefact, ...], why: str
) -> None:
    found = same_lineage(candidate.identity, baseline.identity, (one.identity for one in known))
    assert bool(found) == ((candidate, baseline, known, why) in KIN)
    assert found or found.reason.startswith(why)


def test_parents_in_a_circle_come_to_an_end() -> None:
    one = made("one")
    two = made("two", source=one)
    round_again = Artefact(
        one.name, one.format, one.root, one.files, one.created, Provenance(None, {"source": two.root})
    )

    assert same_lineage(two.identity, made("three").identity, (round_again.identity,)).same is False
