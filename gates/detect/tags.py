"""Finds tokens of a chat template, which must never be spoken. Pure.

There are two sources: a list of tags that engines and fine-tuned models are known to let through, and
the tokenizer's own added vocabulary (`added_tokens`). The latter is better if it is known, because a
model with new tags leaks those.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

# Names of tags around thoughts and calls. `<think` counts without its closing bracket too, because
# replies are often cut off inside a tag.
_THOUGHT: Final = (
    r"think|thinking|thought|thoughts|reasoning|reflection|scratchpad|seed:think|inner_monologue|mm:think"
    r"|thinking_process|thought_process|chain_of_thought|cot|inner_thoughts|internal_thoughts|internal_monologue"
    r"|reasoning_process|internal_reasoning|longcat_think|scratch_pad|internal|ant_?thinking|ifm\|think(?:_fast(?:er)?)?"
)
_CALL: Final = (
    r"tool_calls?|tool_responses?|tool_results?|tool_outputs?|tool_code|tool_use|function_calls?|function_results?|function_response|tools"
    r"|longcat_tool_call|dots_function_call|atem:function_calls|atem:invoke|ifm\|tool_calls?"
)
_TURN: Final = "start_of_turn|end_of_turn|eos|bos|pad|unk|answer|final|start|end|message|channel|analysis"

_TAGS: Final = re.compile(
    rf"""
      (?:<|&lt;)\s?/?\s?(?:{_THOUGHT}|{_CALL})\b[^<>\n]{{0,40}}(?:>|&gt;)?  # <think>, </thinking>, <tool_call
    | <details\b[^<>\n]{{0,80}}\btype\s?=\s?["']?(?:reasoning|tool_calls)\b   # Open WebUI's
    | </?(?:{_TURN})>
    | </?(?:function|parameter)(?:=[^<>\n]{{0,64}}>?|>)                      # Qwen's XML calls
    | <\|[^|<>\n]{{1,40}}\|?>                                                # <|im_end|>, <|channel|>, <|channel>
    | <(?:channel|tool_response)\|>                                           # Gemma 4's ends
    | <(?:start|end)_function_(?:call|response)>                              # FunctionGemma
    | <unused9[45]>                                                           # MedGemma
    | <｜[^｜<>\n]{{1,40}}｜>                                                # DeepSeek's wide bars
    | ◁/?think▷                                                              # Kimi
    | \[/?(?:THINK|THINKING|INST|TOOL_CALLS?|TOOL_RESULTS?|(?:END_)?TOOL_REQUEST|AVAILABLE_TOOLS|SYSTEM_PROMPT)\]  # Mistral
    | </?s>(?=\s|$) | ^</?s>
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Harmony, if a detokenizer has removed its tokens: "analysisWe need to", "assistantfinalHello".
_HARMONY: Final = re.compile(r"^analysis(?=[A-Z])|assistant(?:final|analysis|commentary)(?=[A-Z<])")


def tags(text: str, tokens: Collection[str] = ()) -> Iterator[tuple[int, int]]:
    """Spans of known tags, and of the given special tokens, in a text."""
    if "<" in text or "[" in text or "&lt;" in text or "◁" in text:
        for match in _TAGS.finditer(text):
            yield match.span()
    if "analysis" in text or "assistant" in text:
        for match in _HARMONY.finditer(text):
            yield match.span()
    for token in tokens:
        at = text.find(token)
        while at >= 0:
            yield at, at + len(token)
            at = text.find(token, at + len(token))


def added_tokens(tokenizer: Mapping[str, Any]) -> frozenset[str]:
    """The added vocabulary of a `tokenizer.json`, as texts.

    Plain words and white space are left out: some tokenizers add such tokens for compression, and they
    are frequent in prose.
    """
    entries = tokenizer.get("added_tokens", ())
    texts = {entry["content"] for entry in entries if isinstance(entry, Mapping) and "content" in entry}
    return frozenset(text for text in texts if isinstance(text, str) and _is_sign(text))


def _is_sign(text: str) -> bool:
    return len(text) > 2 and not text.isspace() and not text.strip().isalnum()
