"""How much memory an engine needs, and whether it fits. Pure except for the reader at the end.

On a GB10 the GPU uses the host's memory, and exhausting it hangs the machine. MemAvailable is the only reliable number there
(docs/spark.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast

from deploy.core.flags import flag_value, kv_types
from deploy.core.gguf import Value
from deploy.engine.dialects import DIALECTS
from deploy.engine.flags import DEFAULTS
from deploy.engine.gpu import NO_GPU
from deploy.engine.openai_api import OPENAI_API
from gates.contracts.dialect import Dialect

GIB: Final = 1 << 30
LOAD: Final = 1.15
"""Memory for the weights while they are loaded, relative to their size on disk."""
VLLM_OVERHEAD: Final = int(6.7 * GIB)
"""CUDA's context, graphs and activations: 5.4 to 6.7 GiB were measured (llamastash PR#81)."""
VLLM_CPU_OVERHEAD: Final = 2 * GIB
"""The same of a vLLM on the CPU: 1.4 GiB were measured (0.32.0, four processes and a keeper, without the cache)."""
LLAMA_OVERHEAD: Final = GIB // 4
VLLM_SHARE: Final = 0.92
"""vLLM's default of --gpu-memory-utilization."""
LLAMA_CACHE: Final = 8192
"""llama-server's default of --cache-ram in MiB, for cached prompts."""
LARGEST_FLOOR: Final = 12 * GIB
"""The largest floor; community scripts for a DGX Spark keep 12 to 16 GiB free."""
SAMPLES: Final = 3
"""A candidate is killed after this many samples in a row below the floor, or one below the hard floor."""
BACK: Final = 2 * GIB
"""The most memory that may be missing after a stop."""

_BYTES: Final[Mapping[str, float]] = {"f32": 4, "f16": 2, "bf16": 2, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Bytes per value of llama.cpp's KV cache types; quantized ones are blocks of 32 with a scale of two bytes."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The host's memory in bytes: in total, and available without swapping."""

    total: int
    available: int

    @property
    def floor(self) -> int:
        """Bytes that must stay available: a tenth of the total, at most 12 GiB."""
        return min(self.total // 10, LARGEST_FLOOR)

    @property
    def hard_floor(self) -> int:
        """Bytes below which a single sample is enough."""
        return self.floor // 2


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why an engine is not admitted; `code` is for programs."""

    need: int
    memory: Memory
    code: str = "memory"

    @property
    def why(self) -> str:
        """One sentence with the numbers."""
        there, floor = self.memory.available, self.memory.floor
        return (
            f"needs {self.need / GIB:.1f} GiB, and {there / GIB:.1f} GiB are available,"
            f" of which {floor / GIB:.1f} GiB have to stay free"
        )


def admit(need: int, memory: Memory) -> Shortage | None:
    """None if `need` bytes fit above the floor."""
    return Shortage(need, memory) if memory.available - need < memory.floor else None


def strategy(available: int, need: int, floor: int) -> Literal["blue_green", "stop_then_start"]:
    """Whether a candidate fits beside the running engines. All values in bytes."""
    return "blue_green" if available - need >= floor else "stop_then_start"


def came_back(before: Memory, now: Memory) -> bool:
    """Whether as much memory is available after an engine's stop as before its start, but for 2 GiB or a tenth of a small host's."""
    return now.available >= before.available - min(BACK, now.total // 10)


@dataclass(frozen=True, slots=True)
class Watch:
    """A watchdog's state: the number of samples in a row below the floor."""

    floor: int
    hard_floor: int
    low: int = 0

    def look(self, available: int) -> "Watch":
        """The watch after one more sample."""
        low = self.low + 1 if available < self.floor else 0
        return Watch(self.floor, self.hard_floor, SAMPLES if available < self.hard_floor else low)

    @property
    def is_over(self) -> bool:
        """Whether the candidate must be killed."""
        return self.low >= SAMPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What decides an engine's need. `kv_values` and `context`: of its GGUF; `cpu`: it computes there; `own_memory`: the GPU has its own."""

    dialect: str
    driver: str
    weights: int
    total: int
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    kv_values: int = 0
    context: int = 0
    cpu: bool = False
    own_memory: bool = False


def engine_need(load: EngineLoad) -> int:
    """Bytes of host memory that an engine of ours needs."""
    dialect = DIALECTS.get(cast("Dialect", load.dialect), OPENAI_API)
    if dialect.takes_share:
        return VLLM_OVERHEAD if load.own_memory and not load.cpu else _share_need(load)
    if dialect.gguf:
        return _llama_need(load)
    return int(load.weights * LOAD) + VLLM_OVERHEAD  # an estimate


def _share_need(load: EngineLoad) -> int:
    """Of memory that it shares with the host. Without a size for its KV cache it takes a share of the total memory."""
    kv = _number(load.args, "--kv-cache-memory-bytes", "--kv-cache-memory")
    if load.cpu and (gib := load.env.get("VLLM_CPU_KVCACHE_SPACE", "")).isdecimal():
        kv = int(gib) * GIB  # it goes before the flag
    least = int(load.weights * LOAD) + (VLLM_CPU_OVERHEAD if load.cpu else VLLM_OVERHEAD)
    if kv is not None:
        return least + int(kv)
    share = _number(load.args, "--gpu-memory-utilization")
    return max(int((VLLM_SHARE if share is None else share) * load.total), least)


def _llama_need(load: EngineLoad) -> int:
    """Weights, the KV cache of its context, cached prompts; a context of 0 is the model's own."""
    usual: Mapping[str, object] = (
        DEFAULTS if load.driver == "embedded" else {"n_ctx": 0, "cache_ram_mib": LLAMA_CACHE}
    )
    given, prompts = _number(load.args, "--ctx-size", "-c"), _number(load.args, "--cache-ram", "-cram")
    tokens = int(str(usual["n_ctx"]) if given is None else given) or load.context
    kept = int(max(int(str(usual["cache_ram_mib"])) if prompts is None else prompts, 0)) << 20
    types = kv_types(load.args)
    k, v = (_BYTES.get(types.get(part, "f16"), 2) for part in ("K", "V"))
    return int(load.weights * LOAD) + int(tokens * load.kv_values * (k + v)) + kept + LLAMA_OVERHEAD


def context_length(metadata: Mapping[str, Value]) -> int:
    """The longest context that the model was made for."""
    return _whole(metadata, "context_length")


def kv_values(metadata: Mapping[str, Value]) -> int:
    """Values per token in the K cache of all layers; without heads per layer in the file, every layer counts."""
    layers, heads = _whole(metadata, "block_count"), _of(metadata, "attention.head_count_kv")
    width = _whole(metadata, "attention.key_length")
    if not width:
        width = _whole(metadata, "embedding_length") // max(_whole(metadata, "attention.head_count"), 1)
    if isinstance(heads, tuple):
        return int(sum(heads)) * width
    return layers * int(heads or 0) * width if not isinstance(heads, str) else 0


def _of(metadata: Mapping[str, Value], key: str) -> Value | None:
    return metadata.get(f"{metadata.get('general.architecture')}.{key}")


def _whole(metadata: Mapping[str, Value], key: str) -> int:
    value = _of(metadata, key)
    if isinstance(value, tuple):
        return int(max(value, default=0))
    return 0 if value is None or isinstance(value, str) else int(value)


def _number(args: Sequence[str], *names: str) -> float | None:
    try:
        return float(flag_value(args, *names) or "")
    except ValueError:
        return None


def parse_meminfo(text: str) -> Memory:
    """Parse /proc/meminfo. Raises ValueError: it has no MemTotal or no MemAvailable."""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        total, available = (int(lines[key].split()[0]) << 10 for key in ("MemTotal", "MemAvailable"))
    except (LookupError, ValueError):
        raise ValueError("/proc/meminfo has no MemTotal and MemAvailable") from None
    return Memory(total, available)


def read_memory(path: Path = Path("/proc/meminfo")) -> Memory:
    """The host's memory now. Raises OSError, ValueError."""
    return parse_meminfo(path.read_text("ascii"))


def has_own_memory(gpu: str) -> bool:
    """Whether the host's GPU has memory of its own; a GB10 shares the host's."""
    return gpu != NO_GPU and "GB10" not in gpu
