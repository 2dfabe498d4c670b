"""The forms of the chain: the model, the amount of training, the gate's questions, and the place where vLLM runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.conformance.engines import CPU, GPU, TOLD
from tests.scale import scaled

ROOT: Final = Path(__file__).parents[2]
MODELS: Final = ROOT / "models"

TUNED, PTQ, TRAINED, SPARE, BAD = "tuned", "ptq", "trained", "spare", "bad"
"""Engines of the chain."""


@dataclass(frozen=True)
class Setting:
    """One form of the chain.

    device: torch's. cure: the recipe that trains the quantized model. tune, recover: values of `[train]` for the fine-tune and for
    the cure. folders: what of `models` each engine serves. policy: of the gates; None: the short one of the demo, on its suite.
    quiet, bake: seconds. vllm: its interpreter, and vllm_program what that runs. vllm_path: a folder of wheels, if it lies in
    none of its own. threads: of llama.cpp.
    """

    device: str
    cure: str
    tune: Mapping[str, object]
    recover: Mapping[str, object]
    folders: Mapping[str, str]
    policy: str | None = None
    quiet: float = 5.0
    sound: float = 3.0
    bake: int = 45
    callers: int = 4
    vllm: Path = CPU.python
    vllm_program: tuple[str, ...] = CPU.program
    vllm_path: str = ""
    vllm_args: tuple[str, ...] = ()
    vllm_env: dict[str, str] = field(default_factory=dict)
    threads: int = 1

    @property
    def cuda(self) -> bool:
        """A real model, learned; vLLM computes NVFP4 itself. Else annie-nano, and vLLM gets the same values in BF16."""
        return self.device == "cuda"

    @property
    def vllm_command(self) -> list[str]:
        """What starts vLLM's server, without the arguments."""
        return [str(self.vllm), *self.vllm_program]


_SERVED: Final = (
    "--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "16", "--enforce-eager", TOLD,
    "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
)  # fmt: skip
_ONE_STEP: Final = {"max_steps": 1, "batch_tokens": 256, "micro_tokens": 256, "lr": 1e-6, "compile": "false"}

ON_CPU: Final = Setting(
    device="cpu",
    cure="qat",
    tune=_ONE_STEP,
    recover=_ONE_STEP,
    folders={
        TUNED: "tuned-f16", PTQ: "ptq-served", TRAINED: "trained-served", SPARE: "trained-q4_k_m", BAD: "bad",
    },
    vllm_args=(*_SERVED, "--reasoning-parser", "qwen3"),
    vllm_env=dict(CPU.environment),
    quiet=2.0,
    bake=scaled(20, 45),
    callers=scaled(2, 4),
)  # fmt: skip
"""Every phase with annie-nano, and nothing learned."""
ON_GPU: Final = Setting(
    device="cuda",
    cure="qad",
    tune={"lr": 5e-5, "compile": "false"},
    recover={"lr": 1e-4, "epochs": 4, "compile": "false"},
    folders={TUNED: "tuned", PTQ: "ptq", TRAINED: "trained", SPARE: "trained-q4_k_m"},
    policy="derived",
    quiet=10.0,
    vllm=GPU.python,
    vllm_program=GPU.program,
    # A GPU before Blackwell would leave the inputs in BF16; emulated, they are rounded as a DGX Spark rounds them.
    vllm_args=(*_SERVED, "--gpu-memory-utilization", "0.2", "--kv-cache-memory-bytes", "1G", "--linear-backend", "emulation"),
    vllm_env={"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_V2_MODEL_RUNNER": "0"},
    threads=8,
)  # fmt: skip
"""SmolLM2-135M, as docs/study trains it."""
SETTINGS: Final = {"cpu": ON_CPU, "cuda": ON_GPU}
