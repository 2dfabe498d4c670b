"""The real engines that the suite runs over, started here: llama.cpp's server, vLLM and SGLang.

Two templates, one model: annie-nano writes hermes JSON or Qwen3.5's XML as her prompt asks. vLLM
is started with the parser that fits, and also without: then thoughts, or thoughts and calls, come
as raw text, and are the gateway's to find.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deploy.drivers.embedded import EmbeddedEngine
from deploy.engine.spec import EngineSpec
from gates.contracts.dialect import Dialect
from tests.conformance import sglang_server
from tests.conformance.vllm_server import CPU, GPU, Install, running

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
XML = MODELS / "annie-nano-hf" / "additional_chat_templates" / "xml.jinja"


@dataclass(frozen=True)
class Kind:
    """One engine in one setting: a column of the table. `install` is vLLM's; llama.cpp has a `model`; else it is SGLang."""

    name: str
    title: str
    args: tuple[str, ...] = ()
    install: Install | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = "annie-nano-q4_k_m"

    @property
    def dialect(self) -> Dialect:
        """What the gateway is told that it is."""
        if self.is_sglang:
            return "sglang"
        return "vllm" if self.install else "llama-server"

    @property
    def is_sglang(self) -> bool:
        return self.name.startswith("sglang-")

    @property
    def weights(self) -> Path:
        """The folder that it serves."""
        if self.is_sglang:
            return sglang_server.WEIGHTS
        return self.install.weights if self.install else MODELS / self.model

    @property
    def missing(self) -> str | None:
        """Why it cannot be started here, and what to do; None when it can."""
        if self.install and (why := self.install.missing):
            return why
        if self.is_sglang and not sglang_server.PYTHON.exists():
            return sglang_server.MISSING
        return None if self.weights.exists() else "the nano models are missing: make nano"


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
        Kind("sglang-hermes", "SGLang, hermes", ("--tool-call-parser", "hermes")),
        Kind("sglang-xml", "SGLang, XML", ("--tool-call-parser", "qwen3_coder", *TEMPLATE)),
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
    """One that runs. `pid` is its server's process."""

    kind: Kind
    url: str
    pid: int


@asynccontextmanager
async def serving(kind: Kind, state: Path) -> AsyncIterator[Engine]:
    """Start it, wait until it streams, and stop it at the end. Logs go to `state`."""
    if kind.is_sglang:
        async with sglang_server.running_sglang("annie-nano", kind.args, state) as ready:
            assert ready.url and ready.pid
            yield Engine(kind, ready.url, ready.pid)
        return
    if kind.install is None:
        async with _llama(kind, state) as engine:
            yield engine
        return
    async with running(kind.install, kind.name, kind.args, kind.environment, state) as (url, pid):
        yield Engine(kind, url, pid)


@asynccontextmanager
async def _llama(kind: Kind, state: Path) -> AsyncIterator[Engine]:
    spec = EngineSpec(
        name=kind.name, dialect="llama-server", driver="embedded", artefact=kind.weights, args=kind.args
    )
    engine = EmbeddedEngine(spec, state_dir=state)
    try:
        ready = await engine.start()
        assert ready.url and ready.pid
        yield Engine(kind, ready.url, ready.pid)
    finally:
        await engine.stop()
