"""Sharded weights, as one of two processes sees them: what it reads, holds and steps, and how states are cut."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)


from quantizer.checkpoint.source import load_model, open_source, skeleton  # noqa: E402
from quantizer.core import shard  # noqa: E402
from quantizer.core.checkpoint import Checkpoints  # noqa: E402
from quantizer.core.errors import CheckpointError, SourceError, UnavailableError  # noqa: E402
from quantizer.core.shard import World, local, rows_of  # noqa: E402
from quantizer.train import load  # noqa: E402
from quantizer.train.learner import Learner  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402
from tests.quantizer.learners import QAT  # noqa: E402
from tests.quantizer.processes import alone_of_two  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
BF16 = replace(QAT, precision="bf16")


def opened(source: Any, world: World) -> Learner:
    """A folder's model with this process's rows in it."""
    model = skeleton(source)
    made = Learner(model, BF16)
    shard.shard(made, model, world)
    load.fill_shards(made, source, "cpu")
    return made


# ----------------------------------------------------------------------------------------------- loading


@pytest.mark.parametrize("build", [tiny.qwen3, tiny.qwen3_5])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_holds_its_rows_of_the_folders_weights(tmp_path: Path, build: Any, rank: int) -> None:
    source = folders.bare(build, tmp_path, vocab_size=97)
    wanted = load_model(source)
    with alone_of_two(rank) as world:
        made = opened(source, world)
        found = dict(made.model.named_parameters())
        for name, weight in wanted.named_parameters():
            part: Any = found[name]
            assert torch.equal(local(part), weight[rows_of(part)]), name
            assert local(part).shape == torch.chunk(weight, 2)[rank].shape
        buffers = dict(made.model.named_buffers())
    for name, buffer in wanted.named_buffers():
        assert torch.equal(buffers[name], buffer), name


@pytest.mark.parametrize(
    "change, words", [("lost", "lacks 1 of .* model.norm.weight"), ("other", "is .3., config.json says .64.")]
)
def test_a_folder_that_does_not_fit_is_one_line(tmp_path: Path, change: str, words: str) -> None:
    from safetensors.torch import save_file

    tiny.qwen3().save_pretrained(tmp_path)
    tensors = folders.load(tmp_path)
    tensors["model.norm.weight"] = torch.ones(3).bfloat16()
    if change == "lost":
        del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with alone_of_two() as world, pytest.raises(SourceError, match=words):
        opened(open_source(tmp_path), world)


def state(rank: int, **more: Any) -> dict[str, Any]:
    """What a process of two saves."""
    whole = torch.arange(10.0).view(5, 2)
    part = {"w": whole.chunk(2)[rank]}
    return {"step": 4, "masters": part, "optimizer": {"w": {"exp_avg": part["w"] + 1}}, **more}


def saved_by_two(folder: Path, **more: Any) -> Checkpoints:
    """A checkpoint of two processes, as if each had written its part."""
    first, second = (Checkpoints(folder, lambda: {"recipe": 1}, World(rank, 2)) for rank in (0, 1))
    draft, place = folder / "step-00000004.unfinished", folder / "step-00000004"
    first._make(draft)
    for rank, one in enumerate((first, second)):
        one._write(draft / f"rank-{rank}.pt", state(rank, **more))
    first._commit(draft, place)
    return Checkpoints(folder, lambda: {"recipe": 1})


def test_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the run had 2 processes: start 2 again"):
        saved_by_two(tmp_path / "run").begin(resume=True)


# ------------------------------------------------------------------------------------------------- steps


@pytest.mark.parametrize(
    "error, kind",
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1"), UnavailableError),
        (torch.distributed.DistBackendError("NCCL error: remote process exited"), UnavailableError),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), RuntimeError),
    ],
)  # fmt: skip
def test_a_lost_process_is_one_line_that_says_how_to_go_on(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught, shard.peers_watched(World(0, 2)):
        raise error
    assert ("start all of them again with --resume" in str(caught.value)) == (kind is UnavailableError)
