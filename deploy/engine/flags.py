"""llama-server's flags for the embedded engine. Pure.

`FLAGS` is the documentation: each flag sets the field named beside it in llama.cpp's `common_params`. Other fields cannot be
set: features that reach out of the process (downloads, tools, MCP) stay off.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from deploy.core.errors import FlagError

Value = int | float | str | bool | dict[str, str]
Settings = dict[str, Value]

DEFAULTS: Mapping[str, Value] = {
    # 4096 tokens for each of four slots, which no other slot can take. In one pool for all, a few long
    # replies fill it, and llama-server then fails every request that it has. With --ctx-size and nothing
    # else it is one pool, as on llama-server's own command line: split, its slots would be small.
    "n_ctx": 16384,
    "n_parallel": 4,
    "kv_unified": False,
    "use_jinja": True,
    "reasoning_format": "COMMON_REASONING_FORMAT_AUTO",
    "warmup": True,
    "endpoint_metrics": True,
    "endpoint_slots": True,
    # Host memory for cached prompts, in MiB; llama.cpp's own default is 8192.
    "cache_ram_mib": 512,
    # The context must stay as configured, not shrink to the free memory.
    "fit_params": False,
    "ui": False,
    # No browser may call the engine.
    "cors_origins": "",
    # Errors only: warnings quote the request they complain about.
    "verbosity": 1,
}


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: its names, the field that it sets, and the parser of its value; without `parse` it is a switch that sets `constant`.

    `user_bit` marks sampling defaults that the model file would otherwise override.
    """

    names: tuple[str, ...]
    field: str
    parse: Callable[[str], Value] | None = None
    constant: Value = True
    user_bit: str | None = None


def _choice(**words: str) -> Callable[[str], str]:
    def parse(word: str) -> str:
        if word.replace("-", "_") not in words:
            raise ValueError(f"one of {', '.join(w.replace('_', '-') for w in words)}")
        return words[word.replace("-", "_")]

    return parse


def _tristate(word: str) -> int:
    return int(_choice(on="1", off="0", auto="-1")(word))


def _template_kwargs(word: str) -> dict[str, str]:
    kwargs = json.loads(word)
    if not isinstance(kwargs, dict):
        raise ValueError("a JSON object")
    return {key: json.dumps(value) for key, value in kwargs.items()}


_REASONING = _choice(
    auto="COMMON_REASONING_FORMAT_AUTO",
    none="COMMON_REASONING_FORMAT_NONE",
    deepseek="COMMON_REASONING_FORMAT_DEEPSEEK",
    deepseek_legacy="COMMON_REASONING_FORMAT_DEEPSEEK_LEGACY",
)
_FLASH = _choice(
    auto="LLAMA_FLASH_ATTN_TYPE_AUTO",
    on="LLAMA_FLASH_ATTN_TYPE_ENABLED",
    off="LLAMA_FLASH_ATTN_TYPE_DISABLED",
)
_POOLING = _choice(
    none="LLAMA_POOLING_TYPE_NONE",
    mean="LLAMA_POOLING_TYPE_MEAN",
    cls="LLAMA_POOLING_TYPE_CLS",
    last="LLAMA_POOLING_TYPE_LAST",
    rank="LLAMA_POOLING_TYPE_RANK",
)
_CACHE = _choice(
    f32="GGML_TYPE_F32",
    f16="GGML_TYPE_F16",
    bf16="GGML_TYPE_BF16",
    q8_0="GGML_TYPE_Q8_0",
    q4_0="GGML_TYPE_Q4_0",
)

FLAGS: tuple[Flag, ...] = (
    # room and speed
    Flag(("--ctx-size", "-c"), "n_ctx", int),
    Flag(("--parallel", "-np"), "n_parallel", int),
    Flag(("--kv-unified", "-kvu"), "kv_unified"),
    Flag(("--no-kv-unified", "-no-kvu"), "kv_unified", constant=False),
    Flag(("--threads", "-t"), "cpuparams.n_threads", int),
    Flag(("--threads-batch", "-tb"), "cpuparams_batch.n_threads", int),
    Flag(("--threads-http",), "n_threads_http", int),
    Flag(("--batch-size", "-b"), "n_batch", int),
    Flag(("--ubatch-size", "-ub"), "n_ubatch", int),
    Flag(("--gpu-layers", "--n-gpu-layers", "-ngl"), "n_gpu_layers", int),
    Flag(("--flash-attn", "-fa"), "flash_attn_type", _FLASH),
    Flag(("--cache-type-k", "-ctk"), "cache_type_k", _CACHE),
    Flag(("--cache-type-v", "-ctv"), "cache_type_v", _CACHE),
    Flag(("--cache-ram", "-cram"), "cache_ram_mib", int),
    Flag(("--cache-reuse",), "n_cache_reuse", int),
    Flag(("--no-cache-prompt",), "cache_prompt", constant=False),
    Flag(("--context-shift",), "ctx_shift"),
    Flag(("--mlock",), "load_mode", constant="LLAMA_LOAD_MODE_MMAP_MLOCK"),
    Flag(("--no-mmap",), "load_mode", constant="LLAMA_LOAD_MODE_NONE"),
    Flag(("--no-warmup",), "warmup", constant=False),
    # templates and thinking
    Flag(("--jinja",), "use_jinja"),
    Flag(("--no-jinja",), "use_jinja", constant=False),
    Flag(("--chat-template",), "chat_template", str),
    Flag(("--chat-template-file",), "chat_template_file", str),
    Flag(("--chat-template-kwargs",), "default_template_kwargs", _template_kwargs),
    Flag(("--no-prefill-assistant",), "prefill_assistant", constant=False),
    Flag(("--reasoning", "-rea"), "enable_reasoning", _tristate),
    Flag(("--reasoning-format",), "reasoning_format", _REASONING),
    Flag(("--reasoning-budget",), "sampling.reasoning_budget_tokens", int),
    Flag(("--reasoning-budget-message",), "sampling.reasoning_budget_message", str),
    # what a request that does not say gets
    Flag(("--predict", "--n-predict", "-n"), "n_predict", int),
    Flag(("--seed", "-s"), "sampling.seed", int),
    Flag(("--temp", "--temperature"), "sampling.temp", float, user_bit="TEMP"),
    Flag(("--top-k",), "sampling.top_k", int, user_bit="TOP_K"),
    Flag(("--top-p",), "sampling.top_p", float, user_bit="TOP_P"),
    Flag(("--min-p",), "sampling.min_p", float, user_bit="MIN_P"),
    Flag(
        ("--repeat-penalty",),
        "sampling.penalty_repeat",
        float,
        user_bit="PENALTY_REPEAT",
    ),
    Flag(("--presence-penalty",), "sampling.penalty_present", float),
    Flag(("--frequency-penalty",), "sampling.penalty_freq", float),
    # the server
    Flag(("--embeddings", "--embedding"), "embedding"),
    Flag(("--pooling",), "pooling_type", _POOLING),
    Flag(("--no-slots",), "endpoint_slots", constant=False),
    Flag(("--sse-ping-interval",), "sse_ping_interval", int),
    Flag(("--sleep-idle-seconds",), "sleep_idle_seconds", int),
)
_NUMBERS: Mapping[object, str] = {int: "a whole number", float: "a number"}
USER_BITS = "user_sampling_bits"

_BY_NAME: Mapping[str, Flag] = {name: flag for flag in FLAGS for name in flag.names}
_OURS = {
    "-m": "the artefact", "--model": "the artefact", "--host": "the supervisor",
    "--port": "the supervisor", "-a": "the engine's name", "--alias": "the engine's name",
    "--api-key": "the supervisor", "--log-file": "the state folder", "-v": "privacy",
    "--verbose": "privacy", "-lv": "privacy", "--verbosity": "privacy",
    "--log-verbosity": "privacy",
}  # fmt: skip


def default_threads(cores: int) -> int:
    """Half the cores, one to four.

    llama.cpp's threads spin while they wait for each other, so one that shares its core with another process delays all: on two
    shared cores with four streams, a second thread took the longest TTFT from 28 to 276 ms, and the start from 0.2 to 3 s.
    """
    return max(1, min(4, cores // 2))


def parse_flags(engine: str, args: tuple[str, ...], *, cores: int) -> Settings:
    """The settings of these flags, over the defaults for a machine with `cores` cores. Raises FlagError."""
    settings: Settings = dict(DEFAULTS) | {"cpuparams.n_threads": default_threads(cores)}
    bits: list[str] = []
    seen: set[str] = set()
    words = list(args)
    while words:
        flag, word = _take(engine, words)
        if flag.field in seen:
            raise FlagError(engine, f"{flag.names[0]} is given twice, or with its opposite")
        seen.add(flag.field)
        settings[flag.field] = _read(engine, flag, word)
        bits += [flag.user_bit] if flag.user_bit else []
    if "n_ctx" in seen and "kv_unified" not in seen:
        settings["kv_unified"] = True
    if bits:
        settings[USER_BITS] = " ".join(bits)
    return settings


def _take(engine: str, words: list[str]) -> tuple[Flag, str | None]:
    name, equals, value = words.pop(0).partition("=")
    flag = _BY_NAME.get(name)
    if flag is None:
        raise FlagError(engine, _unknown(name))
    if flag.parse is None:
        if equals:
            raise FlagError(engine, f"{name} takes no value")
        return flag, None
    if equals:
        return flag, value
    if not words:
        raise FlagError(engine, f"{name} needs a value")
    return flag, words.pop(0)


def _unknown(name: str) -> str:
    if name in _OURS:
        return f"{name} is set by {_OURS[name]} and cannot be given"
    near = get_close_matches(name, _BY_NAME, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{name!r} is not a flag that the embedded engine knows{hint}"


def _read(engine: str, flag: Flag, word: str | None) -> Value:
    if flag.parse is None or word is None:
        return flag.constant
    try:
        return flag.parse(word)
    except ValueError as error:
        need = _NUMBERS.get(flag.parse, str(error))
        raise FlagError(engine, f"{flag.names[0]} must be {need}, not {word!r}") from None
