"""What becomes of every field inside messages, their blocks and tools: a table of `docs/api.md`.

`tests.app.api.parameters` writes it there with those of the top-level parameters. The lists of fields are the type
definitions of the packages `openai` and `anthropic`, for the kinds of blocks that this gateway takes; other kinds are refused by
their `type`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import anthropic.types as messages
import openai.types.chat as chat
import openai.types.responses as responses
from anthropic.types import beta
from openai.types.responses import response_input_param
from openai.types.shared_params import FunctionDefinition

from app.api.engine_request import AskedEngine
from app.api.messages import Messages
from app.api.responses import Responses
from app.api.surface import ChatCompletions, Surface
from app.errors.tree import RequestError
from deploy.engine.samples import SAMPLES

USED, HINT, HANDED_BACK, REFUSED = "used", "ignored", "accepted", "refused"

_VALUES: Mapping[str, Any] = {
    "cache_control": {"type": "ephemeral"},
    "citations": [{"type": "char_location"}],
    "caller": {"type": "direct"},
    "input_examples": [{"a": 1}],
    "allowed_callers": ["direct"],
    "annotations": [{"type": "file_citation"}],
    "summary": [{"type": "summary_text", "text": "s"}],
    "logprobs": [{"token": "a"}],
    "output_schema": {"type": "object"},
    "audio": {"id": "a"},
    "function_call": {"name": "f", "arguments": "{}"},
    "content": "b",
    "is_error": True,
    "strict": True,
    "parameters": {"type": "object", "properties": {}},
}
"""Values of fields for which a text or true would be none."""


@dataclass(frozen=True)
class Block:
    """One kind of block: its surface, where it stands, a smallest one, its types, and its fields that are not used.

    place: the request with this block in it. The other fields change what the engine is sent.
    """

    surface: Surface
    where: str
    place: Callable[[dict[str, Any]], dict[str, Any]]
    base: dict[str, Any]
    types: tuple[Any, ...]
    ignored: tuple[str, ...] = ()
    handed_back: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def official(self) -> list[str]:
        """Its fields by the official clients' types."""
        return sorted({name for kind in self.types for name in get_type_hints(kind)})

    @property
    def expected(self) -> dict[str, str]:
        """What should become of each field that a smallest block has not."""
        kinds = ((HINT, self.ignored), (HANDED_BACK, self.handed_back), (REFUSED, self.refused))
        special = {name: kind for kind, names in kinds for name in names}
        return {name: special.get(name, USED) for name in self.official if name not in self.base}

    def fate(self, name: str) -> str:
        """What becomes of it, as found by asking: used, ignored and named, accepted without effect, or 400."""
        value = _VALUES.get(
            name, True if name in ("async", "defer_loading", "eager_input_streaming") else "x"
        )
        try:
            asked = self._parse({**self.base, name: value})
        except RequestError as error:
            return (
                REFUSED
                if (error.param or "").endswith(f".{name}")
                else f"400 without its name: {error.message}"
            )
        if any(one.split(".")[-1] == name for one in self.surface.ignored(asked, "vllm")):
            return HINT
        engine = AskedEngine("vllm", "engine")
        sent, before = (self.surface.engine_body(one, engine) for one in (asked, self._parse(self.base)))
        return USED if sent != before else HANDED_BACK

    def _parse(self, block: dict[str, Any]) -> Any:
        return self.surface.parse(json.dumps(self.place(block)).encode(), 512)


def _turn(role: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Anthropic's request with a block in its last turn."""
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    before = (
        [{"role": "user", "content": "Hi"}, call] if role == "user" else [{"role": "user", "content": "Hi"}]
    )
    return lambda block: {
        "model": "m",
        "max_tokens": 5,
        "messages": [*before, {"role": role, "content": [block]}],
    }


def _anthropic(name: str) -> tuple[Any, Any]:
    return getattr(messages, name), getattr(beta, f"Beta{name}")


def _item(block: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "input": [block, {"role": "assistant", "content": "b"}]}


def _part(kind: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda block: {"model": "m", "input": [{"role": kind, "content": [block]}]}


def _chat(role: str, *before: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda block: {"model": "m", "messages": [*before, {"role": role, **block}]}


IMAGE = SAMPLES["image"]
PNG = IMAGE["image_url"]["url"].partition(",")[2]
_MESSAGES, _RESPONSES, _CHAT = Messages(), Responses(), ChatCompletions()
_PARAMETERS = {"type": "object"}
_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_TOOL_IGNORED = (
    "allowed_callers",
    "cache_control",
    "defer_loading",
    "eager_input_streaming",
    "input_examples",
)

BLOCKS = (
    Block(_MESSAGES, "`text`", _turn("assistant"), {"type": "text", "text": "a"}, _anthropic("TextBlockParam"), ("cache_control", "citations")),
    Block(_MESSAGES, "`system[]`", lambda block: {"model": "m", "max_tokens": 5, "system": [block], "messages": [{"role": "user", "content": "Hi"}]},
          {"type": "text", "text": "a"}, _anthropic("TextBlockParam"), ("cache_control", "citations")),
    Block(_MESSAGES, "`tool_use`", _turn("assistant"), {"type": "tool_use", "id": "c", "name": "f", "input": {}},
          _anthropic("ToolUseBlockParam"), ("cache_control", "caller", "toolset_name")),
    Block(_MESSAGES, "`tool_result`", _turn("user"), {"type": "tool_result", "tool_use_id": "c"},
          _anthropic("ToolResultBlockParam"), ("cache_control", "toolset_name")),
    Block(_MESSAGES, "`image`", _turn("user"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
          _anthropic("ImageBlockParam"), ("cache_control", "transformations")),
    Block(_MESSAGES, "`thinking`", _turn("assistant"), {"type": "thinking", "thinking": "t"}, _anthropic("ThinkingBlockParam"), (), ("signature",)),
    Block(_MESSAGES, "`redacted_thinking`", _turn("assistant"), {"type": "redacted_thinking"}, _anthropic("RedactedThinkingBlockParam"), (), ("data",)),
    Block(_MESSAGES, "`tools[]`", lambda tool: {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], "tools": [tool]},
          {"type": "custom", "name": "f", "input_schema": _PARAMETERS}, _anthropic("ToolParam"), _TOOL_IGNORED),
    Block(_RESPONSES, "message", _item, {"type": "message", "role": "assistant", "content": "a"},
          (responses.EasyInputMessageParam, response_input_param.Message, responses.ResponseOutputMessageParam), ("phase",), ("id", "status")),
    Block(_RESPONSES, "`input_text`", _part("user"), {"type": "input_text", "text": "a"}, (responses.ResponseInputTextParam,), ("prompt_cache_breakpoint",)),
    Block(_RESPONSES, "`input_image`", _part("user"), {"type": "input_image", "image_url": IMAGE["image_url"]["url"]},
          (responses.ResponseInputImageParam,), ("file_id", "prompt_cache_breakpoint")),
    Block(_RESPONSES, "`output_text`", _part("assistant"), {"type": "output_text", "text": "a"}, (responses.ResponseOutputTextParam,), (),
          ("annotations", "logprobs")),
    Block(_RESPONSES, "`function_call`", _item, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
          (responses.ResponseFunctionToolCallParam,), ("async", "caller", "namespace"), ("id", "status")),
    Block(_RESPONSES, "`function_call_output`", _item, {"type": "function_call_output", "call_id": "c", "output": "o"},
          (response_input_param.FunctionCallOutput,), ("caller", "name", "namespace"), ("id", "status")),
    Block(_RESPONSES, "`reasoning`", _item, {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]},
          (responses.ResponseReasoningItemParam,), ("encrypted_content", "summary"), ("id", "status")),
    Block(_RESPONSES, "`tools[]`", lambda tool: {"model": "m", "input": "a", "tools": [tool]}, {"type": "function", "name": "f"},
          (responses.FunctionToolParam,), ("allowed_callers", "async", "defer_loading", "output_schema")),
    Block(_CHAT, "message", _chat("assistant"), {"role": "assistant", "content": "a", "tool_calls": [_CALL]},
          (chat.ChatCompletionAssistantMessageParam, chat.ChatCompletionUserMessageParam, chat.ChatCompletionSystemMessageParam), (), ("refusal",), ("audio", "function_call")),
    Block(_CHAT, "`text`", lambda block: _chat("user")({"content": [block]}), {"type": "text", "text": "a"}, (chat.ChatCompletionContentPartTextParam,)),
    Block(_CHAT, "`image_url`", lambda block: _chat("user")({"content": [block]}), {**IMAGE}, (chat.ChatCompletionContentPartImageParam,)),
    Block(_CHAT, "`input_audio`", lambda block: _chat("user")({"content": [block]}), {**SAMPLES["audio"]}, (chat.ChatCompletionContentPartInputAudioParam,)),
    Block(_CHAT, "`tools[].function`", lambda it: {**_chat("user")({"content": "a"}), "tools": [{"type": "function", "function": it}]},
          {"name": "f"}, (FunctionDefinition,)),
)  # fmt: skip


def table() -> Iterator[str]:
    """The rows, one for each kind of block; what the smallest block needs is left out."""
    yield "### Inside messages and tools\n"
    yield "| | in | used, or sent on as it is | ignored and named | accepted, without effect | 400 |\n|---|---|---|---|---|---|"
    for block in BLOCKS:
        fates = {name: block.fate(name) for name in block.expected}
        cells = (
            ", ".join(f"`{name}`" for name, fate in fates.items() if fate == kind)
            for kind in (USED, HINT, HANDED_BACK, REFUSED)
        )
        yield f"| `{block.surface.path}` | {block.where} | {' | '.join(cells)} |"
    yield ""
