"""The dialects that engines speak: a row for each, and the request fields that all of them share."""

from collections.abc import Mapping
from typing import Final

from deploy.core.errors import FlagError
from deploy.engine.dialect import DialectSpec, Launch
from deploy.engine.llama_server import LLAMA_SERVER
from deploy.engine.openai_api import OPENAI_API
from deploy.engine.sglang import SGLANG
from deploy.engine.spec import EngineSpec
from deploy.engine.vllm import VLLM
from gates.contracts.dialect import Dialect
from gates.contracts.numerics import Numerics

COMMON_FIELDS: Final = frozenset(
    {
        "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "stop", "seed",
        "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias",
        "max_tokens", "max_completion_tokens", "user", "logprobs", "top_logprobs",
    }
)  # fmt: skip
"""Request fields that every engine gets unchanged. Others are the gateway's, or are dropped."""

FORCING_FIELDS: Final = frozenset({"stop", "logit_bias", "min_tokens", "ignore_eos"})
"""Those of an engine's fields with which a request decides words, or the end, of the reply; and `response_format`."""

DIALECTS: Final[Mapping[Dialect, DialectSpec]] = {
    "vllm": VLLM,
    "llama-server": LLAMA_SERVER,
    "sglang": SGLANG,
    "openai": OPENAI_API,
}

SILENT: Final = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"""Environment variables that keep an engine off the network."""


def server_args(spec: EngineSpec, launch: Launch) -> tuple[str, ...]:
    """The arguments of the server's program. Raises FlagError: the driver sets one of the `args` itself."""
    dialect = DIALECTS[spec.dialect]
    for word in spec.args:
        if word.partition("=")[0] in dialect.reserved:
            raise FlagError(spec.name, f"{word} is set by the driver and cannot be given")
    return dialect.arguments(spec, launch)


def from_arguments(spec: EngineSpec) -> Numerics:
    """The numerics by the configuration alone, before a start; for an engine behind a URL, those that its table states."""
    return from_start(spec, "", "")


def from_start(spec: EngineSpec, log: str, host_gpu: str) -> Numerics:
    """The numerics by the engine's log up to its first request (a later line could quote a caller). `host_gpu`: its machine's GPU."""
    if spec.driver == "url":
        return Numerics(**dict(spec.numerics or ()))
    return DIALECTS[spec.dialect].numerics(spec, log, host_gpu)
