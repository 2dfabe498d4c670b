"""Make a tokenizer loadable for transformers 4, if it tokenizes every test text as before.

transformers 5 writes `tokenizer_class: TokenizersBackend` (or Qwen3.5's own), which transformers 4 does not have, and
`extra_special_tokens` as a list, on which version 4 fails. Two classes exist in both versions:

    Qwen2Tokenizer             transformers 5 replaces its normalizer and pre-tokenizer by Qwen2's, so both must tokenize alike
    PreTrainedTokenizerFast    both read tokenizer.json unchanged

Servers expect the first for a Qwen model, so it is used if it tokenizes alike on `TEXTS`. The pre-tokenizers of Qwen2 and Qwen3.5
differ in combining marks, which English does not have. Sources: transformers 4.57 and 5.23, models/qwen2/tokenization_qwen2*.py.
"""

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

from tokenizers import Tokenizer

from quantizer.core.pre_tokenizers import QWEN2
from quantizer.surgery.checkpoint import CONFIG, TOKENIZER, TOKENIZER_CONFIG, Document, ModelCheckpoint
from quantizer.surgery.operation import OperationResult, Server, fine, needed, refused

OPERATION: Final = "tokenizer"
NEW: Final = ("TokenizersBackend", "TokenizersBackendFast", "Qwen3_5Tokenizer", "Qwen3_5TokenizerFast")
QWEN2_CLASS: Final = "Qwen2Tokenizer"
PLAIN: Final = "PreTrainedTokenizerFast"


def tokenizer(checkpoint: ModelCheckpoint, server: Server) -> tuple[OperationResult, ModelCheckpoint]:
    """Set a tokenizer class that the server's transformers has, and lists in the form that it reads."""
    config, document = checkpoint.documents.get(TOKENIZER_CONFIG), checkpoint.documents.get(TOKENIZER)
    if config is None:
        return fine(OPERATION, f"there is no {TOKENIZER_CONFIG}"), checkpoint
    if not server.transformers_4:
        return fine(OPERATION, f"{server.name} reads {config.get('tokenizer_class')}"), checkpoint
    after, changes = dict(config), []
    if config.get("tokenizer_class") in NEW:
        chosen, apart = (None, "there is no tokenizer.json") if document is None else choose(document, config)
        if chosen is None:
            return refused(OPERATION, f"no class of transformers 4 cuts alike: {apart}"), checkpoint
        after["tokenizer_class"] = chosen
        why = f"equal on {len(TEXTS)} texts" + (f"; {QWEN2_CLASS} is not: {apart}" if apart else "")
        changes.append(f"tokenizer_class: {config['tokenizer_class']} becomes {chosen} ({why})")
    if isinstance(config.get("extra_special_tokens"), list):
        listed = after.pop("extra_special_tokens")
        after["additional_special_tokens"] = [*after.get("additional_special_tokens", []), *listed]
        changes.append("extra_special_tokens, a list, becomes additional_special_tokens")
    if not changes:
        return fine(OPERATION, f"{config.get('tokenizer_class')} is known to transformers 4"), checkpoint
    step = needed(OPERATION, f"{server.name} comes with transformers 4", tuple(changes))
    return step, checkpoint.with_document(TOKENIZER_CONFIG, after)


def choose(document: Document, config: Document) -> tuple[str | None, str]:
    """The class to set, and where Qwen2's class differs (empty if it does not); None with a reason if no class
    fits."""
    added = _other_ids(document, config)
    if added:
        return None, added
    try:
        before = Tokenizer.from_str(json.dumps(document))
        apart = difference(before, Tokenizer.from_str(json.dumps(as_qwen2(document))))
    except Exception as error:  # the library raises plain Exception
        return None, f"tokenizer.json cannot be read ({error})"
    return (PLAIN, apart) if apart else (QWEN2_CLASS, "")


def as_qwen2(document: Document) -> dict[str, Any]:
    """tokenizer.json as transformers 5 rebuilds it for Qwen2Tokenizer."""
    after = copy.deepcopy(dict(document))
    split = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return after | {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": None,
    }


def difference(one: Tokenizer, other: Tokenizer) -> str:
    """The first text that two tokenizers split differently; empty if there is none."""
    for text in TEXTS:
        ids = [each.encode(text, add_special_tokens=False).ids for each in (one, other)]
        if ids[0] != ids[1]:
            return f"{text[:40]!r} has {len(ids[0])} tokens, and would have {len(ids[1])} or others"
    return ""


def _other_ids(document: Document, config: Document) -> str:
    """Added tokens to which the two files give different ids: transformers 4 would add them again."""
    held = {token["content"]: token["id"] for token in document.get("added_tokens", [])}
    held = {**document.get("model", {}).get("vocab", {}), **held}
    for number, token in (config.get("added_tokens_decoder") or {}).items():
        content = token.get("content") if isinstance(token, Mapping) else token
        if held.get(content) != int(number):
            return f"{content!r} is {number} in {TOKENIZER_CONFIG} and {held.get(content)} in {TOKENIZER}"
    return ""


def rope(checkpoint: ModelCheckpoint, server: Server) -> tuple[OperationResult, ModelCheckpoint]:
    """Set the base of the rotary embedding where transformers 4 reads it. Without it, version 4 uses 10,000, and
    the model generates nonsense without an error."""
    config = checkpoint.config
    held = config.get("rope_parameters")
    if not server.transformers_4 or not isinstance(held, dict):
        return fine("rope", "set where the server reads it"), checkpoint
    added: dict[str, Any] = {}
    if "rope_theta" in held and config.get("rope_theta") != held["rope_theta"]:
        added["rope_theta"] = held["rope_theta"]
    scaling = {key: value for key, value in held.items() if key != "rope_theta"}
    if scaling.get("rope_type", "default") != "default" and config.get("rope_scaling") != scaling:
        added["rope_scaling"] = scaling
    if not added:
        return fine("rope", "set where the server reads it"), checkpoint
    changes = tuple(f"config.json: {key} {value}" for key, value in added.items())
    step = needed("rope", f"{server.name} does not look into rope_parameters", changes)
    return step, checkpoint.with_document(CONFIG, {**config, **added})


TEXTS: Final = (
    "Hello! I'm Annie, and it's 7:45 p.m.; you've 12 new e-mails.",
    "We'll see what they'd say: that's all I've got, isn't it? DON'T SHOUT.",
    "ನಮಸ್ಕಾರ! ನಿಮ್ಮ ಹೆಸರೇನು? ನಾನು ಬೆಂಗಳೂರಿನಲ್ಲಿ ವಾಸಿಸುತ್ತಿದ್ದೇನೆ.",
    "ಇಂದು ಹವಾಮಾನ ಹೇಗಿದೆ? ತಾಪಮಾನ ೨೭ ಡಿಗ್ರಿ, ಅಂದರೆ 27 °C.",
    "नमस्ते, आप कैसे हैं? मैं ठीक हूँ। क्षत्रिय ज्ञान",
    "தமிழ் மொழி, తెలుగు భాష, മലയാളം, বাংলা ভাষা",
    "สวัสดีครับ วันนี้อากาศเป็นอย่างไร",
    "مُحَمَّدٌ يَكْتُبُ الدَّرْسَ، وَالسَّلَامُ عَلَيْكُمْ",
    "שָׁלוֹם עֲלֵיכֶם",
    "你好，今天是2026年11月21日。東京タワーへ行きたいです。한국어도 됩니다.",
    "Ünïcödé: naïve café, cafe\u0301, Z\u0351\u036b\u0343algo, \u00e5 A\u030a, ﬁne",
    "Привет, как дела? Γειά σου Κόσμε! Xin chào Việt Nam",
    "👩‍👩‍👧‍👦 🇮🇳 👍🏽 ☕️ ✅ → ∑ ≤ €",
    "1234567890 3.14159 0x1F 1,000,000 ½ ² ١٢٣ ೧೨೩",
    "  two  spaces,\ttab\t\tand \n new\n\n\nlines \r\n carriage \r\n\r\n end   ",
    'def f(x: int) -> str:\n    return f"{x:>08b}"  # comment\n\n\nprint(f(3))\n',
    '<tool_call>\n{"name": "web_search", "arguments": {"query": "ಮೈಸೂರು"}}\n</tool_call>',
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "https://example.org/a_b?c=d&e=%20f#g user@example.org C:\\dir\\file.txt",
    "",
    " ",
    "a",
)
