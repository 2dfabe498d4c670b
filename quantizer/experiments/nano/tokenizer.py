"""A byte-level BPE of about two thousand tokens, built like Qwen2's: GPT-2 bytes, digits one by one.

The pre-tokenizer's pattern is Qwen2's, so that llama.cpp's `qwen2` pre-tokenizer splits texts at the same places.
There is no normalizer: Qwen2 has NFC and llama.cpp has none, and it is more important that the two tokenizers
agree.

Three tokens are special (control tokens, which a detokenizer hides). The tags of thoughts and tool calls are plain
added tokens, as in Qwen: special ones would be missing from the text that a server returns, and with them every
tool call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from quantizer.core.json_file import write_object
from quantizer.core.pre_tokenizers import QWEN2

VOCAB_SIZE = 2048
PAD = "<|endoftext|>"
END = "<|im_end|>"
SPECIAL = (PAD, "<|im_start|>", "<|im_end|>")
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

# Learning never sees the added tokens, or merges would be spent on `|>` and the like.
_ADDED = re.compile("|".join(re.escape(token) for token in (*SPECIAL, *TAGS)))


def train(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """Learn the merges. Added tokens come last, so that the ids of plain tokens are merge ranks."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL) - len(TAGS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((part for text in texts for part in _ADDED.split(text)), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in TAGS])
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a token. Raises ValueError if it does not exist."""
    found: int | None = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"the tokenizer has no {token}")
    return found


def save(tokenizer: Tokenizer, folder: Path, template: str, extra_templates: dict[str, str]) -> None:
    """Write the files that transformers, vLLM and llama.cpp's converter read."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # reads tokenizer.json as it is, in 4.x and 5.x
        "model_max_length": 4096,
        "bos_token": None,
        "eos_token": END,
        "pad_token": PAD,
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
    }
    write_object(folder / "tokenizer_config.json", config)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    for name, text in extra_templates.items():
        (folder / "additional_chat_templates").mkdir(exist_ok=True)
        (folder / "additional_chat_templates" / f"{name}.jinja").write_text(text, encoding="utf-8")
