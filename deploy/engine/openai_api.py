"""The dialect of any other server of OpenAI's API. It takes no field of its own, for strict servers reject unknown ones."""

import re
from typing import Any, Final

from deploy.engine.dialect import DialectSpec, Launch, Thinking
from deploy.engine.spec import EngineSpec
from deploy.engine.vllm import stated_kv_cache
from gates.contracts.numerics import PARTS, Numerics

PLACEHOLDERS: Final = ("{model}", "{name}", "{host}", "{port}")
_REFERENCE: Final = re.compile(
    r"^manners-reference computes with kernel=(\w{1,80}) scheme=(W4A4|W4A16) kv_cache=(\w{1,40}) gpu=([^\n]{1,80})$",
    re.MULTILINE,
)
"""`manners quantize serve` (quantizer/reference/server.py); the parts in the order of PARTS."""


def has_placeholder(word: str) -> bool:
    """Whether a word of `args` changes with every start."""
    return any(name in word for name in PLACEHOLDERS)


def _arguments(spec: EngineSpec, launch: Launch) -> tuple[str, ...]:
    """The `args` say by placeholders where each value belongs."""
    values = (launch.model, spec.name, launch.host, str(launch.port))
    filled = []
    for word in spec.args:
        for name, value in zip(PLACEHOLDERS, values, strict=True):
            word = word.replace(name, value)
        filled.append(word)
    return tuple(filled)


def _no_thinking(thinking: Thinking) -> dict[str, Any]:
    """The API has no such field; thoughts are removed from the reply."""
    return {}


def _numerics(spec: EngineSpec, log: str, host_gpu: str) -> Numerics:
    """What a reference engine says of itself; of another server, what the arguments say."""
    if found := _REFERENCE.search(log):
        return Numerics(**dict(zip(PARTS, found.groups(), strict=True)))
    return Numerics(kv_cache=stated_kv_cache(spec))


OPENAI_API: Final = DialectSpec(
    thinking=_no_thinking,
    has_thinking_switch=False,
    gaps=dict.fromkeys(
        (
            "thinking off: no token of it is paid for",
            "thinking on",
            "thinking budget 0",
            "thinking budget 1",
            "thinking budget 8",
            "thinking budget 64",
            "a thought, then a call",
            "a thought cut by max_tokens",
        ),
        "OpenAI's API has no field that switches thinking on or off, or limits it",
    ),  # fmt: skip
    arguments=_arguments,
    numerics=_numerics,
)
