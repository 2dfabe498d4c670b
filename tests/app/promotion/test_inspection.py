"""What runs is asked of whoever knows, and must be what was judged."""

import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.engines.identity import describe
from app.promotion.inspection import differs, identify
from app.promotion.state_machine import RefusalError
from deploy.drivers.embedded import EmbeddedEngine
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import EngineRun
from deploy.engine.weights import find_gguf
from gates.artefact import artefact
from gates.report.statement import EngineIdentity
from tests.app.promotion.nano import ANNIE, STRANGER, needs_models, running, spec_of

SHA = "sha256:" + "1" * 64

# ------------------------------------------------------------------------------------- by table

JUDGED = EngineIdentity(
    "annie", "embedded", "llama-server", None, ("--ctx-size", "64"), {}, "xllamacpp 1", SHA
)
CHILD = (
    EngineSpec(
        name="annie", dialect="llama-server", driver="embedded", artefact=Path("/m/a.gguf"), args=("--ctx-size", "64")
    ),
    JUDGED, "/m/a.gguf",
)  # fmt: skip
RUNS: dict[str, Any] = {
    "argv": ("python", "--config", "{}"), "model_file": "/m/a.gguf", "digest": SHA, "changed": (),
    "model": "/m/a.gguf", "build": "xllamacpp 1",
}  # fmt: skip
IMAGE = f"vllm/vllm-openai@{SHA}"
CONTAINER = (
    EngineSpec(
        name="spark", dialect="vllm", driver="docker", artefact=Path("/m/nvfp4"), image=IMAGE, args=("--max-model-len", "9")
    ),
    EngineIdentity("spark", "docker", "vllm", IMAGE, ("--max-model-len", "9"), {}, "vllm 0.24.0", None),
    "/m/nvfp4",
)  # fmt: skip
SERVES: dict[str, Any] = {
    "argv": ("vllm", "serve", "/model", "--port", "8000", "--max-model-len", "9"), "image": IMAGE,
    "model_file": "/m/nvfp4", "digest": None, "changed": (), "model": None, "build": "vllm 0.24.0",
}  # fmt: skip


@pytest.mark.parametrize(
    "found, wanted, what",
    [
        (RUNS, CHILD, None),
        (RUNS | {"model_file": "/m/b.gguf"}, CHILD, "artefact"),
        (RUNS | {"model": "/m/b.gguf"}, CHILD, "model path"),
        (RUNS | {"digest": "sha256:2"}, CHILD, "model file"),
        (RUNS | {"digest": None}, CHILD, "model file"),
        (RUNS | {"changed": ("tokenizer.json",)}, CHILD, "artefact on disk"),
        (RUNS | {"build": "xllamacpp 2"}, CHILD, "build"),
        (RUNS | {"build": "xllamacpp 2"}, (CHILD[0], replace(JUDGED, build="unknown"), CHILD[2]), None),
        (SERVES, CONTAINER, None),
        (SERVES | {"image": "vllm/vllm-openai:latest"}, CONTAINER, "image"),
        (SERVES | {"argv": ("vllm", "serve", "/model", "--max-model-len", "8")}, CONTAINER, "flags"),
        (SERVES | {"argv": ()}, CONTAINER, "flags"),
        (SERVES | {"model_file": "/m/other"}, CONTAINER, "artefact"),
        (SERVES | {"build": "vllm 0.25.0"}, CONTAINER, "build"),
    ],
)
def test_the_first_difference_is_named(
    found: dict[str, Any], wanted: tuple[EngineSpec, EngineIdentity, str], what: str | None
) -> None:
    fault = differs(found, *wanted)
    if what is None:
        assert fault is None
    else:
        assert fault is not None and fault.code == "mismatch_running"
        assert fault.message.startswith(f"the running engine's {what} is ")


# -------------------------------------------------------------------------- of a real llama.cpp


async def refusal(engine: EmbeddedEngine, spec: EngineSpec) -> str:
    with pytest.raises(RefusalError) as caught:
        await identify(engine, spec)
    assert str(spec.artefact) not in caught.value.fault.message
    return str(caught.value)


@needs_models
async def test_a_running_engine_is_known_by_its_command_line_its_memory_and_its_bytes(tmp_path: Path) -> None:
    spec, manifest = spec_of(ANNIE), artefact.load(ANNIE)
    async with running(spec, tmp_path) as engine:
        told = await identify(engine, spec, describe(spec, manifest))
        assert told["model_file"] == f"sha256:{manifest.files[0].sha256}"
        assert told["who"] == str(engine.state.pid)
        assert str(told["build"]).startswith("xllamacpp ")


class Swapping(EmbeddedEngine):
    """Other weights lie there while it loads, in the same inode."""

    async def _spawn(self) -> EngineRun:
        assert self._spec.artefact is not None
        path = find_gguf(self._spec.artefact)
        good, times = path.read_bytes(), path.stat()
        path.write_bytes(find_gguf(STRANGER).read_bytes())

        def put_back() -> None:
            path.write_bytes(good)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

        self.put_back = put_back
        return await super()._spawn()


@needs_models
async def test_weights_that_were_exchanged_for_the_load_are_noticed(tmp_path: Path) -> None:
    shutil.copytree(ANNIE, tmp_path / "annie")
    spec = spec_of(tmp_path / "annie")
    assert artefact.verify(tmp_path / "annie") == []  # the door's look
    engine = Swapping(spec, state_dir=tmp_path / "state")
    await engine.start()
    try:
        engine.put_back()
        assert artefact.verify(tmp_path / "annie") == []
        assert "mismatch_artefact" in await refusal(engine, spec)
    finally:
        await engine.stop()


def _replace(folder: Path) -> None:
    (folder / "a").rename(folder.parent / "kept")
    (folder / "a").write_bytes(b"evil")
    (folder.parent / "kept").replace(folder / "a")


def _rewrite(folder: Path) -> None:
    seen = (folder / "a").stat()
    (folder / "a").write_bytes(b"good")
    os.utime(folder / "a", ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _swap_folder(folder: Path) -> None:
    folder.rename(folder.parent / "kept")
    (folder.parent / "kept").rename(folder)


@pytest.mark.parametrize(
    ("change", "bare"),
    [(_replace, False), (_rewrite, False), (_swap_folder, False), (_replace, True), (_rewrite, True)],
)
def test_a_snapshot_tells_every_exchange_that_was_undone(tmp_path: Path, change: Any, bare: bool) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a").write_bytes(b"good")
    if not bare:
        artefact.seal(folder, name="a", format="gguf-f16", created=datetime(2026, 11, 21, tzinfo=UTC))
    path = folder / "a" if bare else folder
    before = artefact.snapshot(path)
    assert artefact.snapshot(path) == before
    time.sleep(0.02)  # the kernel's clock ticks
    change(folder)
    assert artefact.snapshot(path) != before
