"""Markdown: what CommonMark's parser says, where it is wrong about speech, and what it does not see."""

import emoji
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.markdown import examine, find_markdown
from gates.detect.symbols import SYMBOLS

# What the parser says and speech does not mind, what it says wrongly, and what it misses: the cases
# that were measured before this detector was written, and their like. "" is clean.
GOLDEN = [
    # The parser is right that these are clean.
    ("-5", ""),
    ("It is -5 outside", ""),
    ("#1 song", ""),
    ("2 * 3 * 4", ""),
    ("snake_case", ""),
    ("3 < 4 and 5 > 4", ""),
    ("C# and F#", ""),
    ("9* rating and a 7*", ""),
    ("[1]", ""),
    ("Temp\n-5 today", ""),
    ("--", ""),
    # The parser takes these for Markdown.
    ("2*3*4 is 24", ""),
    ("5*x and 6*y", ""),
    ("A*B*C", ""),
    ("1986. A great season.", ""),
    ("10. That is the answer", ""),
    ("> 4 is bigger", ""),
    ("    indented", ""),
    ("+ 5", ""),
    ("Answer: 42\n===", ""),
    ("2**3**2 is 512", ""),
    ("It is $5 or maybe ten$ in all", ""),
    # The parser does not see these.
    ("• one", "bullet_char"),
    ("**bold", "unclosed"),
    ("https://example.com", "url"),
    ("annie@example.com", "email"),
    ("Good 😊", "emoji"),
    ("a ` b", "backtick"),
    ("$x^2$", "latex"),
    ("\\(x\\)", "latex latex"),
    ("a | b | c\nd | e | f", "table"),
    ("&nbsp;", "entity"),
    # These it sees, and they are.
    ("**bold**", "strong"),
    ("*em*", "em"),
    ("__bold__", "strong"),
    ("# Title", "heading"),
    ("- a\n- b", "bullet_list"),
    ("- a", "bullet_list"),
    ("1. a\n2. b", "ordered_list"),
    ("1. a", "ordered_list"),
    ("`code`", "code_inline"),
    ("```\ncode\n```", "fence"),
    ("> quoted", "blockquote"),
    ("Yes.\r> quoted", "blockquote"),
    ("a\n\n---", "hr"),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "table"),
    ("[here](x)", "link"),
    ("![image](x)", "image"),
    ("~~no~~", "strikethrough"),
    ("<b>x</b>", "html_inline html_inline"),
    ("<https://a.b>", "link"),
]


@pytest.mark.parametrize("text, kinds", GOLDEN)
def test_the_golden_strings_come_out_as_they_were_judged(text: str, kinds: str) -> None:
    assert [finding.kind for finding in find_markdown(text)] == kinds.split()


@pytest.mark.parametrize(
    "text, spans",
    [
        ("The **big** and *small* one", ["**big**", "*small*"]),
        ("a **b** **c** d", ["**b**", "**c**"]),
        ("***x***", ["***x***", "**x**"]),
        ("see [here](http://a.b) and ![i](j).", ["[here](http://a.b)", "![i](j)"]),
        ("Yes.\r\n\r\n- a\r\n- b", ["- a\r\n- b"]),
        ("ಹೌದು **ಸರಿ** 🙏", ["**ಸರಿ**", "🙏"]),
        ("use `a` or ``b``", ["`a`", "``b``"]),
        ("x [y][1] z\n\n[1]: http://a.b", ["[y]", "http://a.b"]),
    ],
)
def test_a_span_is_the_mark_with_what_it_marks(text: str, spans: list[str]) -> None:
    assert [text[finding.start : finding.end] for finding in find_markdown(text)] == spans


MARKUP = st.text(alphabet="ab1 -+*_`~<>#|[](){}$\\&;:.!\n\r\t=•@/w–😊ಅ", max_size=40)


@given(MARKUP)
def test_the_cheap_look_never_hides_a_finding(text: str) -> None:
    assert find_markdown(text) == examine(text)


@given(MARKUP)
def test_a_finding_lies_in_its_text_and_shows_it(text: str) -> None:
    for finding in examine(text):
        assert 0 <= finding.start < finding.end <= len(text)
        assert text[finding.start : finding.end].startswith(finding.excerpt.removesuffix("…"))


def test_every_emoji_there_is_passes_the_cheap_look() -> None:
    missed = [picture for picture in emoji.EMOJI_DATA if not SYMBOLS.search(picture)]
    assert not missed
