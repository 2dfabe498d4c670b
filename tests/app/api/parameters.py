"""What becomes of every parameter of the official clients' requests: the table of `docs/api.md`.

`python -m tests.app.api.parameters` writes it there. Each row is found by asking the surface itself with a value that
says something; the lists of parameters are the type definitions of the packages `openai` and `anthropic`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from anthropic.types import message_create_params
from anthropic.types.beta import message_create_params as beta_params
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params

from app.api.completions import Completions
from app.api.embeddings import Embeddings
from app.api.engine_request import AskedEngine
from app.api.messages import Messages
from app.api.responses import Responses
from app.api.surface import ChatCompletions, Surface
from app.errors.tree import RequestError
from deploy.engine.dialects import DIALECTS
from tests.generated import rewritten

DOCUMENT = Path(__file__).parents[3] / "docs" / "api.md"
HERE = "the gateway"
IGNORED = "ignored"
_OF_DIALECTS = {"llama-server": "llama-server", "vllm": "vLLM", "sglang": "SGLang", "openai": "others"}


@dataclass(frozen=True)
class Row:
    """A parameter: a value of it that says something, and why or with what limits.

    ours: the gateway itself honours it. beside: other fields that it needs.
    """

    value: Any
    note: str = ""
    ours: bool = False
    beside: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Api:
    """One surface, its smallest request, and the types that list its parameters."""

    surface: Surface
    base: dict[str, Any]
    types: tuple[Any, ...]
    rows: dict[str, Row]

    @property
    def official(self) -> set[str]:
        """The names of all parameters that the official client's types have."""
        return {name for kind in self.types for name in get_type_hints(kind, include_extras=True)}

    def fate(self, name: str) -> str:
        """What becomes of it, as found by asking."""
        row = self.rows[name]
        try:
            asked = self._parse({**row.beside, name: row.value})
        except RequestError as error:
            return (
                f"400 `{error.code}`" if (error.param or "").split(".")[0] == name else "400 without its name"
            )
        bare = self._parse(dict(row.beside))
        found = {dialect: self._with(dialect, name, asked, bare) for dialect in DIALECTS}
        if len(set(found.values())) == 1:
            return found["vllm"]
        return ", ".join(f"{_OF_DIALECTS[dialect]}: {fate}" for dialect, fate in found.items())

    def _parse(self, fields: Mapping[str, Any]) -> Any:
        return self.surface.parse(json.dumps({**self.base, **fields}).encode(), 512)

    def _with(self, dialect: Any, name: str, asked: Any, bare: Any) -> str:
        if any(one.split(".")[0] == name for one in self.surface.ignored(asked, dialect)):
            return IGNORED
        engine = AskedEngine(dialect, "engine")
        sent, before = (json.loads(self.surface.engine_body(one, engine)) for one in (asked, bare))
        changed = sorted(key for key in sent.keys() | before.keys() if sent.get(key) != before.get(key))
        return ", ".join(f"`{key}`" for key in changed) or HERE


def row(value: Any, note: str = "", **beside: Any) -> Row:
    """Refused, passed on, or ignored and named."""
    return Row(value, note, beside=beside)


def kept(value: Any, note: str, **beside: Any) -> Row:
    """The gateway's own to honour."""
    return Row(value, note, True, beside)


_TURN = [{"role": "user", "content": "Hi"}]
_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
_FLAT = {"type": "function", "name": "f", "parameters": {"type": "object"}}
_BLOCK = {"name": "f", "input_schema": {"type": "object"}}
_LIMITS = "default: the model's `max_tokens`"
_LLAMA = {
    "grammar": row("root ::= [a-z]+", "chats have `response_format`"),
    "n_predict": row(5, "send `max_tokens`"),
}
_THINKING = "switches thinking; a model's budget stays"
_CACHE = "engines cache prompts themselves"
_TIER = "there is one tier"
_MEMORY = "nothing is kept: send the whole conversation"

CHAT = {
    "messages": row([*_TURN, *_TURN], "text, images and sounds; old thoughts are left out"),
    "model": kept("annie", "a public model of the configuration"),
    "audio": row({"voice": "a", "format": "wav"}, "replies are text"),
    "frequency_penalty": row(0.5),
    "best_of": row(2, "use `n`"),
    "function_call": row("auto", "send `tool_choice`"),
    "functions": row([{"name": "f"}], "send `tools`"),
    **_LLAMA,
    "logit_bias": row({"1": 1}),
    "logprobs": row(
        True,
        "[below](#log-probabilities-logprobs-top_logprobs)",
    ),
    "max_completion_tokens": row(5, _LIMITS),
    "max_tokens": row(5, _LIMITS),
    "metadata": row({"a": "b"}, _MEMORY),
    "modalities": row(["text", "audio"], "replies are text"),
    "moderation": row({"model": "m"}, "nothing is moderated here"),
    "n": kept(2, "1 to 8, [below](#several-choices-n-and-lists-of-prompts)"),
    "parallel_tool_calls": row(False, "checked in the reply", tools=[_TOOL]),
    "prediction": row({"type": "content", "content": "a"}, "it only makes a reply faster"),
    "presence_penalty": row(0.5),
    "prompt_cache_key": row("k", _CACHE),
    "prompt_cache_options": row({"mode": "a"}, _CACHE),
    "prompt_cache_retention": row("24h", _CACHE),
    "reasoning_effort": kept("low", _THINKING + "; `none` is off"),
    "response_format": row({"type": "json_object"}),
    "safety_identifier": row("u", "the key names the caller"),
    "seed": row(1, "counts up over the choices of `n`"),
    "service_tier": row("flex", _TIER),
    "stop": row(["."], "at most 64"),
    "store": row(True, _MEMORY),
    "stream": kept(True, ""),
    "stream_options": kept({"include_usage": True}, "`include_usage`", stream=True),
    "temperature": row(0.5),
    "tool_choice": row("none", "kept by the engine's own means, and checked", tools=[_TOOL]),
    "tools": row([_TOOL], "functions, at most 128"),
    "top_logprobs": row(2, "0 to 20, with `logprobs`", logprobs=True),
    "top_p": row(0.5),
    "user": row("u"),
    "verbosity": row("low", "ask for it in the prompt; `medium` is taken"),
    "web_search_options": row({"search_context_size": "low"}, "declare a tool that searches"),
}


def _as_in_chat(names: str) -> dict[str, Row]:
    return {name: CHAT[name] for name in names.split()}


COMPLETION = {
    **_as_in_chat(
        "model best_of frequency_penalty logit_bias max_tokens n presence_penalty seed stop stream stream_options temperature top_p user"
    ),
    **_LLAMA,
    "prompt": row("a", "a text or tokens, or up to 16 of them"),
    "echo": row(True, "the reply is filtered; you have the prompt"),
    "logprobs": row(1, "0 to 20, [below](#log-probabilities-logprobs-top_logprobs)"),
    "suffix": row("a", "no engine's template is known for it"),
}
EMBEDDING = {
    "input": row("b", "a text or tokens, or up to 2048 of them"),
    "model": CHAT["model"],
    "dimensions": row(8),
    "encoding_format": row("base64"),
    "user": row("u"),
}
RESPONSE = {
    **_as_in_chat(
        "model moderation prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier service_tier store stream temperature top_p user"
    ),
    "access_programs": row({"a": "b"}, "OpenAI's own"),
    "background": row(True, _MEMORY),
    "context_management": row([{"type": "compaction"}], _MEMORY),
    "conversation": row("c", _MEMORY),
    "image": row({"detail": "low"}, "requests and replies are text"),
    "include": row(["reasoning.encrypted_content"], "each has its fields in the reply, or none"),
    "input": row("b", "a text, or messages, calls and their results; images"),
    "instructions": row("b"),
    "max_output_tokens": row(5, _LIMITS),
    "max_tool_calls": row(1, "this gateway runs no tool"),
    "metadata": kept({"a": "b"}, "repeated in the response"),
    "parallel_tool_calls": row(False, "checked in the reply", tools=[_FLAT]),
    "previous_response_id": row("r", _MEMORY),
    "prompt": row({"id": "p"}, _MEMORY),
    "reasoning": kept({"effort": "low"}, "`effort` " + _THINKING + "; `summary` is ignored"),
    "stream_options": row({"include_obfuscation": False}, "nothing is obfuscated", stream=True),
    "text": row({"format": {"type": "json_object"}}, "`verbosity` as in chat"),
    "tool_choice": row("none", CHAT["tool_choice"].note, tools=[_FLAT]),
    "tools": row([_FLAT], "functions, at most 128"),
    "top_logprobs": row(2, "filtered text has no token log-probabilities"),
    "truncation": row("auto", "nothing is left out in silence: send less"),
}
MESSAGE = {
    "cache_control": row({"type": "ephemeral"}, _CACHE + ""),
    "messages": row([*_TURN, *_TURN], "text, images, calls and their results"),
    "model": CHAT["model"],
    "speed": row("fast", "there is one speed"),
    "system": row("b"),
    "thinking": kept({"type": "enabled", "budget_tokens": 64}, "and its budget in tokens"),
    "tool_choice": row({"type": "none"}, CHAT["tool_choice"].note, tools=[_BLOCK]),
    "tools": row([_BLOCK], "of the caller's own, at most 128"),
    "user_profile_id": row("u", "the key names the caller"),
    "workspace_id": row("w", "there are none"),
    "betas": row(["b"], "without effect"),
    "billing_policy": row({"a": "b"}, "nothing is billed"),
    "compaction": row({"type": "a"}, _MEMORY),
    "container": row("c", "nothing is run here: declare tools"),
    "context_management": row({"edits": []}, _MEMORY),
    "diagnostics": row({"previous_message_id": "m"}, _MEMORY),
    "fallback_credit_token": row("t", "nothing is billed"),
    "fallbacks": row([{"model": "m"}], "the operator configures a model's fallbacks"),
    "inference_geo": row("eu", "not known here"),
    "max_tokens": row(7),
    "mcp_servers": row([{"type": "url"}], "this gateway connects to none: declare tools"),
    "metadata": row({"user_id": "u"}),
    "output_config": row(
        {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "`format`; `effort` is ignored",
    ),
    "service_tier": row("standard_only", _TIER),
    "stop_sequences": row(
        ["."],
        "`stop_sequence` names the one that ended the reply, where the engine does: vLLM, not llama-server",
    ),
    "stream": CHAT["stream"],
    "temperature": CHAT["temperature"],
    "thread": row({"id": "t"}, _MEMORY),
    "top_k": row(5),
    "top_p": CHAT["top_p"],
}

APIS = (
    Api(ChatCompletions(), {"model": "m", "messages": _TURN}, (
        chat_params.CompletionCreateParamsNonStreaming, chat_params.CompletionCreateParamsStreaming), CHAT),
    Api(Responses(), {"model": "m", "input": "a"}, (
        response_create_params.ResponseCreateParamsNonStreaming, response_create_params.ResponseCreateParamsStreaming), RESPONSE),
    Api(Messages(), {"model": "m", "messages": _TURN, "max_tokens": 5}, (
        message_create_params.MessageCreateParamsNonStreaming, message_create_params.MessageCreateParamsStreaming,
        beta_params.MessageCreateParamsNonStreaming), MESSAGE),
    Api(Completions(), {"model": "m", "prompt": "p"}, (
        completion_create_params.CompletionCreateParamsNonStreaming, completion_create_params.CompletionCreateParamsStreaming), COMPLETION),
    Api(Embeddings(), {"model": "m", "input": "a"}, (embedding_create_params.EmbeddingCreateParams,), EMBEDDING),
)  # fmt: skip


def tables() -> Iterator[str]:
    """A table for each surface."""
    for api in APIS:
        yield f"### `POST {api.surface.path}`\n\n| parameter | what becomes of it | |\n|---|---|---|"
        for name in sorted(api.rows):
            fate = api.fate(name)
            shown = fate if fate in (HERE, IGNORED) or "400" in fate else f"sent on: {fate}"
            shown = "sent on" if fate == f"`{name}`" else shown
            yield f"| `{name}` | {shown} | {api.rows[name].note} |"
        yield ""


def written(document: str) -> str:
    """The document with its tables made anew."""
    return rewritten(document, "parameters", "\n".join(tables()).removesuffix("\n"))


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text("utf-8")), "utf-8")
