"""What differs between the chain's forms: how much is trained, what the gate asks, and where vLLM runs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.conformance.engines import CPU, GPU, TOLD
from tests.scale import scaled

ROOT: Final = Path(__file__).parents[2]
MODELS: Final = ROOT / "models"


@dataclass(frozen=True)
class Dose:
    """A training: optimizer steps, tokens of each, and the peak rate."""

    steps: int
    tokens: int
    lr: float

    @property
    def flags(self) -> tuple[str, ...]:
        """The same for `manners quantize`. Nothing is compiled: that takes longer than so few steps."""
        found = {"max_steps": self.steps, "epochs": 1000, "batch_tokens": self.tokens,
                 "micro_tokens": self.tokens, "lr": self.lr, "compile": "false"}  # fmt: skip
        return tuple(word for key, value in found.items() for word in ("--set", f"train.{key}={value}"))


@dataclass(frozen=True)
class Setting:
    """One form of the chain.

    device: torch's. ptq: the type of `manners quantize gguf` that the fine-tune is quantized to without training. thin: the base is too thin a fine-tune; else it is
    annie-nano, and the shipped thin file stands in for the PTQ. conversations: in each
    of the two files of data. policy: of the gates; None: the short one of the demo.
    quiet, bake: seconds. at_once: gates that run beside one another. vllm: its interpreter, and vllm_program what that runs. vllm_path: a folder of wheels, if it lies in none of its own.
    """

    device: str
    tune: Dose
    recover: Dose
    conversations: int
    calibrated: int
    ptq: str = "q2_k"
    thin: bool = True
    policy: str | None = None
    quiet: float = 5.0
    sound: float = 3.0
    bake: int = 45
    callers: int = 4
    at_once: int = 1
    vllm: Path = CPU.python
    vllm_program: tuple[str, ...] = CPU.program
    vllm_path: str = ""
    vllm_args: tuple[str, ...] = ()
    vllm_env: dict[str, str] = field(default_factory=dict)

    @property
    def cuda(self) -> bool:
        """Whether vLLM computes NVFP4 itself; on a CPU it gets the same values in BF16."""
        return self.device == "cuda"

    @property
    def vllm_command(self) -> list[str]:
        """What starts vLLM's server, without the arguments."""
        return [str(self.vllm), *self.vllm_program]


_SERVED: Final = (
    "--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "16", "--enforce-eager", TOLD,
    "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3",
)  # fmt: skip

ON_CPU: Final = Setting(
    device="cpu",
    thin=False,
    tune=Dose(1, 256, 1e-6),
    recover=Dose(1, 256, 1e-6),
    conversations=4,
    calibrated=2,
    vllm_args=_SERVED,
    vllm_env=dict(CPU.environment),
    quiet=2.0,
    bake=scaled(20, 45),
    callers=scaled(2, 4),
)
"""Every phase, and nothing learned."""
ON_GPU: Final = Setting(
    device="cuda",
    tune=Dose(4, 1024, 1e-5),
    recover=Dose(200, 8192, 1e-4),
    conversations=1024,
    calibrated=256,
    policy="annie-nano-short",
    quiet=10.0,
    at_once=7,
    vllm=GPU.python,
    vllm_program=GPU.program,
    vllm_args=(*_SERVED, "--gpu-memory-utilization", "0.2", "--kv-cache-memory-bytes", "1G"),
    vllm_env={"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_V2_MODEL_RUNNER": "0"},
)
SETTINGS: Final = {"cpu": ON_CPU, "cuda": ON_GPU}
