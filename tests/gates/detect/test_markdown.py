"""Markdown: what CommonMark's parser says, where it is wrong about speech, and what it does not see."""

from unittest.mock import patch

import emoji
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect import markdown
from gates.detect.markdown import SYMBOLS, find_markdown

# What the parser says and speech does not mind, what it says wrongly, and what it misses: the cases
# that were measured before this detector was written, and their like. "" is clean.


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
    with patch.object(markdown, "is_plain", lambda text: False):
        found = find_markdown(text)
    assert find_markdown(text) == found


@given(MARKUP)
def test_a_finding_lies_in_its_text_and_shows_it(text: str) -> None:
    for finding in find_markdown(text):
        assert 0 <= finding.start < finding.end <= len(text)
        assert text[finding.start : finding.end].startswith(finding.excerpt.removesuffix("…"))


def test_every_emoji_there_is_passes_the_cheap_look() -> None:
    missed = [picture for picture in emoji.EMOJI_DATA if not SYMBOLS.search(picture)]
    assert not missed
