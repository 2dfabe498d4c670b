"""The Markdown: short, and literal wherever a model speaks."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gates.report.labels import headline
from gates.report.page import escape, markdown
from gates.report.replies import PromptAndReply, visible
from gates.report.statement import Statement
from tests.gates.report import examples

PARSER = MarkdownIt("commonmark").enable("table")
EXAMPLES = (examples.passing, examples.failing, examples.inconclusive)

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("`*_#<>[]|~!\n\\&"), min_size=1)


def shape(text: str) -> list[str]:
    """The kinds of the blocks that a renderer sees."""
    return [token.type for token in PARSER.parse(text)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_verdict_comes_first(example: Callable[[], Statement]) -> None:
    found = PARSER.parse(markdown(example(), examples.said))

    assert found[0].type == "heading_open"
    said = "".join(child.content for child in found[1].children or ())
    assert example().verdict.value in said and headline(example()) in said


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_gate_has_a_row(example: Callable[[], Statement]) -> None:
    found = PARSER.parse(markdown(example(), examples.said))
    gates = {gate.gate for gate in example().decision.gates}

    assert sum(token.type == "tr_open" for token in found) == 1 + len(gates)
    assert sum(token.type == "td_open" for token in found) == 5 * len(gates)


def test_the_replies_that_do_not_decide_have_a_column() -> None:
    said = markdown(replace(examples.passing(), gateway={"judged": "engine"}))

    assert "| Through the gateway: candidate, baseline |" in said
    assert all(line.count("|") == 7 for line in said.splitlines() if line.startswith("|"))


@settings(max_examples=60, deadline=None)
@given(TEXT)
@example("```\n\n# PASS\n\n```")
def test_no_reply_changes_the_shape_of_the_text(words: str) -> None:
    base = examples.inconclusive()

    def shown(reply: str) -> list[str]:
        failures = (replace(base.failures[0], why=f"said {reply}"), *base.failures[1:])
        return shape(
            markdown(replace(base, failures=failures), lambda case, arm: PromptAndReply(reply, reply))
        )

    assert shown(words) == shown("words")


@given(TEXT)
def test_escaped_words_are_words(words: str) -> None:
    (inline,) = PARSER.parseInline(f"a {escape(words)} b")
    said = "".join(child.content for child in inline.children or ())

    assert {child.type for child in inline.children or ()} <= {"text", "text_special"}
    assert said.split() == ["a", *visible(words).split(), "b"]
