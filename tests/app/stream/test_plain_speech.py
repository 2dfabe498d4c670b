"""Markdown as sentences for a voice: what is said of each form, on any split, and at once."""

import copy
import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stream.plain_speech import PlainSpeech
from tests.replies import rows
from tests.scale import scaled

LEFT_OUT = "(A code example is left out.)"
TABLE = "| Tool | Use |\n|:--|--:|\n| now | the **time** |\n| web | |\n"

SAID = {
    "Hello, world. How are you?": "Hello, world. How are you?",
    "# Title\n\nText": "Title.\n\nText",
    "### Why?\nSo.\n#\n": "Why?\nSo.",
    "A **bold** and *thin* and __b__ _i_ ~~no~~ ***all***.": "A bold and thin and b i no all.",
    "**Oven**\nHeat it.": "Oven.\nHeat it.",
    "**Note:** salt": "Note: salt",
    "- milk\n- eggs!\n\nDone.": "milk.\neggs!\n\nDone.",
    "* a\n  * b\n+ c\n• d": "a.\nb.\nc.\nd.",
    "1. Check the oil: pull.\n2) Wipe": "1. Check the oil: pull.\n2. Wipe.",
    "- a long\n  item goes on\n- b\nThat is all.": "a long\nitem goes on.\nb.\nThat is all.",
    '- he said "no."\n- (b)': 'he said "no."\n(b).',
    "> quoted\n>> twice\n\n---\n***\nafter": "quoted\ntwice\n\nafter",
    "See [the docs](https://a.org/b_(c) \"t\") or [https://a.org/b](c).": "See the docs or a.org.",
    "![a cat](cat.png)": "a cat",
    "[**Think**](#t), [laughs], [1][2], x[i](y)": "Think, [laughs], [1][2], x[i](y)",
    "At https://www.python.org/docs?x=1. Or http://me:pw@localhost:8080/a, <https://b.org/c>.": "At python.org. Or localhost, b.org.",
    "**https://a.org/b** www.c.org/d!": "a.org c.org!",
    "Call `now()` or `` a`b `` or `x*y*z_`.": "Call now() or a`b or x*y*z_.",
    "So:\n\n```python\nprint('*')\n```\n\nDone.": f"So:\n\n{LEFT_OUT}\n\nDone.",
    "```py title=\"a\"\nx": LEFT_OUT,
    "~~~~\n```\nx\n~~~~\nDone.": f"{LEFT_OUT}\nDone.",
    "- so:\n  ```sh\n  ls\n  ```\n- b": "so:\n(A code example is left out.)\nb.",
    "```markdown\n# Hi\n- a\n```\n```\nx\n```": f"Hi.\na.\n{LEFT_OUT}",
    "``` is a fence.": "is a fence.",
    TABLE + "\nEnd.": "Tool, Use.\nnow, the time.\nweb.\n\nEnd.",
    "|x| < 3\n|x| + |y|\n|a|": "|x| < 3\n|x| + |y|\n|a|",
    "Great 👋! Well 🙂 done ❤️\n✅ ok 1️⃣ 👨‍👩‍👧": "Great! Well done\nok 1",
    "2*3*4 = 24, 5 * 3, x**2, 2**3, a_b_c, 10:30, 5*, #5, 3 > 2, ~5": "2*3*4 = 24, 5 * 3, x**2, 2**3, a_b_c, 10:30, 5*, #5, 3 > 2, ~5",
    "1.5 litres\n2023 was long.\n-5 degrees\n+1": "1.5 litres\n2023 was long.\n-5 degrees\n+1",
    "e.g. this, i.e. that, etc. and Dr. Who": "e.g. this, i.e. that, etc. and Dr. Who",
    "A \\*star\\* for \\$5 and C:\\temp, \\[x\\]": "A *star* for $5 and C:\\temp, \\[x\\]",
    "One<br>two<br/>a<b and <b>x</b> <3": "One\ntwo\na<b and <b>x</b> <3",
    "这是**重点**内容。\n\n- 一\n- 二\n\n```py\nx\n```": "这是重点内容。\n\n一。\n二。\n\n（此处省略一段代码。）",
    "Вот:\n```sql\nx\n```": "Вот:\n(Пример кода пропущен.)",
    "- **यह** है": "यह है।",
    "\n\n  a  b \n\n\n\nc\n": "a b\n\nc",
    "- \n-\n\n* * *\nx": "x",
    "Use https:// and not http://.": "Use https and not http.",
    "": "",
}  # fmt: skip
CORPUS = [*SAID, *(row["text"] for row in rows("ordinary")), *(row["text"][:600] for row in rows("real"))]
SIZES = (2, 3, 7, 20, 1000)


def said(text: str, *cuts: int) -> str:
    """What a voice says of `text` that comes in pieces which end at `cuts`."""
    stage, ends = PlainSpeech(), [0, *cuts, len(text)]
    return "".join(stage.feed(text[a:b]) for a, b in zip(ends, ends[1:], strict=False)) + stage.close()


@pytest.mark.parametrize("text", SAID)
def test_a_form_is_said_as_sentences(text: str) -> None:
    assert said(text) == SAID[text]


def state(value: Any) -> Any:
    """All that a stage knows, to be compared."""
    if callable(value):
        return value.__name__
    return {name: state(part) for name, part in vars(value).items()} if hasattr(value, "__dict__") else value


@pytest.mark.parametrize("part", range(8))
def test_any_piece_leads_to_the_same_state_and_speech(part: int) -> None:
    for text in CORPUS[part :: scaled(16, 8)]:
        stages, spoken = [PlainSpeech()], [""]
        for char in text:
            stages.append(copy.deepcopy(stages[-1]))
            spoken.append(spoken[-1] + stages[-1].feed(char))
        for start in range(len(text)):
            for end in {min(start + size, len(text)) for size in SIZES}:
                stage = copy.deepcopy(stages[start])
                assert spoken[start] + stage.feed(text[start:end]) == spoken[end]
                assert state(stage) == state(stages[end])


@given(st.text(alphabet="ab 1.\n`*_~#>|-[]()!\\<h:/w🙂é。", max_size=60), st.integers(0, 60))
def test_a_cut_changes_nothing(text: str, cut: int) -> None:
    assert said(text) == said(text, min(cut, len(text)))


@given(st.text(alphabet="aZ9hwé語ಕ !<-,.;:?()'\"/%=+\n", max_size=80))
def test_no_letter_or_digit_of_prose_is_lost(text: str) -> None:
    spoken = said(text)
    assert [char for char in spoken if char.isalnum()] == [char for char in text if char.isalnum()]


def test_prose_is_said_at_once() -> None:
    stage, text = PlainSpeech(), "The light in the kitchen is on, and the 7 others are off."
    assert [stage.feed(word) for word in text.split()] == text.split()


@pytest.mark.parametrize(
    "text", [text for text in SAID if "```" not in text and "~~~~" not in text and "|" not in text]
)
def test_a_line_is_said_when_the_next_one_begins(text: str) -> None:
    stage, spoken = PlainSpeech(), ""
    for line in text.split("\n"):
        spoken += stage.feed(line + "\nX")
        assert not line.strip() or spoken.endswith("X")


def test_close_ends_a_block_and_begins_another() -> None:
    stage = PlainSpeech()
    assert stage.feed("- **one") + stage.close() == "one."
    assert stage.feed("*two* 2") + stage.close() == "\n\ntwo 2"


def test_a_voice_is_free_without_the_garbage_collector() -> None:
    """Each request makes one."""
    gc.disable()
    try:
        voice = PlainSpeech()
        voice.feed("# Title\n- **one")
        voice.close()
        freed = weakref.ref(voice)
        del voice
        assert freed() is None
    finally:
        gc.enable()
