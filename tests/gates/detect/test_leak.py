"""Leaked thinking: by field, by token, by tag, by number and by wording; and what only sounds like it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.leak import SIGNS, find_leaks, fold
from gates.detect.rawcall import find_raw_calls
from gates.detect.tags import added_tokens, find_broken_template
from tests.fuzz.replies import CALLS, THOUGHTS
from tests.gates.detect.corpora import load_all

PLAIN = "The capital of Karnataka is Bengaluru."


def test_a_reasoning_field_is_a_leak_where_thinking_is_off() -> None:
    found = find_leaks(PLAIN, reasoning="They ask for a capital.")
    assert [(f.kind, f.part) for f in found] == [("reasoning", "reasoning")]
    assert find_leaks(PLAIN, reasoning="\n\n") == []


def test_a_models_own_special_token_breaks_the_template_once() -> None:
    found = find_broken_template("Yes.<ponder>", tokens=["<ponder>", "<|im_end|>"])
    assert [f.excerpt for f in found] == ["<ponder>"]
    assert len(find_broken_template("Yes.<|im_end|>", tokens=["<|im_end|>"])) == 1


def test_added_tokens_are_read_from_a_tokenizer_without_plain_words_and_html() -> None:
    document = {
        "added_tokens": [
            *({"content": t} for t in ("<|im_end|>", "    ", "hello", "\n\n", "ab")),
            *({"content": t, "special": False} for t in ("<think>", "<table>", "</h1>")),
        ]
    }
    assert added_tokens(document) == {"<|im_end|>", "<think>"}
    assert added_tokens({}) == frozenset()


# ------------------------------------------------------------------------------------- the look-up


@given(st.text())
def test_a_folded_text_keeps_its_places(text: str) -> None:
    assert len(fold(text)) == len(text)


def test_no_sign_is_dead() -> None:
    texts = [fold(line.fields["text"]) for line in load_all() if line.detector == "leak"]
    dead = [sign.regex.pattern for sign in SIGNS if not any(next(sign.spans(low), None) for low in texts)]
    assert not dead


PAGE: Final = Path(__file__).parents[3] / "docs" / "tool-calls.md"
TOOLS: Final = ("weather", "set_light", "lookup")
FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "untagged JSON with loose quotes": (
        "{name: 'weather', arguments: {city: 'Pune'}}",
        "{'name': 'weather', 'arguments': {'city': 'Pune'}}",
        "{tool: weather, parameters: {city: Pune}}",
    ),
    "`f(x=1)` alone on its line, or `[f(x=1)]` unless the format is `pythonic` or `llama`": (
        'weather(city="Pune")', 'One moment.\nlookup(city="Pune", days=2)\n', '[weather(city="Pune")]',
        "[get.weather(city='Pune', days=2), get.time(zone=\"IST\")]", 'Sure. [weather(city="Pune")]',
    ),
    "ReAct (`Action:`, `Action Input:`)": (
        'Thought: look\nAction: lookup\nAction Input: {"city": "Pune"}', "**Action:** lookup\n**Action Input:** Pune",
    ),
    "elements named like a tool": ("<weather><city>Pune</city></weather>", '<set_light on="true"/>', '<weather city="Pune" />'),
    '`<function name="f">`': ('<function name="lookup"><arg>1</arg></function>',),
    "`<parameter=` without its call": ("<parameter=city>\nPune\n</parameter>",),
    "`tool_code` fences; tagged calls and think pairs in fences or spans": (
        '```tool_code\nprint(lookup("Pune"))\n```', '```\n<tool_call>\n{"name": "lookup", "arguments": {}}\n</tool_call>\n```',
        "```\n<think>We look.</think>\n```",
    ),
    "a tagged call in prose": ('You would write <tool_call>{"name": "lookup", "arguments": {}}</tool_call>.',),
    "JSON in prose, behind a bullet or `functools` (phi-4-mini)": (
        'I will call {"name": "lookup", "arguments": {"city": "Pune"}} now.', '- {"tool": "lookup", "args": {}}',
        'functools[{"name": "lookup", "arguments": {"city": "Pune"}}]',
    ),
    "fenced JSON, then prose or another fence": ('```json\n{"name": "lookup", "arguments": {}}\n```\nThat is all.',),
    "untagged JSON begun in reasoning and ended in text": ('"Pune"}}', 'uments": {"city": "Pune", "at": {"day": 1}}}', '"days": 2}}\n'),
    'granite 3.2\'s "Here is my thought process:"': ("Here is my thought process:\nThe capital is asked for.",),
    "gpt-oss headers without their first token; a tool's name above its JSON (GLM-4, functionary)": (
        "analysisWe look.assistantfinalHi.", 'commentary to=functions.lookup json{"city":"Pune"}', "analysis<|message|>We look.",
        'lookup\n{"city": "Pune"}', '>>>lookup\n{"city": "Pune"}', '<|recipient|>lookup\n<|content|>{"city": "Pune"}',
    ),
    "SmolLM3's Python in `<code>`": ('<code>\nlookup(city="Pune")\n</code>',),
    "gpt-oss's `commentary` to nobody": ("<|channel|>commentary<|message|>One moment.<|end|>",),
    "a call in a thought that is closed": ('<think>{"name": "lookup", "arguments": {}}</think>Hi.',),
    "nested thoughts": ("<think>a<think>b</think>c</think>d",),
    "a closing tag last, with nothing behind it": ("We look it up.</think>",),
    "an opening tag that nothing closes": ("<think>We look it up.",),
}  # fmt: skip


def _rows() -> list[str]:
    part = PAGE.read_text("utf-8").partition("## What is not recognised")[2].partition("\n## ")[0]
    return re.findall(r"^\| (.*?) \| .* \|$", part, re.MULTILINE)[1:]


def test_every_row_of_the_page_has_examples_here() -> None:
    assert len(_rows()) == len(FORMS), "in the page's order; its words may differ"


@pytest.mark.parametrize(
    "text", [text for texts in FORMS.values() for text in texts], ids=[f"{form}-{i}" for form, texts in FORMS.items() for i, _ in enumerate(texts)]
)  # fmt: skip
def test_a_form_that_the_parser_leaves_is_found(text: str) -> None:
    assert [*find_leaks(text), *find_broken_template(text), *find_raw_calls(text, TOOLS)]


def test_every_form_that_the_fuzz_draws_is_found() -> None:
    said = {"name": "run", "key": "command", "value": "x", "arguments": '{"command": "x"}'}
    assert [form for form in CALLS if not find_raw_calls(form.format(**said))] == []
    assert [
        pair
        for pair in THOUGHTS
        for text in ("Hm.{}Hi.", "{}Hm.")
        for mark in pair
        if not [*find_leaks(text.format(mark)), *find_broken_template(text.format(mark))]
    ] == []
