"""A random model's folder whose every token is text: servers say something, and nothing else changes."""

import json
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from tokenizers import Tokenizer

from quantizer.experiments.bench.random_folder import NANO
from quantizer.experiments.bench.spoken_folder import pad, speak


def test_every_token_is_text_and_prompts_are_what_they_were(tmp_path: Path) -> None:
    folder, out = tmp_path / "made", tmp_path / "out"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((NANO / name).read_bytes())
    (folder / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 5000}}), "utf-8")
    speak(folder, out)
    before, after = (Tokenizer.from_file(str(one / "tokenizer.json")) for one in (folder, out))
    assert all(after.decode([number]) for number in range(before.get_vocab_size(), 5000))
    text = "<|im_start|>What is w4999 and <think> w2100?<|im_end|>"
    assert after.encode(text).ids == before.encode(text).ids
    assert after.get_vocab_size() == 5000
    assert (out / "tokenizer_config.json").resolve() == folder / "tokenizer_config.json"
    assert pad(json.loads((out / "tokenizer.json").read_text("utf-8")), 5000) == 0
