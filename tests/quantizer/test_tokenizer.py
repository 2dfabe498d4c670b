"""The shipped tokenizer: nothing is lost, tags are visible text, and parts make the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
tokenizers = pytest.importorskip("tokenizers", reason=INSTALL)
pytest.importorskip("jinja2", reason=INSTALL)

from quantizer.experiments.nano import annie  # noqa: E402
from quantizer.experiments.nano import tokenizer as bpe  # noqa: E402
from quantizer.experiments.nano.generate import conversation  # noqa: E402
from quantizer.experiments.nano.recipe import NANO  # noqa: E402

FOLDER = Path(__file__).parents[2] / "models" / "annie-nano-hf"
TEXTS = [
    "Hello!",
    "Namaskara, hegiddira? Oota aytha?",
    "ನಮಸ್ಕಾರ, ಹೇಗಿದ್ದೀರಾ? ಮೈಸೂರು ೨೦೨೬",
    "  two spaces, a tab\t, a line\n\nand \r\n another  ",
    "naïve café, cafe\u0301, 日本語, 🙂👍🏽, \u200b",
    'It\'s {"a": [1, 2.5, true]} — 100 %.',
    "",
    "\x00\x7f",
]


@pytest.fixture(scope="module")
def shipped() -> Any:
    return tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_comes_back(shipped: Any, text: str) -> None:
    """Bytes are the alphabet, so Kannada, emoji and control characters survive, uncomposed ones too."""
    assert text == shipped.decode(shipped.encode(text).ids, skip_special_tokens=False)


def test_the_vocabulary_is_full_and_without_gaps(shipped: Any) -> None:
    """One id for each row of the embedding."""
    assert NANO.shape.vocab == shipped.get_vocab_size()
    assert all(shipped.id_to_token(i) is not None for i in range(NANO.shape.vocab))


def test_digits_are_single_tokens(shipped: Any) -> None:
    """A number is read digit by digit, as Qwen does."""
    assert shipped.encode("2026").tokens == ["2", "0", "2", "6"]


@pytest.mark.parametrize("tag", bpe.TAGS)
def test_tags_are_one_token_and_stay_visible(shipped: Any, tag: str) -> None:
    """A detokenizer that hides special tokens must not hide a thought's or a call's tags."""
    ids = shipped.encode(tag).ids

    assert len(ids) == 1
    assert tag == shipped.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("token", bpe.SPECIAL)
def test_control_tokens_are_one_token_and_hidden(shipped: Any, token: str) -> None:
    """Turn marks are not speech."""
    ids = shipped.encode(token).ids

    assert len(ids) == 1
    assert shipped.decode(ids, skip_special_tokens=True) == ""


def test_parts_tokenize_as_the_whole(shipped: Any) -> None:
    """An engine sees the prompt as one text and then single tokens; training sees the same ids."""
    for index in range(200):
        sample = annie.sample(conversation(3, "train", index))
        parts = [i for text, _ in sample.parts for i in shipped.encode(text).ids]
        assert parts == shipped.encode(sample.text).ids


@pytest.mark.nightly  # the others try the shipped tokenizer
@pytest.mark.slow  # trains the whole tokenizer: 10 s of CPU
def test_training_from_the_recipe_gives_the_shipped_tokenizer() -> None:
    """The tokenizer is rebuilt bit for bit from seed and generator."""
    data = pytest.importorskip("quantizer.experiments.nano.data", reason=INSTALL)
    texts = data.tokenizer_texts(NANO.data_seed, NANO.tokenizer_texts)
    made = bpe.train(texts, NANO.shape.vocab)

    assert json.loads(made.to_str()) == json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
