"""The dialects that engines speak: a row for each, and the request fields that all of them share."""

from collections.abc import Mapping
from typing import Final

from deploy.engine.dialect import DialectSpec
from deploy.engine.llama_server import LLAMA_SERVER
from deploy.engine.openai_api import OPENAI_API
from deploy.engine.sglang import SGLANG
from deploy.engine.vllm import VLLM
from gates.contracts.dialect import Dialect

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
