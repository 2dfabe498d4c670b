"""Markers and JSON beside words: what the corpora have too few of to notice a fault."""

from tests.app.stream.parse import parse
from tests.looped import looped

OSLO = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
CALL = [("get_weather", {"city": "Oslo"})]
ROWS = {
    "a pair inside a sentence": ("It is <think> a secret plan </think> fine.", "It is fine.", []),
    "a tag that a sentence mentions": ("Write <think> first.", "Write <think> first.", []),
    "a thought's tag that ends the reply": ("Write <think>", "Write ", []),
    "a call's tag that ends the reply": ("Write <tool_call>", "Write ", []),
    "words behind JSON": (f"{OSLO} is an example", f"{OSLO} is an example", []),
    "a line behind JSON": (f"{OSLO}\n", "", CALL),
    "words behind a fence": (f"```json\n{OSLO}\n```\nSo it goes.", f"```json\n{OSLO}\n```\nSo it goes.", []),
    "a fence alone": (f"```json\n{OSLO}\n```", "", CALL),
    "a call that lacks its brackets": (f"<tool_call>{OSLO[:-2]}", "", CALL),
    "a call in a thought that ends": (f"<think><tool_call>{OSLO}</tool_call></think>Hello.", "Hello.", []),
    "a call in a thought that ends the reply": (f"<think><tool_call>{OSLO}</tool_call></think>", "", []),
}


@looped("name", ROWS)
def test_words_beside_a_marker_decide_what_it_is(name: str) -> None:
    text, speech, calls = ROWS[name]
    for size in (None, 1, 5):
        assert parse("qwen", ["get_weather"], False, "", text, size) == (speech, calls), size


ACROSS = {
    "the end of a message's header": ("Hm.<|end|><|start|>assistant<|channel|>final<|mess", "age|>Hello."),
    "the channel in a header": ("Hm.<|end|><|start|>assistant<|channel|>fi", "nal<|message|>Hello."),
    "the header of a thought": ("Hm.<|channel|>analysis<|mess", "age|>Four.<|end|>Hello."),
    "a call's tag that a thought mentions": ("<tool_call>X", "Hello."),
    "a call by elements that a thought leaves open": ("<function=get_weather><parameter=city>Os", "Hello."),
    "a call in JSON that a thought leaves open": (f"<tool_call>{OSLO[:20]}", "Hello."),
    "a whole call behind such a tag": (f"<tool_call>X <tool_call>{OSLO}</tool_call>", "Hello."),
    "a quote before the end of a message": (
        '<|think|>"X',
        'Z"<|end|><|begin|>assistant<|content|><|think|>"XZ"<|end|><|begin|>assistant<|content|>Hello.',
    ),
    "a role": ("<|im_start|>assis", "tant\nHello."),
    "a role that is whole": ("<|im_start|>assistant", "Hello."),
}


@looped("name", ACROSS)
def test_headers_and_calls_are_read_across_the_seam_of_the_fields(name: str) -> None:
    reasoning, content = ACROSS[name]
    for size in (None, 1, 5):
        assert parse("none", [], False, reasoning, content, size) == ("Hello.", []), size
