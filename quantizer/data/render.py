"""Render conversations to tokens: what an engine reads, and which part of it the assistant wrote.

For every turn of the assistant, the chat template is applied twice: to get the prompt of that turn, and the conversation with the
turn. The difference is the reply, which is trained up to and including its end-of-turn token. Prompt and reply are tokenized
separately, as an engine does.

One row can give several samples: where a template renders earlier turns differently from how they were generated (Qwen's drop
old thoughts), the next turn begins a sample of its own. So every sample begins with the exact prompt of an engine, and every
turn is learned once. A template that drops a message, a call or a tool is refused: what is gone would be learned as silence.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from gates.contracts import strict_json
from quantizer.core.errors import DataError, SourceError, first_line
from quantizer.data.conversation import END_OF_THOUGHT, Conversation, Message

Thinking = Literal["as_is", "none"]
HERMES: Final = "hermes"
SWITCH: Final = "enable_thinking"


class TrainingSample(NamedTuple):
    """ids: int32 [tokens]. learned: bool [tokens], true where the assistant wrote the token; never for the first."""

    ids: np.ndarray
    learned: np.ndarray


class Renderer:
    """The chat template and the tokenizer of a model folder. ends: ids of the tokens that end a turn."""

    def __init__(self, tokenizer: Any, ends: Iterable[int]) -> None:
        """Raises SourceError if there is no template, or no end-of-turn token."""
        template = getattr(tokenizer, "chat_template", None)
        if not (template.get("default") if isinstance(template, dict) else template):
            raise SourceError(
                "the model's tokenizer has no chat template; name one: --template hermes, or a file"
            )
        self.tokenizer = tokenizer
        self.ends = frozenset(ends)
        if not self.ends:
            raise SourceError("neither generation_config.json nor the tokenizer names an end-of-turn token")

    @property
    def pad(self) -> int:
        """A token id for padding, which has no effect."""
        pad = self.tokenizer.pad_token_id
        return int(pad if pad is not None else min(self.ends))

    def switches(self, conversation: Conversation) -> dict[str, Any]:
        """Keyword arguments for the template. By default, thinking is on if the row has a thought: the gateway
        sends this switch with every request, and sends `off` unless thoughts are requested."""
        return {SWITCH: conversation.thinks, **conversation.switches}

    def prompt(self, conversation: Conversation, turn: int) -> str:
        """The prompt that an engine builds from the messages before one of the assistant. Raises DataError."""
        return self._apply(conversation, turn, opened=True)

    def samples(self, conversation: Conversation) -> list[TrainingSample]:
        """The row as samples. Raises DataError."""
        done: list[_SampleBuilder] = []
        for turn, message in enumerate(conversation.messages):
            if message["role"] != "assistant":
                continue
            prompt, reply = self._turn(conversation, turn)
            if not done or not done[-1].goes_on(prompt):
                done.append(_SampleBuilder())
            done[-1].extend(prompt, reply)
        return [draft.sample() for draft in done]

    def _turn(self, conversation: Conversation, turn: int) -> tuple[list[int], list[int]]:
        """Token ids of the prompt and of its reply."""
        where = f"{conversation.where}: message {turn}"
        prompt = self.prompt(conversation, turn)
        whole = self._apply(conversation, turn + 1, opened=False)
        if not whole.startswith(prompt):
            raise DataError(
                f"{where}: the template opens the turn with {prompt[-40:]!r} and writes it otherwise; if it has a "
                f'thought, set "chat_template_kwargs": {{"{SWITCH}": true}}'
            )
        reply = whole[len(prompt) :]
        said = [(part, prompt) for part in conversation.messages[:turn] if part["role"] != "assistant"]
        offered = [(tool["function"]["name"], prompt) for tool in conversation.tools]
        written = [
            (text, seen)
            for part, seen in (*said, (conversation.messages[turn], reply))
            for text in _texts(part)
        ]
        if lost := next((text for text, seen in (*offered, *written) if not _shows(seen, text)), None):
            raise DataError(
                f"{where}: the template drops {lost[:60]!r}; name one that renders every message, tool and "
                f"call: --template {HERMES}, or a file"
            )
        return self.encode(prompt), self._reply(reply, where)

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
            raise DataError(
                f"{conversation.where}: the chat template refuses it ({first_line(error)})"
            ) from None


def _texts(message: Message) -> Iterator[str]:
    """What a rendered message must show: its text behind a thought, and its calls with their arguments."""
    yield str(message["content"]).split(END_OF_THOUGHT)[-1].strip()
    for call in message.get("tool_calls") or ():
        yield call["function"]["name"]
        for key, value in call["function"]["arguments"].items():
            yield from (key, value) if isinstance(value, str) else (key,)


def _shows(rendered: str, text: str) -> bool:
    """Whether a text stands in a rendered one, as it is or as JSON has it."""
    forms = (text, *(json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (False, True)))
    return any(form in rendered for form in forms)


class _SampleBuilder:
    """A sample that grows turn by turn."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._learned: list[bool] = []

    def goes_on(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt begins with everything that was read and written so far."""
        return list(prompt[: len(self._ids)]) == self._ids

    def extend(self, prompt: Sequence[int], reply: Sequence[int]) -> None:
        read = prompt[len(self._ids) :]
        self._ids += [*read, *reply]
        self._learned += [False] * len(read) + [True] * len(reply)

    def sample(self) -> TrainingSample:
        return TrainingSample(np.array(self._ids, np.int32), np.array(self._learned))


def read_template(name: str | None) -> str | None:
    """The text of a chat template: the one that is shipped, or a file's. Raises SourceError."""
    if name is None:
        return None
    try:
        return (Path(__file__).with_name("hermes.jinja") if name == HERMES else Path(name)).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"--template {name}: neither {HERMES} nor a file that can be read ({error})"
        ) from None


def open_renderer(folder: Path, template: str | None = None) -> Renderer:
    """The renderer of a model folder, with another template's text if one is given. Raises SourceError if its tokenizer or
    template cannot be used."""
    from transformers import AutoTokenizer

    if not folder.is_dir():
        raise SourceError(f"{folder}: no such folder")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a broken tokenizer.json raises bare Exception
        raise SourceError(f"{folder}: its tokenizer cannot be loaded ({first_line(error)})") from None
    tokenizer.chat_template = template or tokenizer.chat_template
    try:
        return Renderer(tokenizer, _ends(folder, tokenizer))
    except SourceError as error:
        raise SourceError(f"{folder}: {error}") from None


def _ends(folder: Path, tokenizer: Any) -> set[int]:
    """Ids at which an engine stops: from generation_config.json or else config.json, and from the tokenizer."""
    ends = {tokenizer.eos_token_id}
    for name in ("generation_config.json", "config.json"):
        try:
            named = strict_json.loads((folder / name).read_text("utf-8")).get("eos_token_id")
        except (OSError, ValueError):
            continue
        if named is not None:
            ends |= set(named if isinstance(named, list) else [named])
            break
    return {int(end) for end in ends if end is not None}
