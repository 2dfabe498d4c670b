"""How fast Qwen3.5 trains: the delta rule by itself, then whole steps of QAT and QAD under a cap on GPU memory.

    python -m quantizer.experiments.bench.training_speed [--only NAME ...] [--json FILE] [--budget SECONDS] [--tiny]

Parts, each in a process of its own, the most important first; every line is printed and written as it comes.

step   8-bit AdamW over 33 million weights: torchao's, and ours by torch.compile, with and without its options
rule   values and gradients of our rule beside transformers' own code in float32, and the times of both and of
       flash-linear-attention where it can be imported
qat    steps of a random 9B: 4,096 tokens in two rows, 27 % of them learned, 8-bit AdamW; then variants, and a profile of one
       step by part
qad    the same with a teacher
row    QAT of one row of 4,096 tokens
before QAT on transformers' own recurrence

Only where they are asked for (`--only`): `four`, `layers`, `layers-exact`, `27b` and `27b-qad`, other sizes and optimizers.
A part runs from building the model to its last step under `torch.cuda.set_per_process_memory_fraction`. Peaks are torch's:
allocated, what tensors took; reserved, what the allocator took from the GPU, which the cap is about.

`--tiny` runs all of it on shapes that a CPU can do.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from quantizer.core.cost import default_device, device_name
from quantizer.data.batches import collate
from quantizer.data.render import TrainingSample
from quantizer.experiments.bench.model import even_rows, random_qwen3_5, wait
from quantizer.experiments.bench.shapes import SHAPES
from quantizer.layers import delta_rule
from quantizer.layers.attach import attach, make_plan
from quantizer.layers.delta_rule import chunk_gated_delta_rule
from quantizer.layers.deltanet import deltanets, use_chunks, use_own
from quantizer.layers.linear import hold_weights
from quantizer.ptq.calibrate import calibrate
from quantizer.recipes.recipe import Layers, Train
from quantizer.train import learner as learner_module
from quantizer.train.learner import Learner, teacher_states
from quantizer.train.loop import Trainer
from quantizer.train.optimizer_in_backward import OptimizerInBackward
from quantizer.train.speed import Hold, compile_blocks, recompute, share_inputs

GIB: Final = 2**30
PEAK: Final = 989e12
"""Dense BF16 operations a second of a Hopper GPU, by its datasheet."""
SETTINGS: Final = Train(
    lr=1e-5, warmup=0.0, schedule="constant", epochs=1, recompute=True, optimizer="adamw_8bit", save=4
)
SHARE: Final = 0.27


@dataclass(frozen=True, slots=True)
class Run:
    """Steps of a random model. cap: GiB. groups: of `SETTINGS.save` steps each; the first is not timed. own: on our
    chunked rule. kept: variants, in which so many layers keep their activations."""

    name: str
    settings: Train = SETTINGS
    shape: str = "9B"
    cap: float = 48.0
    rows: int = 2
    groups: int = 3
    own: bool = True
    kept: tuple[int, ...] = ()


_FOUR: Final = replace(SETTINGS, optimizer="adamw_4bit")
RUNS: Final = {
    "qat": Run("qat, 2 rows", kept=(8, 16, 20)),
    "qad": Run("qad, 2 rows", replace(SETTINGS, loss="kl"), kept=(16,)),
    "row": Run("qat, 1 row", rows=1),
    "before": Run("qat, 2 rows, transformers' recurrence", groups=2, own=False),
    "four": Run("9B QAT, 4 bits", _FOUR),
    "layers": Run("8 layers QAT, 8 bits", shape="9B, 8 layers", cap=130.0),
    "layers-exact": Run(
        "8 layers QAT, exact", replace(SETTINGS, optimizer="adamw"), shape="9B, 8 layers", cap=130.0
    ),
    "27b": Run("27B QAT, 4 bits", _FOUR, shape="27B", cap=100.0),
    "27b-qad": Run("27B QAD, 4 bits", replace(_FOUR, loss="kl"), shape="27B", cap=100.0),
}
PARTS: Final = ("step", "rule", *RUNS)
FIRST: Final = ("step", "qat", "rule", "qad", "row", "before")


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of all parts. tokens: of a step. shape, groups: instead of a run's own shape, and the most of its groups."""

    heads: tuple[int, int]
    width: int
    tokens: int
    shape: str = ""
    groups: int = 3


FULL: Final = Scale((16, 32), 128, 4096)
TINY: Final = Scale((2, 4), 16, 256, "tiny", groups=2)
Row = dict[str, Any]
Report = Callable[[Row], None]


# ------------------------------------------------------------------------------------------------- AdamW


def step(scale: Scale, device: str, report: Report) -> None:
    """Time a step of AdamW, and count where weights and codes differ from those of the plain code."""
    from torchao.optim.adam import AdamW8bit

    count = 2**25 if device == "cuda" else 2**14
    torch.manual_seed(0)
    start = torch.randn(count, device=device).bfloat16()
    gradient = (torch.randn(count, device=device) * 1e-3).bfloat16()

    def made() -> tuple[Any, list[Any]]:
        weight = start.clone()
        held = AdamW8bit([weight])
        return weight, [held._new_buffer(weight, signed) for signed in (True, False)]

    subjects, wanted = steps(device), made()
    subjects["plain"](gradient, *wanted)
    for name, subject in subjects.items():
        found = made()
        subject(gradient, *found)
        row = {
            "weights": float((found[0] != wanted[0]).float().mean()),
            "codes": [
                float((a.codes != b.codes).float().mean()) for a, b in zip(found[1], wanted[1], strict=True)
            ],
        }
        seconds = timed(partial(subject, gradient, *found))
        report(
            {
                "name": f"step, {name}",
                "ms": round(1e3 * seconds, 3),
                "GB/s": round(10e-9 * count / seconds),
                **row,
            }
        )


def steps(device: str) -> dict[str, Callable[[Any, Any, list[Any]], None]]:
    """Ways to move a weight by its gradient and torchao's moments."""
    from torchao.optim.adam import single_param_adam

    from quantizer.train import adamw_8bit

    constants = adamw_8bit.Constants(0.9, 0.95, 1e-8, 0.0, 1.0)
    numbers = torch.tensor([1e-4, 0.1, 0.05], device=device)
    one, seed = torch.ones((), device=device), torch.ones((), dtype=torch.int32, device=device)

    def by(function: Callable[..., None]) -> Callable[[Any, Any, list[Any]], None]:
        def call(gradient: Any, weight: Any, moments: list[Any]) -> None:
            blocks = [(m.codes.view(-1, 256), m.scale, m.qmap) for m in moments]
            function(
                weight.view(-1, 256), gradient.view(-1, 256), *blocks, numbers, one, one, seed, constants
            )

        return call

    def torchaos(gradient: Any, weight: Any, moments: list[Any]) -> None:
        compiled: Any = torch.compile(single_param_adam, fullgraph=True, dynamic=False)
        lr, number = torch.tensor(1e-4), torch.tensor(1.0)
        compiled(weight, gradient, number, *moments, None, lr, 0.9, 0.95, 0.0, 1e-8, True, True)

    found = {"plain": by(adamw_8bit.step)}
    if device == "cuda":
        plain = partial(torch.compile, adamw_8bit.step, dynamic=False)
        found |= {
            "torch.compile, one kernel": by(plain(options=adamw_8bit.one_kernel())),
            "torch.compile": by(plain()),
            "torchao": torchaos,
        }
    return found


# ------------------------------------------------------------------------------------------------- the rule


def rule(scale: Scale, device: str, report: Report) -> None:
    """Check and time the recurrence."""
    keys, values = scale.heads
    cases = [
        ("two rows", 2, scale.tokens // 2, keys, values),
        ("odd length", 1, scale.tokens // 4 + 9, keys, values),
        ("48 value heads", 1, scale.tokens // 4, keys, 3 * keys),
    ]
    for name, rows, tokens, few, many in cases:
        chunks = ours(device) if name == "two rows" else chunk_gated_delta_rule
        given = rule_inputs(rows, tokens, few, many, scale.width, device)
        wanted = rule_outcome(reference(), {key: x.float() for key, x in given.items()})
        for label, chosen in (("ours", chunks), ("transformers", reference())):
            found = rule_outcome(chosen, given)
            report({"name": f"rule, {name}, {label}: distance from transformers' in float32",
                  **{key: f"{distance(found[key], wanted[key]):.1e}" for key in wanted}})  # fmt: skip
    given = rule_inputs(2, scale.tokens // 2, keys, values, scale.width, device)
    subjects = {
        "ours, states kept": partial(ours(device), keep=True),
        "ours, states computed again": ours(device),
        "ours, not compiled": chunk_gated_delta_rule,
        "transformers": reference(),
        "flash-linear-attention": theirs(),
    }
    for label, one in subjects.items():
        if one is None:
            report({"name": f"rule, {label}", "failed": "cannot be imported"})
            continue
        row: Row = {"name": f"rule, {label}"}
        for key, work in {"forward": rule_forward, "forward and backward": rule_outcome}.items():
            try:
                row[key] = f"{1e3 * timed(partial(work, one, given)):.2f} ms"
            except RuntimeError as error:
                row[key] = str(error)[:100]
        report(row)


def ours(device: str) -> Callable[..., Any]:
    return partial(chunk_gated_delta_rule, compiled=device == "cuda")


def reference() -> Callable[..., Any]:
    """Transformers' own code."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    own: Callable[..., Any] = inspect.unwrap(modeling_qwen3_5.torch_chunk_gated_delta_rule)

    def call(query: Any, key: Any, value: Any, **more: Any) -> Any:
        """Not every version shares a key head among value heads by itself."""
        groups = value.shape[2] // key.shape[2]
        return own(*(x.repeat_interleave(groups, dim=2) for x in (query, key)), value, **more)

    return call


def theirs() -> Callable[..., Any] | None:
    try:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule as found
    except (ImportError, RuntimeError):
        return None
    rule_of_theirs: Callable[..., Any] = found
    return rule_of_theirs


def rule_inputs(rows: int, tokens: int, keys: int, values: int, width: int, device: str) -> dict[str, Any]:
    """As a random layer has them, in BF16, g in float32."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, device=device)

    decay = torch.empty(values, device=device).uniform_(0.01, 16)
    return {
        "query": normal(rows, tokens, keys, width).bfloat16(),
        "key": normal(rows, tokens, keys, width).bfloat16(),
        "value": normal(rows, tokens, values, width).bfloat16(),
        "g": -decay * torch.nn.functional.softplus(normal(rows, tokens, values) - 3),
        "beta": normal(rows, tokens, values).sigmoid().bfloat16(),
    }


@torch.no_grad()
def rule_forward(one: Callable[..., Any], given: dict[str, Any]) -> None:
    values = [given[name] for name in ("query", "key", "value")]
    one(*values, g=given["g"], beta=given["beta"], use_qk_l2norm_in_kernel=True)


def rule_outcome(one: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Outputs and the gradients of a weighting of them."""
    given = {name: x.detach().requires_grad_() for name, x in given.items()}
    values = [given[name] for name in ("query", "key", "value")]
    out = one(*values, g=given["g"], beta=given["beta"], use_qk_l2norm_in_kernel=True)[0]
    weights = torch.randn(out.shape, generator=torch.Generator(out.device).manual_seed(1), device=out.device)
    out.backward(weights.to(out.dtype))
    return {"out": out.detach(), **{name: x.grad for name, x in given.items()}}


def distance(found: Any, wanted: Any) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def timed(work: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds, the median."""
    each = []
    for _ in range(repeats + 2):
        wait()
        began = time.perf_counter()
        work()
        wait()
        each.append(time.perf_counter() - began)
    return statistics.median(each[2:])


# ------------------------------------------------------------------------------------------------- whole steps


def train(kind: str, scale: Scale, device: str, report: Report) -> None:
    """One of `RUNS`, and its variants."""
    run, cuda = RUNS[kind], device == "cuda"
    settings = replace(run.settings, batch_tokens=scale.tokens, micro_tokens=scale.tokens)
    if cuda:
        torch.cuda.set_per_process_memory_fraction(run.cap * GIB / torch.cuda.mem_get_info()[1])
    parts: Row = {}
    with annotated(cuda):
        with _part(parts, "build"):
            model: Any = random_qwen3_5(SHAPES[scale.shape or run.shape], device)
            learner = Learner(model, settings)
        rows = partial(samples, scale, run.rows, vocabulary=model.config.vocab_size)
        data, teacher = rows(SHARE), None
        if settings.loss == "kl":
            with _part(parts, "teacher"):
                teacher = teacher_states(learner, data, 0, scale.tokens, Path())
        with _part(parts, "calibrate"):
            attach(model, make_plan(model, Layers()))
            calibrate(model, [collate(data, [0], 0)])
        prepare(learner, run.own, cuda)
        steps = partial(
            measure, learner, _moved(model, settings), min(run.groups, scale.groups), run.cap, report
        )
        trainer = steps(run.name, data, teacher, parts)
        if not run.kept:
            return
        if cuda:
            profile(trainer, kind, report)
        for kept in run.kept if cuda else (1,):
            keep(model, kept, cuda)
            if steps(f"{run.name}, {kept} layers keep their activations", data, teacher) is None:
                break
        if kind == "qat":
            keep(model, 0, cuda)
            steps(f"{run.name}, all learned", rows(1.0))


def _moved(model: Any, settings: Train) -> OptimizerInBackward | None:
    """What moves the weights in few bits; None: the trainer's own AdamW."""
    return (
        None
        if settings.optimizer == "adamw"
        else OptimizerInBackward(list(model.named_parameters()), settings)
    )


def samples(scale: Scale, rows: int, share: float, vocabulary: int) -> list[TrainingSample]:
    return even_rows(scale.groups * SETTINGS.save * rows, scale.tokens // rows, share, vocabulary)


def prepare(learner: Learner, own: bool, cuda: bool) -> None:
    """As `student.open_student`."""
    recompute(learner.model)
    if own:
        use_chunks(learner.model, compiled=cuda)
    if cuda:
        share_inputs(learner.model)
        compile_blocks(learner.model)
        learner.compiled = True


@contextmanager
def _part(parts: Row, name: str) -> Iterator[None]:
    """Seconds and peak memory of a `with` block."""
    _reset_peaks()
    began = time.perf_counter()
    yield
    wait()
    parts[name] = {"seconds": round(time.perf_counter() - began, 1), **_peaks()}


def _reset_peaks() -> None:
    wait()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _peaks() -> Row:
    if not torch.cuda.is_available():
        return {}
    return {
        "allocated_gib": round(torch.cuda.max_memory_allocated() / GIB, 2),
        "reserved_gib": round(torch.cuda.max_memory_reserved() / GIB, 2),
    }


def keep(model: Any, kept: int, cuda: bool) -> None:
    """Let the last so many layers keep their activations."""
    recompute(model, kept)
    fronts = [{name: vars(layer)[name] for name in ("front", "back")} for layer in deltanets(model)]
    use_own(model)
    use_chunks(model, compiled=cuda)
    for layer, compiled in zip(deltanets(model), fronts, strict=True):
        vars(layer).update(compiled)


def measure(
    learner: Learner,
    weights: OptimizerInBackward | None,
    groups: int,
    cap: float,
    report: Report,
    name: str,
    data: Sequence[TrainingSample],
    teacher: Any = None,
    parts: Row | None = None,
) -> Trainer | None:
    """Time some steps; None if the memory was not enough. parts: what was before them."""
    settings, hold = learner.settings, Hold() if learner.compiled else hold_weights
    _reset_peaks()
    steps = groups * settings.save
    made = Trainer(learner, data, 0, replace(settings, max_steps=steps), teacher=teacher, weights=weights,
                   hold=None if weights else hold)  # fmt: skip
    times = [time.perf_counter()]
    try:
        made.run(_note, lambda: times.append(time.perf_counter()))
    except torch.OutOfMemoryError as error:
        report({"name": name, "cap_gib": cap, "failed": "out of memory"})
        _note(str(error))
        for parameter in learner.parameters():
            parameter.grad = None
        return None
    each = [(b - a) / settings.save for a, b in zip(times, times[1:], strict=False)]
    seconds, count = statistics.median(each[1:] or each), sum(p.numel() for p in learner.parameters())
    row = {
        "name": name,
        "parameters": count,
        "step_seconds": round(seconds, 4),
        "tokens_per_second": round(settings.batch_tokens / seconds, 1),
        "mfu": round(6 * count * settings.batch_tokens / seconds / PEAK, 4),
        "each": [round(one, 4) for one in each],
        "cap_gib": cap,
        "losses": [round(record.loss, 4) for record in made.records][:: max(1, steps // 6)],
        **_peaks(),
    }
    report(row if parts is None else {**row, "parts": parts})
    return made


# ------------------------------------------------------------------------------------------------- profile

SPANS: Final = ("rule forward", "rule backward", "optimizer", "head")
MATRICES: Final = ("gemm", "nvjet", "cutlass", "cublas", "xmma", "splitk")
ATTENTION: Final = ("flash", "fmha", "attention")


@contextmanager
def annotated(wanted: bool) -> Iterator[None]:
    """A `with` block in which some parts of a step are named for the profiler; of what is built in it."""
    if not wanted:
        yield
        return
    rule_class: Any = delta_rule._Rule
    places = [
        (rule_class, "forward", "rule forward", staticmethod),
        (rule_class, "backward", "rule backward", staticmethod),
        (OptimizerInBackward, "_apply", "optimizer", None),
        (OptimizerInBackward, "finish", "optimizer", None),
        (learner_module, "head_loss", "head", None),
    ]
    before = [(owner, name, inspect.getattr_static(owner, name)) for owner, name, _, _ in places]
    for owner, name, label, wrap in places:
        named = _named(getattr(owner, name), label)
        setattr(owner, name, wrap(named) if wrap else named)
    try:
        yield
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)


def _named(function: Callable[..., Any], label: str) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        with torch.profiler.record_function(label):
            return function(*args, **more)

    return call


def profile(trainer: Trainer | None, kind: str, report: Report) -> None:
    """Milliseconds of the GPU by part, over one more step."""
    if trainer is None:
        return
    step, activities = trainer.steps[-1], torch.profiler.ProfilerActivity
    trainer.learner.train()
    with torch.profiler.profile(activities=[activities.CPU, activities.CUDA]) as seen:
        wait()
        began = time.perf_counter()
        trainer._one(step)
        wait()
        wall = time.perf_counter() - began
    trainer.learner.eval()
    spans, kernels = [], []
    on_gpu: Any = torch._C._autograd.DeviceType.CUDA
    for event in seen.events():
        if event.device_type != on_gpu:
            continue
        place = (event.time_range.start, event.time_range.end)
        if event.name in SPANS:
            spans.append((*place, event.name))
        else:
            kernels.append((*place, event.name))
    parts, by_name = sorted_parts(spans, kernels)
    report(
        {
            "name": f"{kind}, profile of a step, ms",
            "wall": round(1e3 * wall, 1),
            "launches": len(kernels),
            **parts,
        }
    )
    report({"name": f"{kind}, kernels, ms", **by_name})


def sorted_parts(
    spans: Sequence[tuple[float, float, str]], kernels: Sequence[tuple[float, float, str]], most: int = 40
) -> tuple[dict[str, float], dict[str, list[Any]]]:
    """Milliseconds by part, and by kernel with the number of launches; times are in microseconds."""
    spans, at = sorted(spans), 0
    parts: dict[str, float] = defaultdict(float)
    names: dict[str, list[Any]] = defaultdict(lambda: [0.0, 0])
    for start, end, name in sorted(kernels):
        while at < len(spans) and spans[at][1] <= start:
            at += 1
        inside = at < len(spans) and spans[at][0] <= start
        parts[spans[at][2] if inside else kind_of(name)] += (end - start) / 1e3
        names[name[:90]][0] += (end - start) / 1e3
        names[name[:90]][1] += 1
    top = sorted(names.items(), key=lambda item: -item[1][0])[:most]
    by_part = {name: round(value, 2) for name, value in sorted(parts.items(), key=lambda item: -item[1])}
    return by_part, {name: [round(value[0], 2), value[1]] for name, value in top}


def kind_of(kernel: str) -> str:
    low = kernel.lower()
    if any(word in low for word in MATRICES):
        return "matrices"
    if any(word in low for word in ATTENTION):
        return "attention"
    if low.startswith("triton_"):
        return "compiled, " + (
            "reductions" if low.startswith(("triton_red", "triton_per")) else "elementwise"
        )
    return "other"


# ------------------------------------------------------------------------------------------------- the command


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def one_part(name: str, scale: Scale, device: str) -> None:
    """Run a part here, and print its lines as JSON."""

    def report(row: Row) -> None:
        print(json.dumps(row), flush=True)

    if name in ("step", "rule"):
        (step if name == "step" else rule)(scale, device, report)
    else:
        train(name, scale, device, report)


def run_part(name: str, tiny: bool, fla: str, seconds: float, report: Report) -> None:
    """Run a part in a process of its own, and report its lines as they come. fla: a folder that the first part imports from, too;
    with flash-linear-attention in sight, transformers' layers would not run their own code."""
    alone = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", **os.environ}
    if name == "rule" and fla:
        alone["PYTHONPATH"] = os.pathsep.join(filter(None, (fla, alone.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "quantizer.experiments.bench.training_speed", "--part", name]
    until = time.monotonic() + seconds
    command += ["--tiny"] if tiny else []
    with subprocess.Popen(command, env=alone, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        out, text, some = child.stdout.fileno(), b"", b"x"
        while some and (left := until - time.monotonic()) > 0:
            if select.select([out], [], [], left)[0]:
                some = os.read(out, 2**16)
                text = _lines(text + some, report)
        child.kill() if some else child.wait()
    if some or child.returncode:
        report(
            {
                "name": name,
                "failed": f"not done in {seconds:.0f} s" if some else f"exit code {child.returncode}",
            }
        )


def _lines(text: bytes, report: Report) -> bytes:
    """Report every whole line; what is left."""
    *whole, rest = text.split(b"\n")
    for line in whole:
        if line.startswith(b"{"):
            report(json.loads(line))
    return rest


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that fit the budget."""
    parser = argparse.ArgumentParser(prog="python -m quantizer.experiments.bench.training_speed",
                                     description=__doc__.partition("\n")[0])  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PARTS, default=FIRST, help="these parts")
    parser.add_argument("--part", choices=PARTS, help="this one, in this process; lines of JSON")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too, as it comes")
    parser.add_argument(
        "--budget", type=float, default=480.0, metavar="SECONDS", help="for all (%(default)s)"
    )
    parser.add_argument(
        "--fla", default="", metavar="DIR", help="where flash-linear-attention is, for the first part"
    )
    parser.add_argument("--tiny", action="store_true", help="small shapes")
    given = parser.parse_args(arguments)
    device = default_device()
    if given.part:
        one_part(given.part, TINY if given.tiny else FULL, device)
        return 0
    if not (given.tiny or torch.cuda.is_available()):
        print("this measures a GPU, and torch sees none; --tiny runs on a CPU", file=sys.stderr)
        return 69
    until = time.monotonic() + given.budget
    results: list[Row] = []

    def report(row: Row) -> None:
        results.append(row)
        print(f"[{time.monotonic() - until + given.budget:5.0f} s] " + json.dumps(row), flush=True)
        if given.json:
            given.json.write_text(json.dumps(
                {"gpu": device_name(torch.device(device)), "torch": torch.__version__, "results": results}, indent=1
            ) + "\n")  # fmt: skip

    for name in given.only:
        if until - time.monotonic() > 20 or given.tiny:
            run_part(name, given.tiny, given.fla, until - time.monotonic(), report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
