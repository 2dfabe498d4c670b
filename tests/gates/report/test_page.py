"""The page: one file that says the verdict first, needs nothing, and lets no text out of its place."""

from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gates.contracts.verdict import Decision, Verdict
from gates.report.labels import PromptAndReply, Texts, headline, required
from gates.report.page import markdown, page, visible
from gates.report.statement import Attachment, CaseFailure, GateTally, Statement
from tests.gates.report import examples

EXAMPLES = (examples.passing, examples.failing, examples.inconclusive)
VOID = {"meta", "link", "br"}


class Reader(HTMLParser):
    """What a browser would make of it: the tags with their attributes, the texts, and what was left open."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def said(self) -> str:
        return "\n".join(self.texts)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def read(statement: Statement, texts: Texts = examples.SAID) -> Reader:
    return Reader(page(statement, texts))


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_verdict_comes_first_in_one_sentence(example: Callable[[], Statement]) -> None:
    found = read(example())
    words = [piece for piece in found.texts if piece.strip()]

    assert example().verdict.value in words[1]  # after the title
    assert words[2] == headline(example())
    assert found.open == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_page_needs_nothing_and_runs_nothing(example: Callable[[], Statement]) -> None:
    html = page(example(), examples.SAID)
    found = Reader(html)

    assert not {tag for tag, _ in found.tags} & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "audio",
    }
    for _, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert all(
            (attributes.get(a) or "#").startswith(("#", "data:,")) for a in ("href", "src", "xlink:href")
        )
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style and "@import" not in style
    policy = next(a["content"] for t, a in found.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")


HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></article></main><h1>PASS</h1>",
    '"><img src=x onerror=alert(1)>',
    "<style>*{display:none}</style>",
    "<!-- ",
    "]]><svg onload=alert(1)>",
    "&lt;script&gt; &amp; &#60;b&#62;",
    "\u202eSSAP\u202c and \u2066hidden\u2069",
    "\x00\x08\x1b[2J\x7f\ud800",
    "'onmouseover='alert(1)",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_a_hostile_reply_stays_a_text(words: str) -> None:

    def said(reply: str) -> Texts:
        return examples.Texts(lambda case, arm: PromptAndReply(reply, reply))

    def with_evidence(why: str) -> Statement:
        base = examples.inconclusive()
        first = replace(base.failures[0], why=why)
        return replace(base, failures=(first, *base.failures[1:]))

    hostile = read(with_evidence(words), said(words))
    harmless = read(with_evidence("words"), said("words"))

    assert hostile.tags == harmless.tags
    assert visible(words) in hostile.said


# ------------------------------------------------------------------------------------- what it says


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_rule_of_every_gate_is_there(example: Callable[[], Statement]) -> None:
    said = read(example()).said
    assert all(gate.sentence[1:] in said and required(gate) in said for gate in example().decision.gates)


def test_a_report_of_nothing_is_still_a_page() -> None:
    bare = replace(
        examples.inconclusive(),
        decision=Decision(Verdict.INCONCLUSIVE, ()),
        failures=(),
        tallies=(),
    )
    said = read(bare).said

    assert "It is not known whether" in said
    assert "nothing shows that this gate can fail" in said


BESIDE = replace(
    examples.passing(),
    gateway={"judged": "through"},
    tallies=(*examples.passing().tallies, GateTally("leak", "engine:candidate", False, 7, 2, 0)),
    failures=(CaseFailure("leak", "engine:candidate", "leak-031", "bad", False, "leak: tag"),),
)
"""A model whose leaks the gateway takes out."""
SAID = [
    (lambda: read(examples.failing()), "And 4 more reasons, below."),
    (lambda: read(examples.failing()), "100 more are in report.json."),
    (lambda: Reader(page(examples.failing())), "not beside this report"),
    (lambda: read(examples.failing(), examples.Texts(lambda case, arm: PromptAndReply("Hello?", ""))), "(empty)"),
    (lambda: read(BESIDE), "7/9 · –"),
    (lambda: read(replace(examples.passing(), attachments=(Attachment("ifeval.json", "sha256:1"),))), "ifeval.json"),
    (lambda: read(replace(examples.passing(), sequential="5eed")), "5eed"),
]  # fmt: skip


@pytest.mark.parametrize("found, words", SAID, ids=[words for _, words in SAID])
def test_the_page_says(found: Callable[[], Reader], words: str) -> None:
    assert words in found().said


PARSER = MarkdownIt("commonmark").enable("table")

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("`*_#<>[]|~!\n\\&"), min_size=1)


def shape(text: str) -> list[str]:
    """The kinds of the blocks that a renderer sees."""
    return [token.type for token in PARSER.parse(text)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_verdict_comes_first_and_every_gate_has_a_row(example: Callable[[], Statement]) -> None:
    found = PARSER.parse(markdown(example(), examples.SAID))
    gates = {gate.gate for gate in example().decision.gates}

    said = "".join(child.content for child in found[1].children or ())
    assert example().verdict.value in said and headline(example()) in said
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
            markdown(
                replace(base, failures=failures),
                examples.Texts(lambda case, arm: PromptAndReply(reply, reply)),
            )
        )

    assert shown(words) == shown("words")
