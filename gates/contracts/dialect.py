"""The dialects of OpenAI's API that engines speak, and how a gate's requests differ between them. A dialect is a name and a row here;
all that the gateway does for it is one file of `deploy/engine/`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from gates.contracts.case import Sampling
from gates.contracts.errors import RunError

Dialect = Literal["vllm", "llama-server", "sglang", "openai"]


def _switch(on: bool) -> dict[str, Any]:
    """As a JSON boolean: vLLM and SGLang read "false" and 0 as on."""
    return {"chat_template_kwargs": {"enable_thinking": on}}


class GateDialect(NamedTuple):
    """`sampling`: the fields of the parameters that OpenAI's API has not. `thinking`: those that switch it on or off."""

    sampling: Callable[[Sampling], dict[str, Any]]
    thinking: Callable[[bool], dict[str, Any]] = _switch


def _vllm(sampling: Sampling) -> dict[str, Any]:
    return {
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
    }


_LLAMA_SAMPLERS_OFF: Final = {
    "typical_p": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0, "dry_multiplier": 0.0,
    "dynatemp_range": 0.0, "mirostat": 0,
}  # fmt: skip
"""Further samplers of llama-server, which its command line could have enabled."""

_PENALTY_WINDOW: Final = 4096
"""The number of tokens that penalties look back: a whole spoken conversation. Builds of 2026 refuse -1,
which used to mean all tokens, and a very large number costs memory.
"""


def _llama(sampling: Sampling) -> dict[str, Any]:
    """The same in llama-server's fields. Its penalties look back 64 tokens by default, vLLM's all tokens."""
    return {
        "top_k": max(sampling.top_k, 0),  # 0 means all tokens here
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": _PENALTY_WINDOW,
        **_LLAMA_SAMPLERS_OFF,
    }


_OPENAI_NEUTRAL: Final = {"top_k": (-1, 0), "min_p": (0.0,), "repetition_penalty": (1.0,)}


def _openai(sampling: Sampling) -> dict[str, Any]:
    """OpenAI's API has no fields for these parameters and answers 400 to unknown fields."""
    for name, neutral in _OPENAI_NEUTRAL.items():
        if getattr(sampling, name) not in neutral:
            raise RunError(
                f"the API of an engine of dialect 'openai' has no field for {name} = {getattr(sampling, name)}"
            )
    return {}


GATE_DIALECTS: Final[Mapping[Dialect, GateDialect]] = {
    "vllm": GateDialect(sampling=_vllm),
    "llama-server": GateDialect(
        sampling=_llama, thinking=lambda on: _switch(on) | {"reasoning_format": "deepseek"}
    ),
    "sglang": GateDialect(sampling=_vllm),  # the same names
    "openai": GateDialect(sampling=_openai, thinking=lambda on: {}),
}
