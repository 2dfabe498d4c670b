"""From conversations to tokens: what an engine reads, and which of it the assistant wrote.

For every turn of the assistant's the model folder's own chat template is asked twice, as an engine asks it: for the
prompt of that turn (tools and switches passed, generation prompt added), and for the conversation with the turn in it.
What the second has beyond the first is the reply. It is learned up to and with its end-of-turn token, at which an
engine stops, and what the template puts after it is not. Prompt and reply are cut into tokens apart, because the model
meets them so: the one as a text, the other token by token.

One row can give several samples. A template may write the past otherwise than it was generated (Qwen's drop old
thoughts, Qwen3's drop the empty thought of a turn that called a tool); then the next turn begins a sample of its own,
with the prompt that the engine would build. So every sample's beginning is some engine's prompt, token for token, and
every turn is learned once. No `{% generation %}` marks are needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from quantizer.core.errors import DataError, SourceError
from quantizer.data.conversation import Conversation

Thinking = Literal["as_is", "none"]
SWITCH: Final = "enable_thinking"


class TrainingSample(NamedTuple):
    """ids: int32 [tokens]. learned: bool [tokens], true where the assistant wrote it; never at the first."""

    ids: np.ndarray
    learned: np.ndarray


class Renderer:
    """The chat template and the tokenizer of a model folder. ends: ids of the tokens that end a turn."""

    def __init__(self, tokenizer: Any, ends: Iterable[int]) -> None:
        """Raises SourceError if there is no template, or nothing that ends a turn."""
        template = getattr(tokenizer, "chat_template", None)
        if not (template.get("default") if isinstance(template, dict) else template):
            raise SourceError("the model's tokenizer has no chat template; put chat_template.jinja beside it")
        self.tokenizer = tokenizer
        self.ends = frozenset(ends)
        if not self.ends:
            raise SourceError("neither generation_config.json nor the tokenizer names an end-of-turn token")

    @property
    def pad(self) -> int:
        """An id to fill rows with; nothing ever sees it."""
        pad = self.tokenizer.pad_token_id
        return int(pad if pad is not None else min(self.ends))

    def switches(self, conversation: Conversation) -> dict[str, Any]:
        """What the template is told. A row that says nothing was thought over if it has a thought, and else not: our
        gateway sends the switch with every request, and `off` unless it is asked for thoughts."""
        return {SWITCH: conversation.thinks, **conversation.switches}

    def prompt(self, conversation: Conversation, turn: int) -> str:
        """What an engine makes of the messages before one of the assistant's. Raises DataError."""
        return self._apply(conversation, turn, opened=True)

    def samples(self, conversation: Conversation) -> list[TrainingSample]:
        """The row as samples. Raises DataError: the template refuses it, opens a turn otherwise than it writes it, or
        a reply has no end."""
        done: list[_Draft] = []
        for turn, message in enumerate(conversation.messages):
            if message["role"] != "assistant":
                continue
            prompt, reply = self._turn(conversation, turn)
            if not done or not done[-1].goes_on(prompt):
                done.append(_Draft())
            done[-1].extend(prompt, reply)
        return [draft.sample() for draft in done]

    def _turn(self, conversation: Conversation, turn: int) -> tuple[list[int], list[int]]:
        """Ids of the prompt and of the reply to it."""
        where = f"{conversation.where}: message {turn}"
        prompt = self.prompt(conversation, turn)
        whole = self._apply(conversation, turn + 1, opened=False)
        if not whole.startswith(prompt):
            raise DataError(
                f"{where}: the template opens the turn with {prompt[-40:]!r} and writes it otherwise; if it has a "
                f'thought, set "chat_template_kwargs": {{"{SWITCH}": true}}'
            )
        return self.encode(prompt), self._reply(whole[len(prompt) :], where)

    def _reply(self, text: str, where: str) -> list[int]:
        ids = self.encode(text)
        ends = [place for place, token in enumerate(ids) if token in self.ends]
        if not ends:
            raise DataError(f"{where}: the template gives the turn no end ({text[-40:]!r})")
        if len(ends) > 1:
            raise DataError(f"{where}: holds an end-of-turn token, at which an engine would stop")
        return ids[: ends[0] + 1]

    def encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _apply(self, conversation: Conversation, messages: int, opened: bool) -> str:
        try:
            return self.tokenizer.apply_chat_template(
                list(conversation.messages[:messages]),
                tools=list(conversation.tools) or None,
                add_generation_prompt=opened,
                tokenize=False,
                **self.switches(conversation),
            )
        except Exception as error:  # a template is a program, and can fail in any way
            told = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{conversation.where}: the chat template refuses it ({told})") from None


class _Draft:
    """A sample that grows turn by turn."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._learned: list[bool] = []

    def goes_on(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt begins with all that was read and written so far."""
        return list(prompt[: len(self._ids)]) == self._ids

    def extend(self, prompt: Sequence[int], reply: Sequence[int]) -> None:
        read = prompt[len(self._ids) :]
        self._ids += [*read, *reply]
        self._learned += [False] * len(read) + [True] * len(reply)

    def sample(self) -> TrainingSample:
        return TrainingSample(np.array(self._ids, np.int32), np.array(self._learned))


def open_renderer(folder: Path) -> Renderer:
    """The renderer of a model folder. Raises SourceError if its tokenizer or template cannot be used."""
    from transformers import AutoTokenizer

    if not folder.is_dir():
        raise SourceError(f"{folder}: no such folder")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a broken tokenizer.json raises bare Exception
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SourceError(f"{folder}: its tokenizer cannot be loaded ({told})") from None
    try:
        return Renderer(tokenizer, _ends(folder, tokenizer))
    except SourceError as error:
        raise SourceError(f"{folder}: {error}") from None


def _ends(folder: Path, tokenizer: Any) -> set[int]:
    """Ids that an engine stops at: generation_config.json's, or else config.json's, and the tokenizer's."""
    ends = {tokenizer.eos_token_id}
    for name in ("generation_config.json", "config.json"):
        try:
            named = json.loads((folder / name).read_text("utf-8")).get("eos_token_id")
        except (OSError, ValueError):
            continue
        if named is not None:
            ends |= set(named if isinstance(named, list) else [named])
            break
    return {int(end) for end in ends if end is not None}
