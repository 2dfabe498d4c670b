"""Recipes: how a model is quantized, as a strict TOML file read into frozen values. A step without a section is skipped:

    [layers]                      which linear layers become NVFP4
    [weights]                     how their block scales are found
    [calibrate]                   how much data sets the input scales
    [awq] [auto]                  searches before the quantization
    [feedback]                    rounding that makes up for its own error, for inputs, and for a fine-tune's change
    [rounding]                    AutoRound's settings
    [train] [lora]                training with the quantization in place

The shipped recipes are `quantizer/recipes/*.toml`. `--set train.lr=1e-6` changes a single value.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from gates.decode.decoder import DecodeError, Meta, read
from gates.decode.files import TomlFiles, read_text
from quantizer.core.errors import RecipeError

Scales = Literal["max", "mse", "four_over_six"]
Backend = Literal["manners", "auto_round"]
NVFP4_BITS: Final = 4.5
BF16_BITS: Final = 16.0


@dataclass(frozen=True, slots=True)
class Layers:
    """Which linear layers become NVFP4; the others stay in BF16.

    include, exclude: patterns (fnmatch) over module names; one that matches nothing is an error. first, last: decoder layers at each
    end that stay in BF16. deltanet: false keeps DeltaNet's projections in BF16. Never quantized: lm_head, embeddings, DeltaNet's
    conv1d and in_proj_a / in_proj_b (their few columns set the decay and the gate of its state).
    """

    include: Annotated[tuple[str, ...], Meta(min_length=1)] = ("*",)
    exclude: tuple[str, ...] = ()
    first: Annotated[int, Meta(ge=0, le=1000)] = 0
    last: Annotated[int, Meta(ge=0, le=1000)] = 0
    deltanet: bool = True


@dataclass(frozen=True, slots=True)
class WeightScales:
    """How block scales are found. max: from the largest weight; mse: the best of all 126; four_over_six: arXiv 2512.02010."""

    scales: Scales = "max"


@dataclass(frozen=True, slots=True)
class Calibrate:
    """Data for calibration: conversations drawn by kind. max_tokens: longer ones are skipped; batch_tokens: padded tokens in one
    forward pass."""

    conversations: Annotated[int, Meta(ge=1, le=1_000_000)] = 512
    max_tokens: Annotated[int, Meta(ge=16, le=1_000_000)] = 2048
    batch_tokens: Annotated[int, Meta(ge=16, le=16_777_216)] = 8192
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1


@dataclass(frozen=True, slots=True)
class Awq:
    """AWQ-lite, folded into norms and up_proj. least_gain: channels whose norm gain is smaller are not scaled. rounded_inputs: the
    search counts what the rounding of inputs costs, too (W4A4)."""

    alpha_step: Annotated[float, Meta(ge=0.01, le=1)] = 0.1
    least_gain: Annotated[float, Meta(ge=0, le=1)] = 0.05
    rounded_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Feedback:
    """Rounding with error feedback (GPTQ, arXiv 2210.17323), under the block scales of [weights].

    damping: a share of the mean, added to the Gram matrix's diagonal. delta: the share of a token's weight that follows how much the
    fine-tune changes the layer's output there, for which the model before the fine-tune is needed.
    """

    damping: Annotated[float, Meta(ge=1e-6, le=1)] = 0.03
    delta: Annotated[float, Meta(ge=0, le=1)] = 0.0


@dataclass(frozen=True, slots=True)
class Auto:
    """A mix of NVFP4 and BF16 layers, chosen by sensitivity; effective_bits: the average of a decoder weight (NVFP4 has 4.5)."""

    effective_bits: Annotated[float, Meta(ge=NVFP4_BITS, le=BF16_BITS)] = 6.0
    samples: Annotated[int, Meta(ge=1, le=1_000_000)] = 64


@dataclass(frozen=True, slots=True)
class Rounding:
    """AutoRound's settings. steps: of signed gradient descent for each block. tokens: length of its rows of data."""

    steps: Annotated[int, Meta(ge=0, le=100_000)] = 200
    tokens: Annotated[int, Meta(ge=16, le=65_536)] = 512


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank adapters that are merged before the final rounding. targets: patterns over the quantized layers."""

    rank: Annotated[int, Meta(ge=1, le=4096)] = 16
    alpha: Annotated[float, Meta(ge=1e-3, le=1e6)] = 32.0
    targets: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class RateUpTo:
    """A peak learning rate for small models. parameters: of the largest model that it is for."""

    parameters: Annotated[int, Meta(ge=1, le=10**15)]
    lr: Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Train:
    """Training, with the quantization in place unless `quantized` is false.

    loss: "ce" on what the assistant wrote, "kl" from the model's own BF16, or "mix", `ce_share` of the first. trained: "weights", or
    "scales" alone (LSQ). thinking: "none" puts an empty thought before every answer. epochs may be a fraction; max_steps ends sooner.
    lr: peak, after `warmup`, then a cosine to `floor` of it; lr_up_to: other peaks for smaller models. batch_tokens: padded
    tokens of one step, in micro-batches of micro_tokens. refresh: after so many steps the weights' amax is taken again. precision:
    "bf16" is what a server computes in, "fp32" is for tests. recompute: activations are computed again for backward, except of the last `kept_layers`.
    optimizer: "adamw" takes 20 bytes for a parameter, "adamw_8bit" and "adamw_4bit" 4 and 3; a step is one micro-batch then
    (`quantizer.train.optimizer_in_backward`).
    """

    loss: Literal["ce", "kl", "mix"] = "ce"
    ce_share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    trained: Literal["weights", "scales"] = "weights"
    quantized: bool = True
    thinking: Literal["as_is", "none"] = "as_is"
    epochs: Annotated[float, Meta(ge=0.001, le=1000)] = 3.0
    max_steps: Annotated[int, Meta(ge=0, le=10**9)] = 0
    lr: Annotated[float, Meta(ge=0, le=1)] = 1e-5
    warmup: Annotated[float, Meta(ge=0, le=1)] = 0.05
    floor: Annotated[float, Meta(ge=0, le=1)] = 0.1
    weight_decay: Annotated[float, Meta(ge=0, le=10)] = 0.0
    betas: tuple[Annotated[float, Meta(ge=0, lt=1)], ...] = (0.9, 0.95)
    clip: Annotated[float, Meta(ge=0, le=1e9)] = 1.0
    temperature: Annotated[float, Meta(ge=0.01, le=100)] = 1.0
    batch_tokens: Annotated[int, Meta(ge=16, le=2**30)] = 4096
    micro_tokens: Annotated[int, Meta(ge=16, le=2**30)] = 4096
    max_tokens: Annotated[int, Meta(ge=16, le=2**20)] = 2048
    refresh: Annotated[int, Meta(ge=0, le=10**9)] = 50
    save: Annotated[int, Meta(ge=1, le=10**9)] = 200
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    precision: Literal["bf16", "fp32"] = "bf16"
    recompute: bool = False
    kept_layers: Annotated[int, Meta(ge=0, le=1000)] = 0
    compile: bool = True
    optimizer: Literal["adamw", "adamw_8bit", "adamw_4bit"] = "adamw"
    lr_up_to: tuple[RateUpTo, ...] | None = None

    def __post_init__(self) -> None:
        sizes = [rate.parameters for rate in self.lr_up_to or ()]
        if any(size >= larger for size, larger in pairwise(sizes)):
            raise DecodeError("lr_up_to", "must be in rising order of parameters")
        if len(self.betas) != 2:
            raise DecodeError("betas", "must be two numbers below 1")
        if self.micro_tokens > self.batch_tokens:
            raise DecodeError("micro_tokens", "must not be more than batch_tokens")
        if self.trained == "scales" and not self.quantized:
            raise DecodeError("trained", 'scales cannot be trained where "quantized" is false')
        if self.optimizer == "adamw":
            return
        if self.micro_tokens != self.batch_tokens:
            raise DecodeError("batch_tokens", f'must be micro_tokens with optimizer = "{self.optimizer}"')
        if self.trained == "scales":
            raise DecodeError("optimizer", f'"{self.optimizer}" trains weights; leave it out to train scales')


@dataclass(frozen=True, slots=True)
class Recipe:
    """A whole recipe. description: one line. backend: what does the work; "manners" is this program. activations: "bf16" leaves
    a layer's inputs as they are (W4A16). kv_cache: "fp8" tells a server to keep it so."""

    name: str
    description: str = ""
    backend: Backend = "manners"
    activations: Literal["nvfp4", "bf16"] = "nvfp4"
    kv_cache: Literal["bf16", "fp8"] = "bf16"
    layers: Layers = field(default_factory=Layers)
    weights: WeightScales = field(default_factory=WeightScales)
    calibrate: Calibrate = field(default_factory=Calibrate)
    awq: Awq | None = None
    feedback: Feedback | None = None
    auto: Auto | None = None
    rounding: Rounding | None = None
    train: Train | None = None
    lora: Lora | None = None

    def __post_init__(self) -> None:
        if self.feedback and (clash := [n for n in ("auto", "train") if getattr(self, n)]):
            raise DecodeError("feedback", f"cannot be joined with {clash[0]}")
        if self.lora and not (self.train and self.train.trained == "weights"):
            raise DecodeError("lora", 'needs a [train] of "weights"')
        if self.lora and self.train and self.train.optimizer != "adamw":
            raise DecodeError("lora", 'needs train.optimizer = "adamw"')
        if self.rounding and self.backend != "auto_round":
            raise DecodeError("rounding", 'is AutoRound\'s; needs backend = "auto_round"')
        if self.backend == "auto_round" and self.weights != WeightScales():
            raise DecodeError("weights", "AutoRound finds its own scales; leave the section out")
        ours = [name for name in ("awq", "auto", "feedback", "train") if getattr(self, name)]
        if self.backend != "manners" and self.weight_only:
            raise DecodeError("activations", f"{self.backend} rounds inputs, too; leave the key out")
        if self.backend != "manners" and ours:
            raise DecodeError("backend", f"{self.backend} takes no [{ours[0]}]")

    def for_size(self, parameters: int) -> Recipe:
        """The recipe for a model of so many parameters: its own peak learning rate stands in `train.lr`."""
        train = self.train
        if train is None or train.lr_up_to is None:
            return self
        lr = next((rate.lr for rate in train.lr_up_to if parameters <= rate.parameters), train.lr)
        return replace(self, train=replace(train, lr=lr, lr_up_to=None))

    @property
    def weight_only(self) -> bool:
        """Whether inputs are not rounded."""
        return self.activations == "bf16"

    @property
    def kind(self) -> Literal["ptq", "train"]:
        """What runs the recipe: `quantizer.ptq.quantize` or `quantizer.train`."""
        return "train" if self.train else "ptq"

    @property
    def streamed(self) -> bool:
        """Whether one decoder layer at a time is enough."""
        return self.kind == "ptq" and self.backend == "manners" and self.auto is None


FILES: Final = TomlFiles("recipe", Path(__file__).parent, RecipeError)
MAX_BYTES: Final = 2**20
shipped_recipes: Final = FILES.shipped


def load_recipe(name_or_path: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """Load a shipped recipe by its name, or any by the path of its .toml file, with `changes`: "train.lr=1e-6". Raises RecipeError."""
    path = FILES.path(name_or_path)
    return parse_recipe(read_text(path, RecipeError, MAX_BYTES), path.stem, str(path), changes)


def parse_recipe(text: str, name: str, where: str = "recipe", changes: Iterable[str] = ()) -> Recipe:
    """Parse a recipe from TOML text and apply changes. Raises RecipeError."""
    table = FILES.table(text, where)
    try:
        for change in changes:
            _change(table, change)
        return read(Recipe, {"name": name, **table})
    except DecodeError as refused:
        raise RecipeError(f"{where}: {refused}") from None


def recipe_as_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as JSON values, with every default filled in and without what is None, as a step that is skipped."""
    found: dict[str, Any] = _listed(asdict(recipe))
    return found


def _change(table: dict[str, Any], change: str) -> None:
    """Set one value of a table; create sections that are missing. A learning rate that is set is for every size."""
    key, sign, value = (part.strip() for part in change.partition("="))
    if not sign or not key:
        raise DecodeError("", f"{change!r} is not an assignment, as train.lr=1e-6 is")
    *sections, last = key.split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise DecodeError(key, f"{section} is not a table")
    table[last] = _value(value)
    if last == "lr":
        table.pop("lr_up_to", None)


def _value(text: str) -> Any:
    """Parse a TOML value. A bare word counts as a string, so that no nested quotes are needed in a shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(inner) for key, inner in value.items() if inner is not None}
    return [_listed(inner) for inner in value] if isinstance(value, tuple) else value
