"""Labels for the leak detector from a model itself: asked to think, and asked not to.

With thinking on an engine sends the thought apart. Put back in front of the answer, with its tags
and without, cut at several places, it is a leak for certain; the answer alone, and every answer with
thinking off, is clean for certain. So a model labels its own habit of thinking, free of charge, and
`python -m gates.detect label URL` does it again for any engine.

Two labels are not held against the detector: a thought shorter than 60 characters and without its
tags ("It worked.") is a leak that nobody could tell from an answer, so those lines do not count.
The pure part makes lines from replies; the edge is `ask_all`.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gates.contracts.errors import RunError
from gates.detect.corpus import FOLDER, tools

LEAST_THOUGHT: Final = 60  # characters of a thought without tags that can be told from an answer
_FORMS_EACH: Final = 3  # lines made of one thought; which ones, changes from prompt to prompt
_TIMEOUT: Final = 300.0  # seconds
_AT_ONCE: Final = 4  # requests


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One prompt's two replies: the thought and the answer with thinking on, the answer with it off."""

    thought: str
    answer: str
    plain: str


# ----------------------------------------------------------------------------------- lines, pure


def lines(asked: Sequence[ParsedRequest], source: str) -> Iterator[dict[str, Any]]:
    """Corpus lines of one engine, each text once, hits before clean ones."""
    seen: set[str] = set()
    made = [line for i, one in enumerate(asked) for line in _hits(one, i)]
    made += [line for one in asked for line in _clean(one)]
    for line in made:
        if line["text"] and line["text"] not in seen:
            seen.add(line["text"])
            yield {**line, "group": f"{source}, {line['group']}"}


def _hits(asked: ParsedRequest, number: int) -> Iterator[dict[str, Any]]:
    forms = list(_forms(asked.thought.strip(), asked.answer.strip()))
    for k in range(min(_FORMS_EACH, len(forms))):
        group, why, text = forms[(number * _FORMS_EACH + k) % len(forms)]
        line = {"group": group, "label": "hit", "text": text, "why": why}
        bare = "no tags" in group
        short = bare and len(asked.thought.strip()) < LEAST_THOUGHT
        yield line | ({"group": "no tags, too short to tell", "counts": False} if short else {})


def _forms(thought: str, answer: str) -> Iterator[tuple[str, str, str]]:
    """(group, why, text) for every way in which this thought might have leaked."""
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
        if len(head) >= LEAST_THOUGHT:
            yield "no tags", f"cut after {part:.0%} of the thought", head


def _cut(text: str, part: float) -> str:
    """The beginning of a text, up to a word's end."""
    head = text[: round(len(text) * part)]
    return head.rpartition(" ")[0] or head


def _clean(asked: ParsedRequest) -> Iterator[dict[str, Any]]:
    for why, text in (("answer after a thought", asked.answer), ("answer, thinking off", asked.plain)):
        if not _is_tagged(text):
            yield {"group": "answers", "label": "clean", "text": text.strip(), "why": why}


def _is_tagged(text: str) -> bool:
    """A reply that leaks by itself labels nothing: an engine that thinks though it may not."""
    return "think>" in text


# ------------------------------------------------------------------------------------ the engine


@dataclass(frozen=True, slots=True)
class Prompts:
    """What is asked: a system prompt, prompts without tools, and prompts with them."""

    system: str
    tools: tuple[Mapping[str, Any], ...]
    plain: tuple[str, ...]
    with_tools: tuple[str, ...]

    def bodies(self, model: str, thinking: bool, max_tokens: int) -> Iterator[dict[str, Any]]:
        """A request for every prompt, greedy."""
        for i, text in enumerate((*self.plain, *self.with_tools)):
            body: dict[str, Any] = {
                "model": model,
                "messages": [{"role": "system", "content": self.system}, {"role": "user", "content": text}],
                "temperature": 0,
                "max_tokens": max_tokens,
                "chat_template_kwargs": {"enable_thinking": thinking},
            }
            yield body | ({"tools": list(self.tools)} if i >= len(self.plain) else {})


def read_prompts(path: Path = FOLDER / "prompts.json") -> Prompts:
    """The prompts of a file."""
    table = json.loads(path.read_text(encoding="utf-8"))
    sent = tuple(tools()[name] for name in table["tools"])
    return Prompts(table["system"], sent, tuple(table["prompts"]), tuple(table["tool_prompts"]))


def ask_all(
    url: str, prompts: Prompts, *, model: str, max_tokens: int, done: Callable[[], None]
) -> list[ParsedRequest]:
    """Ask every prompt twice, `done` after each reply. Raises RunError when the engine does not answer."""

    def send(body: dict[str, Any]) -> Mapping[str, Any]:
        message = _message(url, body)
        done()
        return message

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        on = list(pool.map(send, prompts.bodies(model, True, max_tokens)))
        off = list(pool.map(send, prompts.bodies(model, False, max_tokens)))
    return [
        ParsedRequest(_thought(thinking), thinking.get("content") or "", plain.get("content") or "")
        for thinking, plain in zip(on, off, strict=True)
    ]


def first_model(url: str) -> str:
    """The first model that an engine lists. Raises RunError."""
    listed = _json(urllib.request.Request(f"{url}/v1/models"), url)
    try:
        return str(listed["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise RunError(f"{url}: lists no model; name one with --model") from None


def _message(url: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    reply = _json(request, url)
    try:
        message: Mapping[str, Any] = reply["choices"][0]["message"]
    except (KeyError, IndexError, TypeError):
        raise RunError(f"{url}: no chat completion, but {reply!r:.200}") from None
    return message


def _json(request: urllib.request.Request, url: str) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RunError(f"{url}: {error.code} {error.read()[:200]!r}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise RunError(f"{url}: no reply ({error}); is the engine up?") from None


def _thought(message: Mapping[str, Any]) -> str:
    """vLLM says `reasoning`, llama-server and older vLLM `reasoning_content`."""
    return str(message.get("reasoning_content") or message.get("reasoning") or "")
