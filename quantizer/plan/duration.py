"""How long a job takes: counted work over measured efficiency, on GPUs whose figures are known. Expect a factor of two.

On another GPU than the measured one the same shares of its data sheet are assumed.
"""

from typing import Final

from quantizer.plan.machine import Accelerator, accelerator
from quantizer.plan.memory import Job, result

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


def durations(job: Job, gpu: str) -> dict[str, float] | None:
    """Seconds by part; None where the GPU or the amount of data is unknown, or another program does the work."""
    chip = accelerator(gpu)
    if chip is None or job.recipe.backend != "manners" or job.recipe.auto:
        return None
    model, settings, data = job.model, job.train, job.data
    parts = {"load": model.stored / READ}
    if settings is None or settings.quantized:
        parts["calibrate"] = forward_seconds(job, chip, job.calibration_data)
        parts["search"] = job.quantized * _searched(job) / chip.bandwidth
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


def _searched(job: Job) -> int:
    return (SEARCH_AWQ if job.recipe.awq else 0) + (SEARCH_MSE if job.recipe.weights.scales == "mse" else 0)


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
