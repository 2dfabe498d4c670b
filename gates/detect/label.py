"""Generates labelled lines for the leak detector from a model, asked with thinking on and off.

With thinking on, an engine returns the thought separately. A thought that is put back in front of its
answer, with or without tags, or cut at several places, is certainly a leak; the answer alone, and every
answer with thinking off, is certainly clean. So a model labels its own way of thinking without manual
work. `python -m gates.detect label URL` does this for any engine.

A thought without tags that is shorter than 60 characters ("It worked.") cannot be told from an answer;
such lines do not count. All functions but those that send requests are pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from gates.contracts.errors import RunError
from gates.detect.corpus import FOLDER, tools

MIN_THOUGHT_CHARS: Final = 60  # minimum characters of a thought without tags that can be told from an answer
_VARIANTS_PER_THOUGHT: Final = 3  # variants per thought; which ones changes from prompt to prompt
_TIMEOUT_S: Final = 300.0
_CONCURRENCY: Final = 4  # requests


@dataclass(frozen=True, slots=True)
class LabelledReplies:
    """The replies to one prompt: thought and answer with thinking on, and the answer with thinking off."""

    thought: str
    answer: str
    plain: str


# ----------------------------------------------------------------------------------- lines, pure


def lines(asked: Sequence[LabelledReplies], source: str) -> Iterator[dict[str, Any]]:
    """Corpus lines of one engine without duplicate texts, hits before clean ones."""
    seen: set[str] = set()
    made = [line for i, one in enumerate(asked) for line in _hits(one, i)]
    made += [line for one in asked for line in _clean(one)]
    for line in made:
        if line["text"] and line["text"] not in seen:
            seen.add(line["text"])
            yield {**line, "group": f"{source}, {line['group']}"}


def _hits(asked: LabelledReplies, number: int) -> Iterator[dict[str, Any]]:
    forms = list(_leak_variants(asked.thought.strip(), asked.answer.strip()))
    for k in range(min(_VARIANTS_PER_THOUGHT, len(forms))):
        group, why, text = forms[(number * _VARIANTS_PER_THOUGHT + k) % len(forms)]
        line = {"group": group, "label": "hit", "text": text, "why": why}
        bare = "no tags" in group
        short = bare and len(asked.thought.strip()) < MIN_THOUGHT_CHARS
        yield line | ({"group": "no tags, too short to tell", "counts": False} if short else {})


def _leak_variants(thought: str, answer: str) -> Iterator[tuple[str, str, str]]:
    """(group, why, text) for every way in which this thought could leak."""
    if not thought:
        return
    yield "tags", "the whole block", f"<think>\n{thought}\n</think>\n\n{answer}"
    yield "no tags", "thought and answer", f"{thought}\n\n{answer}".strip()
    yield "tags", "only the closing tag", f"{thought}\n</think>\n\n{answer}"
    yield "no tags", "the thought alone", thought
    for part in (1 / 3, 2 / 3):
        yield "tags", f"cut after {part:.0%} of the thought", f"<think>\n{_cut(thought, part)}"
    for part in (1 / 2, 3 / 4):
        head = _cut(thought, part)
        if len(head) >= MIN_THOUGHT_CHARS:
            yield "no tags", f"cut after {part:.0%} of the thought", head


def _cut(text: str, part: float) -> str:
    """The first part of a text, up to the end of a word."""
    head = text[: round(len(text) * part)]
    return head.rpartition(" ")[0] or head


def _clean(asked: LabelledReplies) -> Iterator[dict[str, Any]]:
    for why, text in (("answer after a thought", asked.answer), ("answer, thinking off", asked.plain)):
        if not _is_tagged(text):
            yield {"group": "answers", "label": "clean", "text": text.strip(), "why": why}


def _is_tagged(text: str) -> bool:
    """Whether a reply itself contains a thinking tag; it then cannot serve as a clean line."""
    return "think>" in text


# ------------------------------------------------------------------------------------ the engine


@dataclass(frozen=True, slots=True)
class LabelPrompts:
    """What is asked: a system prompt, prompts without tools, and prompts with tools."""

    system: str
    tools: tuple[Mapping[str, Any], ...]
    plain: tuple[str, ...]
    with_tools: tuple[str, ...]

    def bodies(self, model: str, thinking: bool, max_tokens: int) -> Iterator[dict[str, Any]]:
        """A request body for every prompt, at temperature 0."""
        for i, text in enumerate((*self.plain, *self.with_tools)):
            body: dict[str, Any] = {
                "model": model,
                "messages": [{"role": "system", "content": self.system}, {"role": "user", "content": text}],
                "temperature": 0,
                "max_tokens": max_tokens,
                "chat_template_kwargs": {"enable_thinking": thinking},
            }
            yield body | ({"tools": list(self.tools)} if i >= len(self.plain) else {})


def read_prompts() -> LabelPrompts:
    table = json.loads((FOLDER / "prompts.json").read_text(encoding="utf-8"))
    sent = tuple(tools()[name] for name in table["tools"])
    return LabelPrompts(table["system"], sent, tuple(table["prompts"]), tuple(table["tool_prompts"]))


def ask_all(
    url: str, prompts: LabelPrompts, *, model: str, max_tokens: int, done: Callable[[], None]
) -> list[LabelledReplies]:
    """Ask every prompt twice; `done` is called after each reply. Raises RunError if the engine does not answer."""

    with (
        httpx2.Client(base_url=url, timeout=_TIMEOUT_S) as client,
        ThreadPoolExecutor(_CONCURRENCY) as pool,
    ):

        def send(body: dict[str, Any]) -> Mapping[str, Any]:
            message = _message(client, body)
            done()
            return message

        on = list(pool.map(send, prompts.bodies(model, True, max_tokens)))
        off = list(pool.map(send, prompts.bodies(model, False, max_tokens)))
    return [
        LabelledReplies(_thought(thinking), thinking.get("content") or "", plain.get("content") or "")
        for thinking, plain in zip(on, off, strict=True)
    ]


def first_model(url: str) -> str:
    """The first model that an engine lists. Raises RunError."""
    with httpx2.Client(base_url=url, timeout=_TIMEOUT_S) as client:
        listed = _json(client, "GET", "/v1/models")
    try:
        return str(listed["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise RunError(f"{url}: lists no model; name one with --model") from None


def _message(client: httpx2.Client, body: Mapping[str, Any]) -> Mapping[str, Any]:
    reply = _json(client, "POST", "/v1/chat/completions", body)
    try:
        message: Mapping[str, Any] = reply["choices"][0]["message"]
    except (KeyError, IndexError, TypeError):
        raise RunError(f"{client.base_url}: no chat completion, but {reply!r:.200}") from None
    return message


def _json(client: httpx2.Client, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    try:
        response = client.request(method, path, json=body)
        response.raise_for_status()
        return response.json()
    except httpx2.HTTPStatusError as error:
        answer = error.response
        raise RunError(f"{client.base_url}: {answer.status_code} {answer.content[:200]!r}") from None
    except (httpx2.HTTPError, ValueError) as error:
        raise RunError(f"{client.base_url}: no reply ({error}); is the engine up?") from None


def _thought(message: Mapping[str, Any]) -> str:
    """The reasoning: vLLM has it in `reasoning`, llama-server and older vLLM in `reasoning_content`."""
    return str(message.get("reasoning_content") or message.get("reasoning") or "")
