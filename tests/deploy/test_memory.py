"""The guard of the host's memory: sizes, room, the floor, and a candidate that eats it all."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.core.gguf import Value, read_metadata
from deploy.drivers.url import UrlEngine
from deploy.engine.gpu import host_gpu
from deploy.engine.spec import EngineSpec
from deploy.memory import sizing
from deploy.memory.guard import Guard
from deploy.memory.sizing import (
    GIB,
    VLLM_CPU_OVERHEAD,
    VLLM_OVERHEAD,
    EngineLoad,
    Memory,
    admit,
    context_length,
    engine_need,
    kv_values,
    parse_meminfo,
    strategy,
)
from tests.deploy.conftest import NANO
from tests.scale import PATIENCE

SPARK = int(121.6 * GIB)


def spark(available: float) -> Memory:
    """A Spark with so many GiB available."""
    return Memory(SPARK, int(available * GIB))


@pytest.mark.parametrize("text", ["", "MemTotal: 1 kB\n", "MemTotal: x\nMemAvailable: y\n"])
def test_a_meminfo_without_the_two_numbers_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="MemAvailable"):
        parse_meminfo(text)


def test_a_candidate_that_leaves_the_floor_is_let_in() -> None:
    room = spark(50).available - spark(50).floor
    assert admit(room, spark(50)) is None
    short = admit(room + 1, spark(50))
    assert short is not None and short.code == "memory" and "12.0 GiB have to stay free" in short.why


@pytest.mark.parametrize(("need", "chosen"), [(38, "blue_green"), (38.1, "stop_then_start")])
def test_both_engines_stand_side_by_side_where_they_fit(need: float, chosen: str) -> None:
    assert strategy(50 * GIB, int(need * GIB), 12 * GIB) == chosen


def need(dialect: str, *args: str, weights: int = 0, **more: Any) -> int:
    """What an engine with these flags needs on a Spark."""
    return engine_need(
        EngineLoad(dialect=dialect, driver="process", weights=weights, total=SPARK, args=args, **more)
    )


def llama(*args: str) -> int:
    """The same of a llama-server over QWEN."""
    return need("llama-server", *args, kv_values=kv_values(QWEN), context=context_length(QWEN))


QWEN: dict[str, Value] = {
    "general.architecture": "qwen3", "qwen3.block_count": 36, "qwen3.attention.head_count_kv": 8,
    "qwen3.attention.key_length": 128, "qwen3.context_length": 40960,
}  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "args", "more", "size"),
    [
        ("vllm", ("--max-model-len", "9", "--kv-cache-memory-bytes=8589934592"), {}, 8 * GIB + VLLM_OVERHEAD),
        ("vllm", ("--kv-cache-memory-bytes", "1"), {"cpu": True, "env": {"VLLM_CPU_KVCACHE_SPACE": "3"}},
         3 * GIB + VLLM_CPU_OVERHEAD),
        ("vllm", (), {"own_memory": True}, VLLM_OVERHEAD),
        ("vllm", (), {}, int(0.92 * SPARK)),
        ("sglang", (), {"weights": 10 * GIB}, int(10 * GIB * sizing.LOAD) + VLLM_OVERHEAD),
    ],
)  # fmt: skip
def test_a_server_needs_weights_overhead_and_its_cache_or_a_share(
    dialect: str, args: tuple[str, ...], more: dict[str, Any], size: int
) -> None:
    assert need(dialect, *args, **more) == size


def test_a_llama_server_needs_its_context_and_the_prompts_that_it_keeps() -> None:
    args = ("--cache-ram", "0")
    by_token = llama(*args, "-c", "2") - llama(*args, "-c", "1")
    assert by_token == 36 * 8 * 128 * 2 * 2
    plain = llama()
    assert llama("-ctk", "q8_0", "--cache-type-v", "q8_0") < plain
    assert plain - llama(*args) == 8 * GIB
    without_attention: dict[str, Value] = {**QWEN, "qwen3.attention.head_count_kv": (0, 0, 0, 8)}
    assert kv_values(without_attention) == 8 * 128


def test_the_shipped_model_is_sized_by_its_own_header() -> None:
    assert kv_values(read_metadata(NANO)) == 8 * 2 * 64
    spec = EngineSpec(name="nano", dialect="llama-server", driver="embedded", artefact=NANO)
    assert GIB // 2 < Guard().need(spec) < GIB
    assert Guard().need(EngineSpec(name="u", dialect="openai", driver="url", url="http://host")) == 0


def test_a_gpu_of_its_own_is_not_the_hosts_memory(tmp_path: Path) -> None:
    card = tmp_path / "0000:01:00.0"
    card.mkdir()
    for model, own in (("GB10", False), ("H100", True)):
        (card / "information").write_text(f"Model: \t NVIDIA {model}\n")
        assert sizing.has_own_memory(host_gpu(tmp_path)) is own
    assert not sizing.has_own_memory(host_gpu(tmp_path / "none"))


class Candidate(UrlEngine):
    """An engine of which only its end is asked."""

    def __init__(self) -> None:
        super().__init__(
            EngineSpec(name="candidate", dialect="openai", driver="url", url="http://127.0.0.1:9")
        )
        self.killed: list[str] = []
        self.end = threading.Event()

    def kill(self, why: str) -> None:
        self.killed.append(why)
        self.end.set()


def scripted(*gib: float) -> Callable[[], Memory]:
    """A host whose memory goes through these values, and stays at the last."""
    left = list(gib)

    def read() -> Memory:
        return spark(left.pop(0) if len(left) > 1 else left[0])

    return read


async def test_the_watchdog_ends_the_candidate_when_memory_falls_and_blocks_no_loop() -> None:
    candidate = Candidate()
    with Guard(scripted(30, 20, 11, 11, 11), every_s=0.001).watching(candidate):
        assert candidate.end.wait(PATIENCE)
    assert "memory_floor: 11.00 GiB were available" in candidate.killed[0]


async def test_a_host_that_tells_nothing_lets_everything_in() -> None:
    def unreadable() -> Memory:
        raise FileNotFoundError

    spec = EngineSpec(name="nano", dialect="llama-server", driver="embedded", artefact=NANO)
    guard = Guard(unreadable, every_s=0.001)
    candidate = Candidate()
    with guard.watching(candidate):
        pass
    assert guard.admit(spec) is None and await guard.wait_back(guard.memory())
    assert not candidate.killed


async def test_what_a_stopped_engine_had_is_waited_for() -> None:
    assert await Guard(scripted(10, 20, 49), every_s=0.001).wait_back(spark(50))
    assert not await Guard(scripted(40), every_s=0.001).wait_back(spark(50), deadline_s=0.01)
