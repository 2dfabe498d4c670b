"""Two processes that train over gloo: killed and resumed to the bit, in half the memory."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

from gates.artefact import artefact  # noqa: E402
from quantizer.checkpoint.source import open_source, skeleton  # noqa: E402
from quantizer.core.errors import QuantizerError  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.train.run import run  # noqa: E402
from quantizer.verify.check import verify  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402
from tests.quantizer.learners import silent  # noqa: E402
from tests.quantizer.processes import finish, start  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,  # runs of two processes that are killed and started again
    pytest.mark.timeout(1800),  # a busy machine takes minutes for one of them
    pytest.mark.usefixtures("one_thread"),
]
STEPS = ("train.max_steps=9", "train.save=1", "train.epochs=20", "train.refresh=2", "train.lr=1e-3",
         "train.batch_tokens=2048", "train.micro_tokens=1024")  # fmt: skip
LOW = (*STEPS, "train.batch_tokens=1024", "train.optimizer=adamw_8bit")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources and data."""
    return folders.with_data(tmp_path_factory.mktemp("models"), 16)


def train(source: Path, data: Path, out: Path, name: str, changes: tuple[str, ...], resume: bool) -> None:
    """A whole run in this process; what it refuses goes to stderr."""
    try:
        run(
            load_recipe(name, changes),
            source,
            data,
            out,
            now=folders.NOW,
            device="cpu",
            resume=resume,
            bf16=out.with_name(f"{out.name}-bf16"),
            log=silent,
        )
    except QuantizerError as error:
        Path(f"{out}.{os.environ['RANK']}.error").write_text(str(error))
        raise SystemExit(error.exit_code) from None


def losses(folder: Path) -> list[tuple[float, float]]:
    """The loss and the gradient's length of every step, as TensorBoard shows them."""
    events = EventAccumulator(f"{folder}.tensorboard").Reload()
    kinds = ([one.value for one in events.Scalars(f"train/{name}")] for name in ("loss", "length"))
    return list(zip(*kinds, strict=True))


def test_a_run_of_two_that_was_killed_goes_on_to_the_same_losses(place: Path, tmp_path: Path) -> None:
    given = (place / "qwen3", place / "data.jsonl")
    made = start(train, *given, tmp_path / "out", "qad", LOW, False)
    wait_for_steps(made, tmp_path / "out.training", 3)
    for process in made:
        os.kill(process.pid or 0, signal.SIGKILL)
    codes = finish(made, 30)

    assert codes == [-signal.SIGKILL] * 2
    assert not (tmp_path / "out").exists()
    assert 3 <= newest(tmp_path / "out.training") < 9, "it ended before it could be killed"
    for out in ("out", "whole"):
        assert finish(start(train, *given, tmp_path / out, "qad", LOW, True)) == [0, 0]

    assert losses(tmp_path / "out") == losses(tmp_path / "whole") and len(losses(tmp_path / "out")) == 9
    first, second = ((tmp_path / out / "model.safetensors").read_bytes() for out in ("out", "whole"))
    assert first == second
    check = artefact.load(tmp_path / "out").provenance.recipe["outcome"]["check"]["parity"]
    assert check["equal"] == check["tokens"] > 100
    fit = verify(tmp_path / "out", tmp_path / "out-bf16").fit
    assert fit is not None and 15 < fit.sqnr_db < 30
    assert not (tmp_path / "out.training").exists()


def anonymous() -> int:
    """The most memory that this process has had of its own, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))


def open_in(folder: Path, told: Path) -> None:
    """Open this process's part of a model, and tell what memory it took at most."""
    from threading import Event, Thread

    from quantizer.core import shard
    from quantizer.recipes.recipe import Train
    from quantizer.train import load
    from quantizer.train.learner import Learner

    world, source = shard.join(), open_source(folder)
    skeleton(source)  # what is imported on the way is not the model's
    before, most, over = anonymous(), [0], Event()

    def watch() -> None:
        while not over.wait(0.002):
            most[0] = max(most[0], anonymous() - before)

    watcher = Thread(target=watch)
    watcher.start()
    learner = Learner(skeleton(source), Train(quantized=False))
    shard.shard(learner, learner.model, world)
    load.fill_shards(learner, source, "cpu")
    most[0] = max(most[0], anonymous() - before)  # on a busy machine the watcher may have slept since
    over.set()
    watcher.join()
    told.with_suffix(f".{world.rank}").write_text(str(most[0]))


def test_no_process_holds_the_whole_model_while_it_loads(tmp_path: Path) -> None:
    size: dict[str, Any] = {"vocab_size": 16384, "hidden_size": 512, "intermediate_size": 12288}
    made = tiny.qwen3(**size)
    made.save_pretrained(tmp_path / "model")
    whole = sum(weight.nbytes for weight in made.parameters())
    del made
    assert finish(start(open_in, tmp_path / "model", tmp_path / "two")) == [0, 0]
    took = [int((tmp_path / f"two.{rank}").read_text()) for rank in (0, 1)]

    assert whole > 100 * 2**20
    assert 0.4 * whole < min(took) <= max(took) < 0.6 * whole, took


def wait_for_steps(made: list[Any], saved: Path, steps: int) -> None:
    """Until so many are saved, or the run has ended."""
    until = time.monotonic() + 120
    while time.monotonic() < until and newest(saved) < steps and any(process.is_alive() for process in made):
        time.sleep(0.005)


def newest(saved: Path) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    return max((int(path.name[5:]) for path in saved.glob("step-????????")), default=0)
