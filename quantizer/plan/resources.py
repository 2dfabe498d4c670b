"""A plan before the work: what a recipe takes on a model, whether a machine has it, and what to change if not. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from quantizer.plan.duration import durations, step_seconds
from quantizer.plan.machine import GIB, Machine, accelerator
from quantizer.plan.memory import (
    GATHERED,
    PART,
    PARTS,
    PROCESS_ON_CPU,
    DataSize,
    Job,
    PhaseNeed,
    disk,
    make_job,
    overhead,
    phases,
)
from quantizer.plan.model import PlannedModel
from quantizer.recipes.recipe import Recipe, recipe_as_json

LEAST_TOKENS: Final = 1024
"""No shorter micro-batch is proposed."""
WORDS: Final = {
    "train.recompute": "activations are computed again: a third more time",
    "train.optimizer": "BF16 weights and low-bit moments for float32 masters and moments (docs/study)",
    "train.batch_tokens": "shorter steps",
    "train.micro_tokens": "fewer tokens at once",
    "train.max_tokens": "longer conversations are left out",
    "calibrate.batch_tokens": "fewer tokens at once; the result hardly differs",
    "calibrate.max_tokens": "longer conversations are left out",
}
"""What a changed value means."""
SMALL: Final = GIB
"""A job that takes less is not refused: a host's free memory changes by as much from one moment to the next."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the recipe that saves memory. assignment: for --set. words: what it means."""

    assignment: str
    words: str


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """What a job takes, and whether it fits. needed, available: bytes by place ("GPU memory", "host memory", "memory", "disk").

    changes: what to change until it fits; enough: whether it fits with all of them.
    """

    model: PlannedModel
    recipe: Recipe
    machine: Machine
    phases: tuple[PhaseNeed, ...]
    disk: dict[str, int]
    seconds: dict[str, float] | None
    tokens_per_second: float | None
    needed: Mapping[str, int]
    available: Mapping[str, int]
    changes: tuple[Change, ...] = ()
    enough: bool = True
    notes: tuple[str, ...] = ()

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
        if self.changes and self.enough:
            found.append("try " + " ".join(f"--set {change.assignment}" for change in self.changes))
        elif self.recipe.awq or self.recipe.auto:
            found.append("take the recipe mse, which searches without data")
        return ", or ".join(found) or "no setting makes it fit: take more memory, or a smaller model"

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
            "changes": [asdict(change) for change in self.changes],
            "enough": self.enough,
            "notes": list(self.notes),
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
    first = _estimate(model, recipe, machine, data, bf16)

    def tried(changed: Recipe) -> ResourcePlan:
        return _estimate(model, changed, machine, data, bf16)

    if not _lacks_memory(first):
        return first
    settings = _settings_that_fit(model, recipe, tried)
    cheaper = _changed(recipe, settings or ())
    return replace(first, changes=_differences(recipe, cheaper), enough=settings is not None)


def _lacks_memory(made: ResourcePlan) -> bool:
    return bool(made.short.keys() - {"disk"})


def _estimate(
    model: PlannedModel, recipe: Recipe, machine: Machine, data: DataSize | None, bf16: bool
) -> ResourcePlan:
    job = make_job(model, recipe, machine.processes, data, on_cpu=machine.gpu is None)
    found, files = tuple(phases(job)), disk(job, bf16)
    chip = accelerator(machine.name)
    rate = None
    if recipe.train and chip:
        rate = round(recipe.train.batch_tokens / step_seconds(job, chip), 1)
    needed = _needed(found, machine) | {"disk": sum(files.values())}
    return ResourcePlan(
        model, recipe, machine, found, files, durations(job, machine.name), rate, needed,
        _available(machine), notes=tuple(_notes(job)),
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


Setting = dict[str, Any]
"""Values of [train], or the tokens of a batch of calibration as "calibrated"."""


def _settings_that_fit(
    model: PlannedModel, recipe: Recipe, tried: Callable[[Recipe], ResourcePlan]
) -> list[Setting] | None:
    """As few of the cheaper settings as make it fit, the least harmful first; None if all of them do not.

    What a DeltaNet keeps without recomputation is an estimate, so recomputation is never given up for one.
    """
    taken: list[Setting] = []
    for setting in _settings(recipe):
        taken.append(setting)
        if not _lacks_memory(tried(_changed(recipe, taken))):
            break
    else:
        return None
    sure = recipe.train is not None and not recipe.train.recompute and model.deltanet_layers > 0
    for setting in taken[1 if sure else 0 :]:
        without = [other for other in taken if other is not setting]
        if not _lacks_memory(tried(_changed(recipe, without))):
            taken = without
    return taken


def _settings(recipe: Recipe) -> list[Setting]:
    """Settings that take less memory, the least harmful first."""
    found: list[Setting] = []
    if train := recipe.train:
        low_bit = train.trained == "weights" and not recipe.lora
        found += [{"recompute": True}, *([{"optimizer": "adamw_8bit"}] if low_bit else [])]
        found += [{"micro_tokens": tokens} for tokens in _halves(train.micro_tokens)]
        found += [{"optimizer": "adamw_4bit"}] if low_bit else []
    return found + [{"calibrated": tokens} for tokens in _halves(recipe.calibrate.batch_tokens)]


def _halves(tokens: int) -> list[int]:
    found = []
    while tokens > LEAST_TOKENS:
        tokens = max(LEAST_TOKENS, tokens // 2)
        found.append(tokens)
    return found


def _changed(recipe: Recipe, settings: Iterable[Setting]) -> Recipe:
    """The recipe with other values, the later ones counting, and with those that follow from them: a step of few bytes is
    one micro-batch, and a row that is longer than a batch would be one by itself."""
    values = {key: value for setting in settings for key, value in setting.items()}
    if tokens := values.pop("calibrated", None):
        shorter = min(tokens, recipe.calibrate.max_tokens)
        recipe = replace(recipe, calibrate=replace(recipe.calibrate, batch_tokens=tokens, max_tokens=shorter))
    if values and recipe.train:
        micro = values.setdefault("micro_tokens", recipe.train.micro_tokens)
        values["max_tokens"] = min(recipe.train.max_tokens, micro)
        if values.get("optimizer", recipe.train.optimizer) != "adamw":
            values["batch_tokens"] = micro
        recipe = replace(recipe, train=replace(recipe.train, **values))
    return recipe


def _differences(recipe: Recipe, changed: Recipe) -> tuple[Change, ...]:
    """The changed values as assignments for --set."""
    before, after = recipe_as_json(recipe), recipe_as_json(changed)
    found = []
    for section in ("train", "calibrate"):
        for key, value in after.get(section, {}).items():
            if value != before[section][key]:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                found.append(Change(f"{section}.{key}={text}", WORDS[f"{section}.{key}"]))
    return tuple(found)


def _notes(job: Job) -> Iterator[str]:
    """What is assumed."""
    model, settings = job.model, job.train
    if job.recipe.backend != "manners":
        yield f"the work is done by {job.recipe.backend}, whose own memory is not known here"
    if settings and model.deltanet_layers and not settings.recompute:
        yield "without train.recompute a DeltaNet's activations were measured for half of the layers only"
    if model.mtp:
        yield "the MTP head is copied as it is, and is not trained"


def lacking(needed: Mapping[str, int], available: Mapping[str, int]) -> dict[str, int]:
    """By place, the bytes that are missing; what needs hardly anything lacks nothing."""
    over = {place: needed[place] - there for place, there in available.items()}
    return {place: lack for place, lack in over.items() if lack > 0 and needed[place] > SMALL}


FILE_BITS: Final = {"f16": 16.0, "q8_0": 8.5, "q6_k": 6.6, "q5_k_m": 5.7, "q4_k_m": 4.9, "q2_k": 3.2}
"""Bits a weight of llama.cpp's mixes over Qwen's matrices."""


def gguf_needed(model: PlannedModel, kind: str) -> dict[str, int]:
    """Bytes of memory and disk that `manners quantize gguf` takes: parts of tensors, and the file."""
    bits = FILE_BITS.get(kind)
    file = model.stored if bits is None else int(model.parameters * bits / 8)
    return {"memory": PROCESS_ON_CPU + PARTS * PART, "disk": file}


def gguf_shortage(model: PlannedModel, kind: str, machine: Machine) -> str:
    """Why a GGUF file cannot be written here; empty if it can."""
    needed, available = gguf_needed(model, kind), _available(replace(machine, gpu=None))
    if not lacking(needed, available):
        return ""
    return f"{_told(needed, available)}; stop what else uses it, or name an --out on another disk"


def _told(needed: Mapping[str, int], available: Mapping[str, int]) -> str:
    lacks = [
        f"{_gib(needed[place])} of {place}, and {_gib(available[place])} can be taken"
        for place in lacking(needed, available)
    ]
    return f"needs {'; '.join(lacks)}"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
