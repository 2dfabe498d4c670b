"""Rendering: what is trained is, token for token, what an engine would read and the model would write."""

from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
np = pytest.importorskip("numpy", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.core.errors import DataError, SourceError  # noqa: E402
from quantizer.data.conversation import from_row  # noqa: E402
from quantizer.data.dataset import load_dataset  # noqa: E402
from quantizer.data.render import Renderer, open_renderer, read_template  # noqa: E402
from tests.quantizer import templates  # noqa: E402
from tests.quantizer.templates import TEMPLATES, said, talk, write  # noqa: E402

pytestmark = pytest.mark.torch
REPLIES = [
    "Good morning to you.<|im_end|>",
    '<tool_call>\n{"name": "web_search", "arguments": {"query": "rain in Paris", "count": 2}}\n</tool_call><|im_end|>',
    "It stays dry until noon.<|im_end|>",
]


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    place = tmp_path_factory.mktemp("templates")
    return {name: open_renderer(templates.folder(place / name, name)) for name in TEMPLATES}


def learned(renderer: Renderer, sample: Any) -> list[str]:
    """The stretches that are learned, as texts."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], sample.learned.astype(int), [0]])))
    return [
        renderer.tokenizer.decode(sample.ids[a:b].tolist())
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    ]


def engine_prompts(renderer: Renderer, row: dict[str, Any], thinking: bool) -> list[list[int]]:
    """What an engine reads before each turn of the assistant's: transformers' own call, tokens and all."""
    conversation = from_row(row)
    return [
        renderer.tokenizer.apply_chat_template(
            list(conversation.messages[:turn]),
            tools=list(conversation.tools) or None,
            add_generation_prompt=True,
            enable_thinking=thinking,
            tokenize=True,
            return_dict=False,
        )
        for turn, message in enumerate(conversation.messages)
        if message["role"] == "assistant"
    ]


@pytest.mark.parametrize("thought", ["", "Let me see."])
@pytest.mark.parametrize("name", list(TEMPLATES))
def test_every_turn_is_learned_after_the_very_prompt_of_an_engine(
    renderers: dict[str, Renderer], name: str, thought: str
) -> None:
    renderer, row = renderers[name], talk(thought)
    samples = renderer.samples(from_row(row))
    turns = [
        (sample.ids[:place].tolist())
        for sample in samples
        for place in np.flatnonzero(np.diff(sample.learned.astype(int)) == 1) + 1
    ]

    assert turns == engine_prompts(renderer, row, bool(thought))


@pytest.mark.parametrize("name", list(TEMPLATES))
def test_what_is_learned_is_the_reply_and_its_end(renderers: dict[str, Renderer], name: str) -> None:
    told = [
        text
        for sample in renderers[name].samples(from_row(talk()))
        for text in learned(renderers[name], sample)
    ]

    assert told == REPLIES


def test_a_thought_where_thinking_is_off_is_refused(renderers: dict[str, Renderer]) -> None:
    row = talk("Hm.") | {"chat_template_kwargs": {"enable_thinking": False}}
    with pytest.raises(
        DataError, match=r"message 2: the template opens the turn with .*set \"chat_template_kwargs\""
    ):
        renderers["nano"].samples(from_row(row))


@pytest.mark.parametrize(
    "part, why",
    [
        (templates.CALLS, "message 4: the template drops 'web_search'"),
        (templates.TOOLS, "message 2: the template drops 'web_search'"),
        (" + m.content + '<|im_end|>", "message 2: the template drops 'You are Annie.'"),
    ],
    ids=["calls", "tools", "messages"],
)
def test_a_template_that_drops_what_is_to_be_learned_is_refused(tmp_path: Path, part: str, why: str) -> None:
    place = templates.folder(tmp_path / "model", "plain")
    assert part in templates.PLAIN
    text = templates.PLAIN.replace(part, " + '<|im_end|>" if "m.content" in part else "")
    (place / "chat_template.jinja").write_text(text)
    with pytest.raises(DataError, match=why):
        open_renderer(place).samples(from_row(talk()))


def test_an_end_of_turn_inside_a_reply_is_refused(renderers: dict[str, Renderer]) -> None:
    row = {"messages": [said("user", "Hi"), said("assistant", "One.<|im_end|> Two.")]}
    with pytest.raises(DataError, match="holds an end-of-turn token"):
        renderers["plain"].samples(from_row(row))


def test_a_template_without_an_end_of_turn_is_refused(renderers: dict[str, Renderer]) -> None:
    endless = Renderer(renderers["plain"].tokenizer, ends=[5])
    row = {"messages": [said("user", "Hi"), said("assistant", "Hello.")]}
    with pytest.raises(DataError, match="gives the turn no end"):
        endless.samples(from_row(row))


def test_what_a_template_raises_is_one_line_with_the_rows_place(tmp_path: Path) -> None:
    place = templates.folder(tmp_path / "model", "plain")
    (place / "chat_template.jinja").write_text("{{- raise_exception('No user query found.') }}")
    data = write(tmp_path / "data.jsonl", [talk()])
    with pytest.raises(DataError, match=r"data\.jsonl:1: the chat template refuses it \(No user query found"):
        load_dataset(data, open_renderer(place), max_tokens=100)


def test_a_folder_without_a_template_or_tokenizer_is_one_line(tmp_path: Path) -> None:
    place = templates.folder(tmp_path / "model", "plain")
    (place / "chat_template.jinja").unlink()
    with pytest.raises(SourceError, match="has no chat template; name one: --template hermes"):
        open_renderer(place)
    (place / "tokenizer.json").write_text("{")
    with pytest.raises(SourceError, match="its tokenizer cannot be loaded"):
        open_renderer(place)


def test_a_template_can_be_named_in_place_of_one_that_drops_calls(tmp_path: Path) -> None:
    place = templates.folder(tmp_path / "model", "plain")
    (place / "chat_template.jinja").write_text(templates.PLAIN.replace(templates.CALLS, ""))
    with pytest.raises(DataError, match="the template drops 'web_search'; name one .*: --template hermes"):
        open_renderer(place).samples(from_row(talk()))

    renderer = open_renderer(place, read_template("hermes"))

    assert learned(renderer, renderer.samples(from_row(talk()))[0]) == REPLIES
    with pytest.raises(SourceError, match="--template nowhere: neither hermes nor a file"):
        read_template("nowhere")


def test_calibration_is_drawn_by_kind_from_a_sorted_file(
    renderers: dict[str, Renderer], tmp_path: Path
) -> None:
    counts = {"greeting": 12, "fact": 6, "call": 2}
    rows = [
        {"id": f"{kind}-{n:05}", "messages": [said("user", f"{kind} {n}"), said("assistant", "Yes.")]}
        for kind, count in counts.items()
        for n in range(count)
    ]
    path = write(tmp_path / "data.jsonl", rows)

    def drawn(conversations: int, seed: int = 1) -> dict[str, Any]:
        return load_dataset(
            path, renderers["plain"], max_tokens=99, conversations=conversations, seed=seed
        ).facts()

    assert drawn(10)["kinds"] == {"greeting": 6, "fact": 3, "call": 1}
    assert set(drawn(3)["kinds"]) == set(counts)
    assert drawn(10) == drawn(10) and drawn(10)["rendered"] != drawn(10, seed=2)["rendered"]


def test_without_thinking_every_answer_stands_behind_an_empty_thought(
    renderers: dict[str, Renderer], tmp_path: Path
) -> None:
    renderer = renderers["nano"]
    data = load_dataset(
        write(tmp_path / "data.jsonl", [talk("Hm.")] * 2), renderer, max_tokens=999, thinking="none"
    )
    off, on = data.samples[0], data.samples[2]

    assert learned(renderer, off)[0] == "Good morning to you.<|im_end|>"
    assert learned(renderer, on)[0] == "\n</think>\n\nGood morning to you.<|im_end|>"
    assert all("Hm." not in renderer.tokenizer.decode(sample.ids.tolist()) for sample in data.samples)
