"""Sharded weights, as one of two processes sees them: what it reads, holds and steps, and how states are cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from torch import nn  # noqa: E402

from quantizer.checkpoint.source import load_model, open_source, skeleton  # noqa: E402
from quantizer.core.errors import CheckpointError, RecipeError, SourceError, UnavailableError  # noqa: E402
from quantizer.train import load, shard  # noqa: E402
from quantizer.train.checkpoint import Checkpoints  # noqa: E402
from quantizer.train.learner import Learner  # noqa: E402
from quantizer.train.loop import Trainer  # noqa: E402
from quantizer.train.shard import World, local, recut, rows_of  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402
from tests.quantizer.learners import PAD, PLAIN, QAT, learner, samples  # noqa: E402
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
    """To the bit; an uneven number of rows too, and what no file holds is computed."""
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


def test_a_process_reads_and_holds_about_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bytes of the folder; nobody ever has the whole model."""
    source = folders.bare(tiny.qwen3, tmp_path)
    whole = sum(weight.nbytes for weight in load_model(source).parameters())
    read: list[int] = []
    original: Any = load._rows

    def watched(*given: Any) -> Any:
        part = original(*given)
        read.append(part.nbytes)
        return part

    monkeypatch.setattr(load, "_rows", watched)
    with alone_of_two() as world:
        held = sum(local(p).nbytes for p in opened(source, world).parameters())

    assert sum(read) == held
    assert 0.5 * whole <= held <= 0.51 * whole


def test_the_text_model_of_a_wrapped_folder_is_loaded(tmp_path: Path) -> None:
    """Its names have another prefix, and its tower and MTP layer stay in the folder."""
    source = folders.wrapped(tmp_path)
    with alone_of_two() as world:
        made = dict(opened(source, world).model.named_parameters())
    for name, weight in load_model(source).named_parameters():
        assert torch.equal(local(made[name]), weight[: -(-len(weight) // 2)]), name


@pytest.mark.parametrize(
    "change, words", [("lost", "lacks 1 of .* model.norm.weight"), ("other", "is .3., config.json says .64.")]
)
def test_a_folder_that_does_not_fit_is_one_line(tmp_path: Path, change: str, words: str) -> None:
    """Before a process computes with what happened to be in its memory."""
    from safetensors.torch import save_file

    tiny.qwen3().save_pretrained(tmp_path)
    tensors = folders.load(tmp_path)
    tensors["model.norm.weight"] = torch.ones(3).bfloat16()
    if change == "lost":
        del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with alone_of_two() as world, pytest.raises(SourceError, match=words):
        opened(open_source(tmp_path), world)


# ------------------------------------------------------------------------------------------ cutting anew


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("before, after", [(4, 2), (4, 1), (2, 1), (3, 1), (2, 2)])
def test_parts_are_cut_anew_as_fsdp_cuts(rows: int, before: int, after: int) -> None:
    """More processes than rows leave some with none."""
    whole = torch.arange(rows * 3.0).view(rows, 3)
    parts = [*whole.chunk(before), *[whole[:0]] * before][:before]
    wanted = [*whole.chunk(after), *[whole[:0]] * after][:after]

    for rank in range(after):
        assert torch.equal(recut(parts, World(rank, after)), wanted[rank])
    assert recut([torch.tensor(3.0)] * before, World(0, after)).item() == 3.0


def state(rank: int, **more: Any) -> dict[str, Any]:
    """What a process of two saves."""
    whole = torch.arange(10.0).view(5, 2)
    part = {"w": whole.chunk(2)[rank]}
    return {"step": 4, "share": 2, "masters": part, "optimizer": {"w": {"exp_avg": part["w"] + 1}}, **more}


def saved_by_two(folder: Path, **more: Any) -> Checkpoints:
    """A checkpoint of two processes, as if each had written its part."""
    first, second = (Checkpoints(folder, {"recipe": 1}, World(rank, 2)) for rank in (0, 1))
    draft, place = folder / "step-00000004.unfinished", folder / "step-00000004"
    first._make(draft)
    for rank, one in enumerate((first, second)):
        one._write(draft / f"rank-{rank}.pt", state(rank, **more))
    first._commit(draft, place)
    return Checkpoints(folder, {"recipe": 1})


def test_one_process_goes_on_with_the_parts_of_two(tmp_path: Path) -> None:
    """Masters and moments are whole again."""
    found = saved_by_two(tmp_path / "run").begin(resume=True)
    assert found is not None
    whole = torch.arange(10.0).view(5, 2)

    assert torch.equal(found["masters"]["w"], whole)
    assert torch.equal(found["optimizer"]["w"]["exp_avg"], whole + 1)


def test_more_processes_than_the_steps_were_planned_for_are_refused(tmp_path: Path) -> None:
    """Their micro-batches could not be dealt out evenly."""
    saved = Checkpoints(tmp_path / "run", {"recipe": 1})
    saved.save({**state(0), "share": 1})
    more = Checkpoints(tmp_path / "run", {"recipe": 1}, World(0, 2))
    with pytest.raises(CheckpointError, match="planned for 1 processes: .* not with 2"):
        more._begin(resume=True)


def test_low_bit_moments_are_not_cut_anew(tmp_path: Path) -> None:
    """They are packed across rows: one line that says how many processes to start."""
    saved = saved_by_two(tmp_path / "run")
    low = {"step": 4, "share": 2, "weights": {}, "moments": {}}
    for rank in (0, 1):
        saved._write(tmp_path / "run" / "step-00000004" / f"rank-{rank}.pt", low)
    sizes = [(tmp_path / "run" / "step-00000004" / f"rank-{rank}.pt").stat().st_size for rank in (0, 1)]
    (tmp_path / "run" / "step-00000004" / "manifest.json").write_text(f'{{"bytes": {sizes}}}')
    with pytest.raises(CheckpointError, match="on 2 processes, .* start 2 again"):
        saved.begin(resume=True)


def test_a_checkpoint_without_its_manifest_is_never_used(tmp_path: Path) -> None:
    """Every part is there, and the process that lists them was killed before it did."""
    saved = saved_by_two(tmp_path / "run")
    (tmp_path / "run" / "step-00000004" / "manifest.json").unlink()

    assert saved.begin(resume=True) is None


def test_the_last_few_are_kept_and_drafts_are_not(tmp_path: Path) -> None:
    """The disk is bounded, whatever killed processes have left."""
    saved = Checkpoints(tmp_path / "run", {"recipe": 1}, keep=2)
    for step in (2, 4, 6):
        saved.save({"step": step})
        (tmp_path / "run" / f"step-{step + 1:08}.unfinished").mkdir()
    saved.save({"step": 8})

    assert sorted(p.name for p in saved.folder.glob("step-*")) == ["step-00000006", "step-00000008"]


# ------------------------------------------------------------------------------------------------- steps


def test_a_low_bit_step_is_one_micro_batch_in_each_process() -> None:
    """The steps of a run for two are pairs, and none is lost."""
    settings = replace(PLAIN, precision="bf16", optimizer="adamw_8bit", batch_tokens=64, micro_tokens=64)
    ours = Trainer(learner(settings), samples(), PAD, settings, share=2)

    assert {len(step) for step in ours.steps} == {2}
    assert {i for step in ours.steps for micro in step for i in micro} == set(range(12))


def test_weights_that_are_not_bf16_are_not_sharded() -> None:
    """Their masters would be themselves."""
    made = learner(PLAIN)
    with pytest.raises(RecipeError, match='must be "bf16" with more than one process'):
        shard.shard(made, made.model, World(0, 2))


@pytest.mark.parametrize(
    "error, kind",
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1"), UnavailableError),
        (torch.distributed.DistBackendError("NCCL error: remote process exited"), UnavailableError),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), RuntimeError),
    ],
)  # fmt: skip
def test_a_lost_process_is_one_line_that_says_how_to_go_on(error: Exception, kind: type[Exception]) -> None:
    """And no other error is taken for one."""
    with pytest.raises(kind) as caught, shard.peers_watched(World(0, 2)):
        raise error
    assert ("start all of them again with --resume" in str(caught.value)) == (kind is UnavailableError)


def test_blocks_are_gathered_ahead() -> None:
    """Each names the next one, so that its weights come while this one computes."""
    with alone_of_two() as world:
        made = learner(BF16)
        shard.shard(made, made.model, world)
        blocks: list[Any] = shard.blocks_of(made.model)
        ahead = [block._get_fsdp_state()._states_to_forward_prefetch for block in blocks]

    assert ahead == [[blocks[1]._get_fsdp_state()], []]
    assert isinstance(made, nn.Module)
