"""The Markdown: short, and literal wherever a model speaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gates.report.labels import headline
from gates.report.markdown import code, escape, fence, markdown
from gates.report.statement import Statement
from gates.report.texts import PromptAndReply, visible
from tests.gates.report import examples

PARSER = MarkdownIt("commonmark").enable("table")
EXAMPLES = (examples.passing, examples.failing, examples.inconclusive)

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("`*_#<>[]|~!\n\\&"), min_size=1)


def shape(text: str) -> list[str]:
    """The kinds of the blocks that a renderer sees."""
    return [token.type for token in PARSER.parse(text)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_verdict_comes_first(example: Callable[[], Statement]) -> None:
    """A heading with the verdict and its sentence."""
    found = PARSER.parse(markdown(example(), examples.said))

    assert found[0].type == "heading_open"
    said = "".join(child.content for child in found[1].children or ())
    assert example().verdict.value in said and headline(example()) in said


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_gate_has_a_row(example: Callable[[], Statement]) -> None:
    """A table with a row a gate, each with five cells."""
    found = PARSER.parse(markdown(example(), examples.said))
    gates = {gate.gate for gate in example().decision.gates}

    assert sum(token.type == "tr_open" for token in found) == 1 + len(gates)
    assert sum(token.type == "td_open" for token in found) == 5 * len(gates)


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_fits_a_pull_request(example: Callable[[], Statement]) -> None:
    """A screen or two, however bad it is."""
    assert len(markdown(example(), lambda case, arm: PromptAndReply("p" * 9000, "r" * 9000))) < 6000


def test_a_control_that_did_not_hold_is_told() -> None:
    """By its name and sentence; the others are listed."""
    said = markdown(examples.inconclusive())

    assert "Controls that did not:" in said
    assert "asked for markdown" in said


@settings(max_examples=60, deadline=None)
@given(TEXT)
@example("```\n\n# PASS\n\n```")
def test_no_reply_changes_the_shape_of_the_text(words: str) -> None:
    """Whatever a model says, in its reply or where it is quoted as evidence, stays in its fence or span."""
    base = examples.inconclusive()

    def shown(reply: str) -> list[str]:
        failures = (replace(base.failures[0], why=f"said {reply}"), *base.failures[1:])
        return shape(
            markdown(replace(base, failures=failures), lambda case, arm: PromptAndReply(reply, reply))
        )

    assert shown(words) == shown("words")


@given(TEXT)
@example("```\n# PASS\n````")
def test_a_fence_holds_its_text(words: str) -> None:
    """One block of code, with the visible text in it."""
    (token,) = PARSER.parse(fence(words))

    assert token.type == "fence"
    assert token.content == visible(words).rstrip("\n") + "\n" or not visible(words).strip("\n")


@given(TEXT.filter(lambda words: bool(visible(words).split())))
def test_a_code_span_holds_its_text(words: str) -> None:
    """One span in one paragraph, on one line."""
    (inline,) = PARSER.parseInline(f"a {code(words)} b")

    children = inline.children or []
    assert [child.type for child in children] == ["text", "code_inline", "text"]
    assert children[1].content.strip(" ") == " ".join(visible(words).split())


@given(TEXT)
def test_escaped_words_are_words(words: str) -> None:
    """No emphasis, link, code or HTML comes of a name."""
    (inline,) = PARSER.parseInline(f"a {escape(words)} b")
    said = "".join(child.content for child in inline.children or ())

    assert {child.type for child in inline.children or ()} <= {"text", "text_special"}
    assert said.split() == ["a", *visible(words).split(), "b"]
