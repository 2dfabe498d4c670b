"""How much memory an engine takes, and whether there is room. Pure but for the two readers at the end.

On a GB10 the GPU's memory is the host's: no container limit holds CUDA's part of it, and a full one
wedges the machine until somebody cuts its power. MemAvailable is the one number that is honest there;
`cudaMemGetInfo` counts the page cache as used, and nvidia-smi has none (operations, 0.1 and 0.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from deploy.core.flags import flag_value
from deploy.memory.gguf import Value

GIB: Final = 1 << 30
LOAD: Final = 1.15
"""Weights while they are loaded, over their size on disk."""
VLLM_OVERHEAD: Final = int(6.7 * GIB)
"""CUDA's context, graphs and activations: 5.4 to 6.7 GiB were measured (llamastash PR#81)."""
LLAMA_OVERHEAD: Final = GIB // 4
VLLM_SHARE: Final = 0.92
"""vLLM's --gpu-memory-utilization when nobody says otherwise."""
LLAMA_CACHE: Final = 8192
"""llama-server's --cache-ram when nobody says otherwise, in MiB: prompts of the past."""
LARGEST_FLOOR: Final = 12 * GIB
"""Community guards of a Spark use 12 to 16 GiB."""
SAMPLES: Final = 3
"""Looks under the floor, in a row, that end a candidate; one under the hard floor does."""
BACK: Final = 2 * GIB
"""What may be missing after a stop and still count as noise."""

_BYTES: Final[Mapping[str, float]] = {"f32": 4, "f16": 2, "bf16": 2, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Bytes a value of llama.cpp's KV cache types; blocks of 32 with a scale of two bytes."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the host: all of it, and what can be had without swapping."""

    total: int
    available: int

    @property
    def floor(self) -> int:
        """What has to stay available: a tenth, 12 GiB at most."""
        return min(self.total // 10, LARGEST_FLOOR)

    @property
    def hard_floor(self) -> int:
        """Below this a single look is enough."""
        return self.floor // 2


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why an engine is not let in; `code` is for programs."""

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
    """None: there is room for `need` bytes more, above the floor."""
    return Shortage(need, memory) if memory.available - need < memory.floor else None


def strategy(available: int, need: int, floor: int) -> Literal["blue_green", "stop_then_start"]:
    """Whether a candidate fits beside what runs now. Bytes."""
    return "blue_green" if available - need >= floor else "stop_then_start"


def came_back(before: Memory, now: Memory) -> bool:
    """Whether what was available before an engine's start is again, after its stop.

    What others took meanwhile is forgiven: 2 GiB, or a tenth of a smaller host. If it is not, a dead
    CUDA process may hold it until the machine is started anew (vllm#45179).
    """
    return now.available >= before.available - min(BACK, now.total // 10)


@dataclass(frozen=True, slots=True)
class Watch:
    """What a watchdog has seen: looks under the floor, in a row."""

    floor: int
    hard_floor: int
    low: int = 0

    def look(self, available: int) -> "Watch":
        """The watch after one more look."""
        low = self.low + 1 if available < self.floor else 0
        return Watch(self.floor, self.hard_floor, SAMPLES if available < self.hard_floor else low)

    @property
    def is_over(self) -> bool:
        """Whether the candidate has to go, at once."""
        return self.low >= SAMPLES


def vllm_need(args: Sequence[str], weights: int, total: int) -> int:
    """Bytes that a vLLM takes of memory that it shares with the host.

    Without a size for its KV cache it takes a share of all there is, whatever its weights need.
    """
    kv = _number(args, "--kv-cache-memory-bytes", "--kv-cache-memory")
    if kv is not None:
        return int(weights * LOAD) + int(kv) + VLLM_OVERHEAD
    share = _number(args, "--gpu-memory-utilization")
    return max(int((VLLM_SHARE if share is None else share) * total), int(weights * LOAD) + VLLM_OVERHEAD)


def llama_need(
    args: Sequence[str],
    weights: int,
    metadata: Mapping[str, Value],
    *,
    context: int = 0,
    cache_mib: int = LLAMA_CACHE,
) -> int:
    """Bytes that a llama.cpp server takes: weights, the KV cache of its context, prompts of the past.

    `context` and `cache_mib` are what it has without flags; a context of 0 is the model's own.
    """
    given = _number(args, "--ctx-size", "-c")
    tokens = int(given if given is not None else context) or _whole(metadata, "context_length")
    prompts = _number(args, "--cache-ram", "-cram")
    kept = int(max(cache_mib if prompts is None else prompts, 0)) << 20
    kinds = (("--cache-type-k", "-ctk"), ("--cache-type-v", "-ctv"))
    k, v = (_BYTES.get(flag_value(args, *names) or "f16", 2) for names in kinds)
    return int(weights * LOAD) + int(tokens * kv_values(metadata) * (k + v)) + kept + LLAMA_OVERHEAD


def kv_values(metadata: Mapping[str, Value]) -> int:
    """Values that a token puts into the K cache (and as many into the V cache), over all layers.

    Layers without attention name no heads, where the file says so layer by layer; else each is taken
    for one that has them: too much rather than too little.
    """
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
    """What /proc/meminfo says.

    Raises:
        ValueError: it has no MemTotal or no MemAvailable.
    """
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        total, available = (int(lines[key].split()[0]) << 10 for key in ("MemTotal", "MemAvailable"))
    except (LookupError, ValueError):
        raise ValueError("/proc/meminfo has no MemTotal and MemAvailable") from None
    return Memory(total, available)


def read_memory(path: Path = Path("/proc/meminfo")) -> Memory:
    """The host's memory now.

    Raises:
        OSError, ValueError: this system has no such file, or it says nothing.
    """
    return parse_meminfo(path.read_text("ascii"))


def has_own_memory(root: Path = Path("/proc/driver/nvidia/gpus")) -> bool:
    """Whether there is an NVIDIA GPU with memory of its own; a GB10 shares the host's."""
    cards = [path.read_text("utf-8", "replace") for path in root.glob("*/information")]
    return bool(cards) and not any("GB10" in card for card in cards)
