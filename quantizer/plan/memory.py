"""Peak memory of a job, by phase and by part: formulas over a model's sizes and a recipe, and nothing else.

Every function gives bytes. The constants in capitals were measured; `tests/quantizer/plan/test_against_measurements.py` compares
the sums with the peaks in docs/study. What torch's allocator and CUDA's context take is in `overhead`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from quantizer.checkpoint.streamed import HEAD_ROWS
from quantizer.layers.selection import layer_index, select_layers
from quantizer.nvfp4.blocks import BLOCK
from quantizer.plan.model import PlannedModel
from quantizer.recipes.recipe import Recipe, Train
from quantizer.train.head import CHUNK_BYTES
from quantizer.train.optimizer_in_backward import CHUNK
from quantizer.verify.folder import PART_BYTES

GIB: Final = 2**30
BF16, F32, F64 = 2, 4, 8
LEARNED: Final = 0.27
"""The share of tokens that are the assistant's, and so of positions that need logits; as in the measurements."""
SAVED: Final = 0.61
"""Of what a compiled layer could keep for backward, how much it keeps. Measured: QAT and SFT of the 0.47B model in
docs/study/bench.json; `quantizer.train.speed.KEPT` asks for 0.7 of what the compiler would keep by itself."""
SAVED_SHARDED: Final = 0.44
"""The same where FSDP2 gathers the weights of each layer. Measured: QAT of the 0.47B model on two GPUs, docs/study/two_gpus.json."""
SAVED_EAGERLY: Final = 1.3
"""The same without compilation: norms keep float32 copies. An estimate."""
DELTANET_FORWARD: Final = 18
"""Float32 tensors [tokens, value heads, value size] that live at once in a forward pass of a DeltaNet. Measured: ptq of the
9B shape in docs/study/whole-path.json; transformers' own recurrence takes 16 (low-bit/real_size.json)."""
DELTANET_BACKWARD: Final = 36
"""The same in a recomputed layer's backward pass. Measured: training of the 27B shape, where it makes the peak."""
DELTANET_SAVED: Final = 3
"""The same that a layer keeps for backward if it is not recomputed: BF16 tensors around the recurrence, whose own states
are made again. Measured: the rows with kept layers in docs/study/low-bit/training_speed.json."""
STEP_BYTES: Final = 2 * 4 * CHUNK
"""Two float32 temporaries of the optimizer in backward."""
PARTS: Final = 8
"""Parts of tensors that are in memory at a time: of readers, and what is hashed while the next is written."""
PACKED: Final = 20
"""Bytes a weight while one matrix is rounded and packed: float32 steps, quotients and codes. Counted, not measured."""
SEARCHED: Final = 24
"""Bytes a weight while AWQ tries one alpha on layers that share an input. Measured: awq of whole-path.json."""
FED_BACK: Final = 2 * 28
"""Error feedback, of gate and up as one matrix: seven copies in float32. Counted, not measured."""
HELD: Final = 1.65
"""How often the hidden states of calibration are there. Fitted to the two recipes of whole-path.json; one copy is known of."""
TOKENS_EACH: Final = 320
"""Tokens of a conversation where no file is given: the mean of the field notes' own."""
PADDING: Final = 1.1
"""Padded tokens for each of the data, in batches of similar lengths. An estimate."""
CONTEXT: Final = int(0.6 * GIB)
FRAGMENTS: Final = 0.03
"""CUDA's context, and what the allocator reserves and does not use: 0.4 to 3 % of the peak (real_size.json)."""
PROCESS, PROCESS_ON_CPU = int(2.1 * GIB), GIB // 2
"""Host memory of Python, torch and transformers, with and without CUDA's libraries. Measured: whole-path.json."""
MOMENTS: Final[Mapping[str, float]] = {
    "adamw": 8.0,
    "adamw_8bit": 2 + 2 * 4 / 256,
    "adamw_4bit": 1 + 2 * 4 / 128,
}
"""Bytes of AdamW's two moments for a parameter. torchao keeps a float32 scale for 256 or 128 codes."""

GATHERED: Final = "whole weights"
"""What only the process has that writes the result."""
Parts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DataSize:
    """How much data there is. conversations: lines. tokens: in all of them."""

    conversations: int
    tokens: int

    def first(self, conversations: int) -> int:
        """Tokens of so many conversations."""
        return int(self.tokens * min(1.0, conversations / max(1, self.conversations)))


@dataclass(frozen=True, slots=True)
class PhaseNeed:
    """What one phase of a job holds at its worst moment, in bytes by part."""

    name: str
    device: Parts
    host: Parts

    @property
    def on_device(self) -> int:
        return sum(self.device.values())

    @property
    def on_host(self) -> int:
        return sum(self.host.values())


@dataclass(frozen=True, slots=True)
class Job:
    """What is planned. quantized: elements of the layers that become NVFP4. factors, targets: elements of
    adapters, and of the layers that have them. on_cpu: nothing is compiled."""

    model: PlannedModel
    recipe: Recipe
    quantized: int
    factors: int = 0
    targets: int = 0
    processes: int = 1
    data: DataSize | None = None
    on_cpu: bool = False

    @property
    def calibration_data(self) -> int:
        """Tokens of the conversations that calibration reads."""
        limit = self.recipe.calibrate.conversations
        return self.data.first(limit) if self.data else limit * TOKENS_EACH

    @property
    def train(self) -> Train | None:
        return self.recipe.train

    @property
    def compiled(self) -> bool:
        """Whether training runs compiled."""
        return self.train is not None and self.train.compile and not self.on_cpu

    @property
    def calibrated_tokens(self) -> int:
        """Padded tokens of a forward pass of calibration, at most; a longer conversation is a pass by itself."""
        return max(self.recipe.calibrate.batch_tokens, self.recipe.calibrate.max_tokens)


def make_job(
    model: PlannedModel,
    recipe: Recipe,
    processes: int = 1,
    data: DataSize | None = None,
    on_cpu: bool = False,
) -> Job:
    """Select the layers that become NVFP4. Raises RecipeError if the recipe does not fit the model."""
    linear = model.linear
    job = Job(model, recipe, 0, processes=processes, data=data, on_cpu=on_cpu)
    if recipe.train and not recipe.train.quantized:
        return job
    columns = {name: shape[1] for name, shape in linear.items()}
    chosen = select_layers(columns, model.matrices, recipe.layers)
    quantized = sum(linear[name][0] * linear[name][1] for name in chosen)
    if not recipe.lora:
        return replace(job, quantized=quantized)
    adapted = [n for n in chosen if any(fnmatchcase(n, pattern) for pattern in recipe.lora.targets)]
    return replace(
        job,
        quantized=quantized,
        factors=sum(recipe.lora.rank * sum(linear[name]) for name in adapted),
        targets=sum(linear[name][0] * linear[name][1] for name in adapted),
    )


def phases(job: Job) -> list[PhaseNeed]:
    """All phases of a job, in the order in which they run."""
    settings = job.train
    made = [calibrate(job)] if settings is None or settings.quantized else []
    if settings is not None:
        if settings.loss != "ce":
            made.insert(0, teacher(job, settings))
        worst = max(_training(job, settings), key=lambda parts: sum(parts.values()))
        made.append(PhaseNeed("train", worst, _host(job)))
    if job.recipe.auto:
        made.append(score(job))
    made.append(export(job))
    return made


def overhead(device: int) -> int:
    """What a process takes of a GPU beyond its tensors: CUDA's context, and fragments of torch's allocator."""
    return CONTEXT + int(FRAGMENTS * device)


# ------------------------------------------------------------------------------------------- before training


def weights(model: PlannedModel, precision: str = "bf16") -> int:
    """The model itself: 2P in BF16, 4P in float32."""
    return model.parameters * (BF16 if precision == "bf16" else F32)


def calibrate(job: Job) -> PhaseNeed:
    """All data through one decoder layer after the other: the hidden states between two layers, a layer's temporaries,
    what the search of one layer holds, and the weights: of that layer alone where the model is streamed."""
    model, recipe = job.model, job.recipe
    hidden = int(HELD * PADDING * job.calibration_data) * model.width * BF16
    parts = _shared(job, {"weights": weights(model)}) | {"hidden states": hidden}
    if job.recipe.streamed:
        parts["weights"] = model.largest_layer * BF16 + 2 * HEAD_ROWS * model.width * BF16
    search = 0
    if recipe.feedback:
        parts["calibration"] = gram(model) + model.width**2 * F32  # of o_proj's inputs, too
        search = FED_BACK * model.largest_inside + 3 * F64 * max(model.width, model.intermediate) ** 2
    elif recipe.awq:
        parts["calibration"] = gram(model)
        search = SEARCHED * 2 * model.largest_inside  # gate and up are one matrix to a search
    elif not job.train:
        search = PACKED * model.largest_inside
    parts["activations"] = max(forward(model, job.calibrated_tokens), search)
    if job.train and job.train.loss != "ce":
        parts["teacher"] = model.head * BF16
    return PhaseNeed("calibrate", parts, _host(job))


def forward(model: PlannedModel, tokens: int) -> int:
    """Temporaries of a forward pass without gradients, of the larger kind of layer: the MLP's BF16 tensors (4 as wide
    as it is, 6 as wide as the model), or the DeltaNet's float32 ones."""
    dense = (4 * model.intermediate + 6 * model.width) * BF16
    return tokens * max(dense, DELTANET_FORWARD * model.deltanet_width * F32)


def gram(model: PlannedModel) -> int:
    """X^T X in float32 for each input of one layer that AWQ scales: what both norms feed, and down_proj's."""
    return F32 * (2 * model.width**2 + model.intermediate**2)


def score(job: Job) -> PhaseNeed:
    """`auto`: every layer's input of one batch, and the logits of its assistant's tokens: the BF16 model's, the changed
    one's, and their logarithms."""
    model, tokens = job.model, job.calibrated_tokens
    parts = {
        "weights": weights(model),
        "activations": forward(model, tokens) + tokens * model.layers * model.width * BF16,
        "logits": int(LEARNED * tokens) * model.vocabulary * (2 * BF16 + 2 * F32),
    }
    return PhaseNeed("auto", parts, _host(job))


def teacher(job: Job, settings: Train) -> PhaseNeed:
    """The source's own forward passes; then a copy of its head stays."""
    model = job.model
    more = max(forward(model, tokens_at_once(settings)), model.head * BF16)
    parts = _shared(job, {"weights": weights(model, settings.precision)}) | {"activations": more}
    return PhaseNeed("teacher", parts, _host(job))


# ------------------------------------------------------------------------------------------------- training


def tokens_at_once(settings: Train) -> int:
    """Padded tokens of a micro-batch, at most; a longer conversation is one by itself."""
    return max(settings.micro_tokens, settings.max_tokens)


def _training(job: Job, settings: Train) -> Iterator[dict[str, int]]:
    """The moments of a step that can be the worst: the head, a layer's backward pass, and the optimizer's step."""
    model, kept = job.model, _kept(job, settings)
    saved = {"activations": activations(job, settings)}
    accumulated = _accumulated(job, settings)
    yield kept | accumulated | saved | {"logits": logits(job, settings)}
    if settings.recompute:
        gradient = _gradients_in_backward(job, settings) + sum(accumulated.values())
        yield kept | saved | {"gradients": gradient, "block": layer_backward(model, tokens_at_once(settings))}
    if settings.optimizer == "adamw":
        yield kept | {"gradients": gradients(job, settings)}


def _kept(job: Job, settings: Train) -> dict[str, int]:
    """What training holds all the time, by part; a process's share of it where several train."""
    model, few = job.model, settings.optimizer != "adamw"
    moved = _moved(job, settings)
    parts = {"weights": weights(model, settings.precision)}
    if few:
        matrices = model.parameters - model.vectors
        parts["moments"] = int(MOMENTS[settings.optimizer] * matrices) + 12 * model.vectors
    else:
        parts["moments"] = int(MOMENTS["adamw"] * moved)
        if settings.trained == "scales":
            parts["scales"] = F32 * moved
        elif job.recipe.lora:
            # The factors, and a copy of the weights below them.
            parts["masters"] = F32 * moved + BF16 * job.targets
        elif settings.precision == "bf16":
            parts["masters"] = F32 * moved
    if settings.quantized and not few and job.processes == 1:  # else each forward pass rounds them
        # Held until the next step; where the scales learn, each forward keeps its own for their gradients.
        parts["rounded weights"] = BF16 * job.quantized
    parts = _shared(job, parts)
    if settings.loss != "ce":
        parts["teacher"] = model.head * BF16
    return parts


def _shared(job: Job, parts: dict[str, int]) -> dict[str, int]:
    """A process's share of what is cut into rows, and what it gathers: FSDP2 has one decoder layer whole while the next
    comes, and keeps what is around the layers."""
    if job.processes == 1:
        return parts
    model = job.model
    around = sum(math.prod(shape) for name, shape in model.tensors.items() if layer_index(name) is None)
    gathered = BF16 * (around + 2 * model.largest_layer)
    return {name: size // job.processes for name, size in parts.items()} | {"gathered": gathered}


def _moved(job: Job, settings: Train) -> int:
    """How many numbers an exact optimizer moves."""
    if settings.trained == "scales":
        return job.quantized // BLOCK
    return job.factors if job.recipe.lora else job.model.parameters


def _accumulated(job: Job, settings: Train) -> dict[str, int]:
    """Gradients that wait for the other micro-batches of a step."""
    if settings.optimizer != "adamw" or settings.batch_tokens < 2 * settings.micro_tokens:
        return {}
    return {"gradients": F32 * _moved(job, settings) // job.processes}


def gradients(job: Job, settings: Train) -> int:
    """At the end of an exact step: float32 for everything that moves, and the last BF16 gradient that becomes one. With
    adapters, BF16 gradients of the weights below them instead."""
    moved = F32 * _moved(job, settings) // job.processes
    if settings.trained == "scales" or settings.precision != "bf16":
        return moved
    if job.recipe.lora:
        return moved + BF16 * job.targets
    return moved + BF16 * job.model.largest


def _gradients_in_backward(job: Job, settings: Train) -> int:
    """All BF16 gradients of the exact path; of the others one layer's largest matrix and its step's temporaries."""
    if settings.optimizer == "adamw":
        return BF16 * _moved(job, settings) // job.processes
    return BF16 * job.model.largest_inside + STEP_BYTES


def activations(job: Job, settings: Train) -> int:
    """What forward keeps for backward: a layer's input where it is recomputed, otherwise the tensors of
    `layer_widths`, of which a compiler keeps a part."""
    model, tokens = job.model, tokens_at_once(settings)
    kept = SAVED_SHARDED if job.processes > 1 else SAVED
    kept = kept if job.compiled else SAVED_EAGERLY
    wide = BF16 if settings.precision != "fp32" else F32
    attention, mlp = layer_widths(model, bool(job.quantized))
    dense = kept * wide * (attention * model.attention_layers + mlp * model.layers)
    deltanet = DELTANET_SAVED * F32 * model.deltanet_width * model.deltanet_layers
    everything = int(tokens * (dense + deltanet))
    if not settings.recompute:
        return everything
    inputs = tokens * model.layers * model.width * BF16
    return inputs + everything * min(settings.kept_layers, model.layers) // max(1, model.layers)


def layer_widths(model: PlannedModel, quantized: bool) -> tuple[int, int]:
    """Numbers a token that backward needs of an attention and of an MLP, each with its norm.

    Attention: its input and the norm's output, q, k and v before and after their norms and the rotation, and its output. MLP: its
    input, the norm's output, gate, up and their product. Quantized: the rounded inputs of all layers too.
    """
    wide, q, kv = model.width, model.heads * model.head_size, model.key_heads * model.head_size
    attention, mlp = 2 * wide + 3 * q + 3 * kv, 2 * wide + 3 * model.intermediate
    if quantized:
        attention, mlp = attention + wide + q, mlp + wide + model.intermediate
    return attention, mlp


def layer_backward(model: PlannedModel, tokens: int) -> int:
    """A recomputed layer's tensors and their gradients, of the larger kind of layer."""
    dense = 2 * BF16 * sum(layer_widths(model, quantized=True))
    return tokens * max(dense, DELTANET_BACKWARD * model.deltanet_width * F32)


def logits(job: Job, settings: Train) -> int:
    """The head: what `quantizer.train.head` holds at once, in chunks of at most `CHUNK_BYTES`, with their gradients in BF16 and float32.

    Where few positions are learned the logits' gradients are kept in BF16; otherwise the head's gradient is summed in float32.
    """
    model = job.model
    places = max(1, int(LEARNED * tokens_at_once(settings)))
    most = max(1, CHUNK_BYTES // (F32 * model.vocabulary))
    size = -(-places // -(-places // most)) * model.vocabulary
    chunk = size * (2 * (BF16 + F32) + (0 if settings.loss == "ce" else BF16 + F32))
    if not job.compiled:
        chunk *= 2
    if settings.trained == "scales" or job.recipe.lora:
        return chunk  # the head does not move
    step = 0 if settings.optimizer == "adamw" else STEP_BYTES
    if places * BF16 < F32 * model.width:
        changes = places * model.vocabulary * BF16
        return changes + max(chunk, model.head * BF16 + step)
    return F32 * model.head + max(chunk, (F32 + BF16) * model.head + step)


# ----------------------------------------------------------------------------------------------- the result


def export(job: Job) -> PhaseNeed:
    """Parts of tensors are written and hashed, then the folder is read back and compared layer by layer. Where the model
    is whole, it and a training's state are still there."""
    model = job.model
    if job.recipe.streamed:
        held = {"weights": 2 * model.largest_layer * BF16}
    elif job.train:
        held = {name: size for name, size in _kept(job, job.train).items() if name != "rounded weights"}
        if job.processes > 1:
            held[GATHERED] = weights(model)
    else:
        held = {"weights": weights(model)}
    more = {"layer": model.largest_layer * BF16, "packing": PACKED * model.largest_inside}
    host = _host(job)
    if job.processes > 1:
        host[GATHERED] = weights(model)  # one process puts the model together
    return PhaseNeed("export", held | more, host)


def result(job: Job) -> int:
    """The folder that is made: 4.5 bits for a weight in NVFP4, BF16 for the others, and what was carried
    along."""
    model = job.model
    others = model.parameters - job.quantized
    return int(4.5 / 8 * job.quantized) + BF16 * others + model.carried


def disk(job: Job, bf16: bool = False) -> dict[str, int]:
    """Bytes on the disk at the worst moment, by part: a training keeps a checkpoint while it writes the next, and its
    teacher's hidden states."""
    parts = {"result": result(job)}
    if job.train is None:
        return parts
    if bf16 and job.train.quantized:
        parts["bf16"] = weights(job.model) + job.model.carried
    if job.train.loss != "ce":
        tokens = job.data.tokens if job.data else job.calibration_data
        parts["teacher"] = int(LEARNED * tokens) * job.model.width * BF16
    kept = _kept(job, job.train)
    states = ("masters", "moments", "scales") if job.train.optimizer == "adamw" else ("weights", "moments")
    count = 1 if 0 < job.train.max_steps <= job.train.save else 2
    parts["checkpoints"] = count * job.processes * sum(kept.get(name, 0) for name in states)
    return parts


def _host(job: Job) -> dict[str, int]:
    """The process, and parts of tensors on their way from or to the disk."""
    return {
        "process": PROCESS_ON_CPU if job.on_cpu else PROCESS,
        "reading": min(PARTS * PART_BYTES, 2 * job.model.stored),
    }
