"""A plan before the work: what a recipe takes on a model, whether a machine has it, and what to change if not. Pure.

Time is counted work over measured efficiency, on GPUs whose figures are known: expect a factor of two. On another GPU than the
measured one the same shares of its data sheet are assumed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from quantizer.plan.machine import GIB, Accelerator, Machine, accelerator
from quantizer.plan.memory import (
    GATHERED,
    PARTS,
    PROCESS_ON_CPU,
    DataSize,
    Job,
    PhaseNeed,
    disk,
    make_job,
    overhead,
    phases,
    result,
)
from quantizer.plan.model import PlannedModel
from quantizer.recipes.recipe import Recipe
from quantizer.verify.folder import PART_BYTES

TRAIN_DENSE: Final = 0.30
"""6 P T over peak, of a compiled dense model, without the optimizer's `MOVED` bytes. Measured: QAT of the 0.47B model in docs/study/bench.json, one H100."""
TRAIN_HYBRID: Final = 0.347
"""The same with DeltaNet on our chunked rule, layers recomputed. Measured (with the kernels of commit f3e439ea): QAT of the 9B shape in
docs/study/low-bit/training_speed.json, one H200."""
FORWARD: Final = 0.20
"""2 P T over peak, of calibration. Measured: ptq of the 9B shape in docs/study/whole-path.json, one H200."""
COMPILING: Final = 60.0
"""Seconds of the first steps, once, until torch.compile has made its kernels. Measured: the same runs, with cold caches."""
MOVED: Final = 26
"""Bytes a parameter and step: weights, moments and gradients are read and written, rounded weights made twice."""
MOVED_4BIT: Final = 138
"""The same with torchao's 4-bit moments, whose step is many kernels. Measured: QAD of the 27B shape in
docs/study/low-bit/real_size.json, one H200."""
SEARCH_AWQ: Final = 15_400
"""Bytes that AWQ's search moves for a quantized weight, eleven alphas, at the data sheet's bandwidth. Measured: 22.2 s for the
9B shape on one H200 (whole-path.json); 1.28 s for 0.47B on one H100 (bench.json) are two thirds of that."""
SEARCH_MSE: Final = 8000
"""The same for the sweep of 35 scales: ten times what one kernel took, 1.64 s at the 9B shape (docs/study/real-size-delta.json)."""
FED_BACK_COLUMN: Final = 1e-4
"""Error feedback, a column, the factor included. Measured: gptq of the 9B shape (docs/study/whole-path.json), one H200."""
READ, WRITTEN = 1.4e9, 0.5e9
"""Bytes a second from and to the disk, with starting and hashing, and with packing and the proof. Measured: ptq of
whole-path.json, 16 CPU cores."""
SMALL: Final = GIB
"""A job that takes less is not refused: a host's free memory changes by as much from one moment to the next."""


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """What a job takes, and whether it fits. needed, available: bytes by place ("GPU memory", "host memory", "memory", "disk")."""

    model: PlannedModel
    recipe: Recipe
    machine: Machine
    phases: tuple[PhaseNeed, ...]
    disk: dict[str, int]
    seconds: dict[str, float] | None
    tokens_per_second: float | None
    needed: Mapping[str, int]
    available: Mapping[str, int]

    @property
    def peak_device(self) -> int:
        return max(phase.on_device for phase in self.phases)

    @property
    def peak_host(self) -> int:
        return max(phase.on_host for phase in self.phases)

    @property
    def short(self) -> dict[str, int]:
        """The places that lack memory, and how much."""
        return lacking(self.needed, self.available)

    @property
    def fits(self) -> bool | None:
        """None: this machine's memory is not known."""
        if self.short:
            return False
        return True if self.needed.keys() - {"disk"} <= self.available.keys() else None

    @property
    def why(self) -> str:
        """One sentence with the numbers and the first thing to do; empty if it fits."""
        return f"{_told(self.needed, self.available)}; {self.advice}" if self.short else ""

    @property
    def advice(self) -> str:
        """What to do if it does not fit."""
        if set(self.short) == {"disk"}:
            return "free some of the disk, or name an --out on another"
        found = []
        idle = _available(self.machine.idle)
        if not lacking(self.needed, idle).keys() - {"disk"}:
            found.append("stop what else uses the memory")
        found += [
            f"try {' '.join(f'--set {change}' for change in changes)}" for changes in _lean(self.recipe)
        ]
        if self.recipe.awq or self.recipe.auto:
            found.append("take the recipe mse, which searches without data")
        return ", or ".join(found)

    def as_json(self) -> dict[str, Any]:
        """For scripts; the keys that others rely on come first."""
        return {
            "parameters": self.model.parameters,
            "peak_device_bytes": self.peak_device,
            "peak_host_bytes": self.peak_host,
            "disk_bytes": sum(self.disk.values()),
            "seconds": None if self.seconds is None else round(sum(self.seconds.values()), 1),
            "fits": self.fits,
            "recipe": self.recipe.name,
            "machine": self.machine.name,
            "unified_memory": self.machine.unified,
            "phases": [asdict(phase) for phase in self.phases],
            "disk": self.disk,
            "seconds_by_part": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "needed_bytes": dict(self.needed),
            "available_bytes": dict(self.available),
        }


def plan(
    model: PlannedModel,
    recipe: Recipe,
    machine: Machine,
    data: DataSize | None = None,
    *,
    bf16: bool = False,
) -> ResourcePlan:
    """What a recipe takes on a model, and whether a machine has it. Raises RecipeError if the recipe does not fit the model."""
    job = make_job(model, recipe, machine.processes, data, on_cpu=machine.gpu is None)
    found, files = tuple(phases(job)), disk(job, bf16)
    chip = accelerator(machine.name)
    rate = None
    if recipe.train and chip:
        rate = round(recipe.train.batch_tokens / step_seconds(job, chip), 1)
    needed = _needed(found, machine) | {"disk": sum(files.values())}
    return ResourcePlan(
        model, recipe, machine, found, files, durations(job, machine.name), rate, needed,
        _available(machine),
    )  # fmt: skip


def _needed(found: tuple[PhaseNeed, ...], machine: Machine) -> dict[str, int]:
    """Device and host memory, each with its own worst phase; where they are one, the worst sum of a phase."""
    context = overhead if machine.gpu else lambda device: 0
    if machine.unified:
        each = max(p.on_device + context(p.on_device) + p.on_host for p in found)
        return {"memory": each * machine.processes}
    return {
        "GPU memory": max(p.on_device + context(p.on_device) for p in found),
        "host memory": max(
            p.on_host + (machine.processes - 1) * (p.on_host - p.host.get(GATHERED, 0)) for p in found
        ),
    }


def _available(machine: Machine) -> dict[str, int]:
    """What may be taken: of the host's memory all but the floor that the guard keeps free."""
    found: dict[str, int] = {}
    if machine.gpu and machine.gpu.free is not None:
        found["GPU memory"] = machine.gpu.free
    if machine.host:
        found["memory" if machine.unified else "host memory"] = max(
            0, machine.host.available - machine.host.floor
        )
    if machine.disk is not None:
        found["disk"] = machine.disk
    return found


def _lean(recipe: Recipe) -> Iterator[list[str]]:
    """Changes of a recipe that take less memory, the least harmful first."""
    if (train := recipe.train) is None:
        yield [f"calibrate.batch_tokens={recipe.calibrate.batch_tokens // 2}"]
        return
    lean = [] if train.recompute else ["train.recompute=true"]
    if train.trained == "weights" and not recipe.lora and train.optimizer == "adamw":
        lean += ["train.optimizer=adamw_8bit", f"train.batch_tokens={train.micro_tokens}"]
    if lean:
        yield lean
    yield [
        f"train.{name}={train.micro_tokens // 2}" for name in ("batch_tokens", "micro_tokens", "max_tokens")
    ]


def lacking(needed: Mapping[str, int], available: Mapping[str, int]) -> dict[str, int]:
    """By place, the bytes that are missing; what needs hardly anything lacks nothing."""
    over = {place: needed[place] - there for place, there in available.items()}
    return {place: lack for place, lack in over.items() if lack > 0 and needed[place] > SMALL}


def durations(job: Job, gpu: str) -> dict[str, float] | None:
    """Seconds by part; None where the GPU or the amount of data is unknown, or another program does the work."""
    chip = accelerator(gpu)
    if chip is None or job.recipe.backend != "manners" or job.recipe.auto:
        return None
    model, settings, data = job.model, job.train, job.data
    parts = {"load": model.stored / READ}
    if settings is None or settings.quantized:
        parts["calibrate"] = forward_seconds(job, chip, job.calibration_data)
        searched = (SEARCH_AWQ if job.recipe.awq else 0) + (
            SEARCH_MSE if job.recipe.weights.scales == "mse" else 0
        )
        parts["search"] = job.quantized * searched / chip.bandwidth
        if job.recipe.feedback:
            parts["feedback"] = model.layers * (3 * model.width + model.intermediate) * FED_BACK_COLUMN
    if settings is not None:
        step = step_seconds(job, chip)
        if settings.max_steps:
            tokens = settings.max_steps * settings.batch_tokens
        elif data:
            tokens = int(settings.epochs * data.tokens)
        else:
            return None
        if settings.loss != "ce":
            parts["teacher"] = forward_seconds(job, chip, data.tokens if data else tokens)
        parts["compile"] = COMPILING if job.compiled else 0.0
        parts["train"] = step * tokens / settings.batch_tokens
    parts["export"] = result(job) / WRITTEN
    return parts


def forward_seconds(job: Job, chip: Accelerator, tokens: int) -> float:
    """2 P operations a token."""
    return 2 * job.model.parameters * tokens / (chip.flops * FORWARD)


def step_seconds(job: Job, chip: Accelerator) -> float:
    """One optimizer step: 6 P operations a token (a recomputed forward is in the measured share, a quarter of the work), and
    the bytes that the optimizer moves."""
    assert job.train is not None
    share = TRAIN_HYBRID if job.model.deltanet_layers else TRAIN_DENSE
    kept = min(job.train.kept_layers, job.model.layers) / job.model.layers if job.train.recompute else 0.0
    products = (
        (1 - kept / 4)
        * 6
        * job.model.parameters
        * job.train.batch_tokens
        / (chip.flops * share * job.processes)
    )
    moved = MOVED_4BIT if job.train.optimizer == "adamw_4bit" else MOVED
    return products + moved * job.model.parameters / chip.bandwidth


FILE_BITS: Final = {"f16": 16.0, "q8_0": 8.5, "q6_k": 6.6, "q5_k_m": 5.7, "q4_k_m": 4.9, "q2_k": 3.2}
"""Bits a weight of llama.cpp's mixes over Qwen's matrices."""


def gguf_needed(model: PlannedModel, kind: str) -> dict[str, int]:
    """Bytes of memory and disk that `manners quantize gguf` takes: parts of tensors, and the file."""
    bits = FILE_BITS.get(kind)
    file = model.stored if bits is None else int(model.parameters * bits / 8)
    return {"memory": PROCESS_ON_CPU + PARTS * PART_BYTES, "disk": file}


def gguf_shortage(model: PlannedModel, kind: str, machine: Machine) -> str:
    """Why a GGUF file cannot be written here; empty if it can."""
    needed, available = gguf_needed(model, kind), _available(replace(machine, gpu=None))
    if not lacking(needed, available):
        return ""
    return f"{_told(needed, available)}; stop what else uses it, or name an --out on another disk"


def _told(needed: Mapping[str, int], available: Mapping[str, int]) -> str:
    lacks = [
        f"{gib(needed[place])} of {place}, and {gib(available[place])} can be taken"
        for place in lacking(needed, available)
    ]
    return f"needs {'; '.join(lacks)}"


def gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
