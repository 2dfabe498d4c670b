"""What a recipe may say: its sections as frozen values, each number with its range. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from gates.policy.decoder import Refused

Scales = Literal["max", "mse", "four_over_six"]
Backend = Literal["manners", "modelopt", "auto_round"]
NVFP4_BITS: Final = 4.5
BF16_BITS: Final = 16.0


def between(key: str, value: float, low: float, high: float) -> None:
    """Raises Refused unless low <= value <= high."""
    if not low <= value <= high:
        raise Refused(key, f"must be from {low:g} to {high:g}, not {value:g}")


@dataclass(frozen=True, slots=True)
class Layers:
    """Which linear layers become NVFP4; the others stay in BF16.

    include, exclude: patterns over module names with the wildcards of fnmatch, as "*.mlp.*"; one that covers nothing
    is an error. first, last: so many decoder layers at either end stay. deltanet: false keeps every projection of
    DeltaNet's linear attention.

    Never quantized, whatever stands here: lm_head and embeddings (a server wants them whole, and they are often one
    matrix), DeltaNet's conv1d and in_proj_a / in_proj_b (their few columns set decay and gate of the state).
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    deltanet: bool = True

    def __post_init__(self) -> None:
        if not self.include:
            raise Refused("include", 'must hold a pattern; "*" is every linear layer')
        between("first", self.first, 0, 1000)
        between("last", self.last, 0, 1000)


@dataclass(frozen=True, slots=True)
class Weights:
    """How the weights' block scales are found; a server sees no difference.

    max: from each block's largest weight. mse: for each block the E4M3 scale with the least squared error, of all
    126. four_over_six: the better of two, codes ending at 6 or at 4 (arXiv 2512.02010).
    """

    scales: Scales = "max"


@dataclass(frozen=True, slots=True)
class Calibrate:
    """conversations: so many at most, the first of the file. max_tokens: longer ones are left out and counted.
    batch_tokens: padded tokens that go through the model at once."""

    conversations: int = 512
    max_tokens: int = 2048
    batch_tokens: int = 8192

    def __post_init__(self) -> None:
        between("conversations", self.conversations, 1, 1_000_000)
        between("max_tokens", self.max_tokens, 16, 1_000_000)
        between("batch_tokens", self.batch_tokens, 16, 16_777_216)


@dataclass(frozen=True, slots=True)
class Awq:
    """AWQ-lite, folded into norms and up_proj (arXiv 2306.00978). alpha_step: of the search over [0, 1].
    least_gain: norm gains smaller than this are not scaled, since dividing by them would lose digits."""

    alpha_step: float = 0.1
    least_gain: float = 0.05

    def __post_init__(self) -> None:
        between("alpha_step", self.alpha_step, 0.01, 1.0)
        between("least_gain", self.least_gain, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Auto:
    """A mix of NVFP4 and BF16 by sensitivity. effective_bits: a weight of the decoder's linear layers may have so
    many on average; NVFP4 has 4.5. samples: so many are scored, of those that calibrate."""

    effective_bits: float = 6.0
    samples: int = 64

    def __post_init__(self) -> None:
        between("effective_bits", self.effective_bits, NVFP4_BITS, BF16_BITS)
        between("samples", self.samples, 1, 1_000_000)


@dataclass(frozen=True, slots=True)
class Svdquant:
    """A report only: what a branch of this rank in BF16 beside NVFP4 would save."""

    rank: int = 32

    def __post_init__(self) -> None:
        between("rank", self.rank, 1, 4096)


@dataclass(frozen=True, slots=True)
class Rounding:
    """AutoRound's: steps of signed gradients for each block, and the length of its rows of data."""

    steps: int = 200
    tokens: int = 512

    def __post_init__(self) -> None:
        between("steps", self.steps, 0, 100_000)
        between("tokens", self.tokens, 16, 65_536)


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank adapters that are merged before the last rounding. targets: patterns over the quantized layers."""

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        between("rank", self.rank, 1, 4096)
        between("alpha", self.alpha, 1e-3, 1e6)


@dataclass(frozen=True, slots=True)
class Train:
    """Training, with the quantization in place unless `quantized` is false.

    loss: "ce" on what the assistant wrote, "kl" from the model's own BF16 (forward, at the same tokens), or "mix" of
    both, `ce_share` of the first. trained: "weights", or "scales" for block scales alone (LSQ). thinking: "as_is", or
    "none" to put an empty thought before every answer. epochs may be a fraction; max_steps ends sooner. lr: peak,
    after `warmup` (a share of all steps), then by `schedule` to `floor` of it. batch_tokens: padded tokens of one
    optimizer step, in micro-batches of micro_tokens at most. refresh: after so many steps the weights' amax is taken
    anew; 0 only at the end. save: a checkpoint after so many steps. top_k: the divergence over the teacher's so many
    likeliest tokens and all the others as one; 0 is over the whole vocabulary.

    precision: "bf16" is what a server computes in, with float32 masters behind it; "autocast" keeps float32 weights
    and multiplies in BF16; "fp32" is for tests. recompute: activations are computed again for the backward pass, for
    a third more time and a fraction of the memory.

    optimizer: "adamw" is exact, with float32 masters and moments: 20 bytes and more for a parameter. "adamw_8bit" and
    "adamw_4bit" take 4 and 3: BF16 weights that are rounded stochastically, moments of so many bits, each gradient
    applied inside backward and freed. A step is one micro-batch then, quantized weights are rounded in each forward
    instead of once a step, and clipping is by parameter (`quantizer.train.optimizer_in_backward`).
    """

    loss: Literal["ce", "kl", "mix"] = "ce"
    ce_share: float = 0.5
    trained: Literal["weights", "scales"] = "weights"
    quantized: bool = True
    thinking: Literal["as_is", "none"] = "as_is"
    epochs: float = 3.0
    max_steps: int = 0
    lr: float = 1e-5
    warmup: float = 0.05
    schedule: Literal["cosine", "constant"] = "cosine"
    floor: float = 0.1
    weight_decay: float = 0.0
    betas: tuple[float, ...] = (0.9, 0.95)
    clip: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    batch_tokens: int = 4096
    micro_tokens: int = 4096
    max_tokens: int = 2048
    refresh: int = 50
    save: int = 200
    seed: int = 1
    precision: Literal["bf16", "autocast", "fp32"] = "bf16"
    recompute: bool = False
    compile: bool = True
    optimizer: Literal["adamw", "adamw_8bit", "adamw_4bit"] = "adamw"

    def __post_init__(self) -> None:
        for key, low, high in _RANGES:
            between(key, getattr(self, key), low, high)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise Refused("betas", "must be two numbers below 1")
        if self.micro_tokens > self.batch_tokens:
            raise Refused("micro_tokens", "must not be more than batch_tokens")
        if self.trained == "scales" and not self.quantized:
            raise Refused("trained", 'scales cannot be trained where "quantized" is false')
        if self.optimizer == "adamw":
            return
        if self.micro_tokens != self.batch_tokens:
            raise Refused("batch_tokens", f'must be micro_tokens with optimizer = "{self.optimizer}"')
        if self.trained == "scales":
            raise Refused("optimizer", f'"{self.optimizer}" trains weights; leave it out to train scales')


_RANGES: Final = (
    ("ce_share", 0.0, 1.0),
    ("epochs", 0.001, 1000.0),
    ("max_steps", 0, 10**9),
    ("lr", 0.0, 1.0),
    ("warmup", 0.0, 1.0),
    ("floor", 0.0, 1.0),
    ("weight_decay", 0.0, 10.0),
    ("clip", 0.0, 1e9),
    ("temperature", 0.01, 100.0),
    ("top_k", 0, 10**6),
    ("batch_tokens", 16, 2**30),
    ("micro_tokens", 16, 2**30),
    ("max_tokens", 16, 2**20),
    ("refresh", 0, 10**9),
    ("save", 1, 10**9),
    ("seed", 0, 2**63 - 1),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A whole recipe. description: one line for a list. backend: who does the work; "manners" is this program."""

    name: str
    description: str = ""
    backend: Backend = "manners"
    layers: Layers = field(default_factory=Layers)
    weights: Weights = field(default_factory=Weights)
    calibrate: Calibrate = field(default_factory=Calibrate)
    awq: Awq | None = None
    auto: Auto | None = None
    svdquant: Svdquant | None = None
    rounding: Rounding | None = None
    train: Train | None = None
    lora: Lora | None = None

    def __post_init__(self) -> None:
        searches = [name for name in ("awq", "auto", "svdquant") if getattr(self, name)]
        if len(searches) > 1 and searches != ["awq", "auto"]:
            raise Refused(searches[-1], f"cannot be joined with {searches[0]}")
        if self.lora and not (self.train and self.train.trained == "weights"):
            raise Refused("lora", 'needs a [train] of "weights"')
        if self.lora and self.train and self.train.optimizer != "adamw":
            raise Refused("lora", 'needs train.optimizer = "adamw"')
        if self.svdquant and self.train:
            raise Refused("svdquant", "is a report; nothing is trained")
        if self.rounding and self.backend != "auto_round":
            raise Refused("rounding", 'is AutoRound\'s; needs backend = "auto_round"')
        if self.backend == "auto_round" and self.weights != Weights():
            raise Refused("weights", "AutoRound finds its own scales; leave the section out")
        if self.backend != "manners" and (searches or self.train):
            raise Refused("backend", f"{self.backend} takes no [{(searches or ['train'])[0]}]")

    @property
    def kind(self) -> Literal["ptq", "train", "report"]:
        """What runs it: quantizer.ptq.quantize, quantizer.train, or a report without an artefact."""
        return "train" if self.train else "report" if self.svdquant else "ptq"
