"""The suite annie-nano: held-out dialogues as cases of the gates. `python -m quantizer.experiments.nano suite`.

The everyday cases are written by hand (`asked`); the training data leaves their prompts out.

The gates may not import the quantizer, so the result is committed as data, in `gates/suites/annie-nano.jsonl` and `annie-nano.everyday.jsonl`; a
test generates it again and compares. The kinds of dialogues are chosen here by hand; dialogues of a kind are taken
in the order of the generator's held-out side, whatever a model answers. Skipped are only:

* dialogues in the XML style and dialogues with thinking: the GGUF files have the hermes template, and the gates ask
  with thinking off;
* prompts of 13 words and more. Shorter ones are held out as a whole (`vocabulary.split_of`), so no data that this
  generator makes, from any seed, can contain one of them; two long ones can have thirteen words in common (two-step
  problems do);
* sums written with signs: "6 - 3" and "6+3" are the same prompt to the contamination check, which compares words;
* prompts that equal an earlier case apart from capitals, punctuation, a name in front or a "please".
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.suite.contamination import NGRAM_WORDS
from gates.suite.draw import seeded_shuffle
from gates.suite.normalize import normalize
from quantizer.experiments.nano import annie
from quantizer.experiments.nano.asked import ASKED
from quantizer.experiments.nano.conversation import Dialogue, DialogueTurn
from quantizer.experiments.nano.everyday import dialogue
from quantizer.experiments.nano.generate import conversation
from quantizer.experiments.nano.recipe import NANO, NanoRecipe
from quantizer.experiments.nano.template import Message
from quantizer.experiments.nano.tools import make_tool

SEED: Final = NANO.data_seed + 3  # no other use of the generator has it
LOOKED_AT: Final = 20_000  # dialogues of a category, after which its prompts count as exhausted
SPLIT_SEED: Final = "annie-nano 1"

_SIGNS: Final = re.compile(r"\d ?[+-] ?\d")
# What `vocabulary.voice` adds to a sentence: "Hey Annie, thanks!" is the same case as "Thanks!".
_DRESS: Final = re.compile(r"^((hey |hi |okay )?annie |please |so |tell me )*|( please)$")

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CaseSource:
    """`count` cases of a pool, `named` of them named cases, from a category's dialogues of some kinds.

    With `result`, the calls and their results are in the messages, and the answer is requested; without, the last
    message is the user's. With `armed`, at least one tool must be offered.
    """

    pool: str
    turn: str
    category: str
    kinds: tuple[str, ...]
    count: int
    named: int = 0
    result: bool = False
    armed: bool = False


_WITHOUT: Final = ("memory_without", "web_without", "device_without")
SOURCES: Final = (
    CaseSource("chat", "greeting", "greeting", ("greeting",), 125, named=20),
    CaseSource("chat", "again", "greeting", ("follow",), 10, named=5),
    CaseSource("text", "memory-result", "memory", ("memory",), 50, named=4, result=True),
    CaseSource("text", "web-result", "web", ("web",), 40, named=3, result=True),
    CaseSource("text", "device-result", "device", ("device",), 20, named=2, result=True),
    CaseSource("text", "report-result", "report", ("report",), 20, named=2, result=True),
    CaseSource("text", "general-result", "general", ("general",), 15, result=True),
    CaseSource("text", "unknown", "unknown", ("unknown",), 45, named=2),
    CaseSource("text", "follow-up", "fact", ("follow",), 25, named=2),
    CaseSource("fact", "fact", "fact", ("fact",), 150, named=10),
    CaseSource("sum", "one-step", "reasoning", ("reasoning",), 120, named=4),
    CaseSource("sum", "two-step", "two_step", ("two_step",), 30, named=1),
    CaseSource("tool", "memory", "memory", ("memory",), 60, named=4),
    CaseSource("tool", "web", "web", ("web",), 45, named=3),
    CaseSource("tool", "device", "device", ("device",), 55, named=3),
    CaseSource("tool", "report", "report", ("report",), 25),
    CaseSource("tool", "general", "general", ("general",), 20),
    CaseSource("tool", "parallel", "parallel", ("parallel",), 25),
    CaseSource("idle", "missing-memory", "memory", _WITHOUT, 10, armed=True),
    CaseSource("idle", "missing-web", "web", _WITHOUT, 10, armed=True),
    CaseSource("idle", "missing-device", "device", _WITHOUT, 15, armed=True),
    CaseSource("idle", "needless-chat", "greeting", ("greeting",), 20, armed=True),
    CaseSource("idle", "needless-fact", "fact", ("fact",), 20, armed=True),
    CaseSource("idle", "needless-sum", "reasoning", ("reasoning",), 15, armed=True),
)


@dataclass(frozen=True, slots=True)
class CasePool:
    """What the cases of a pool count for.

    gates: of every case. A named case is named for the first of `named` and counts for all of them. Of the other
    cases, in the order in which they are drawn, the first `first` are stage 1 and the rest stage 2; in each stage
    the first `lent[gate]` of them also count for that gate. seconds: the longest reply, at 2.5 words a second; no
    right answer of the kind needs that much.
    """

    gates: tuple[str, ...]
    named: tuple[str, ...]
    first: int
    lent: Mapping[str, int]
    seconds: int = 0


_FORMS: Final = {"declined": "declines", "chat": "says"}  # of an everyday case without an answer

_SPOKEN: Final = ("loop", "speakable", "verbosity", "script")
POOLS: Final[Mapping[str, CasePool]] = {
    "chat": CasePool(("leak", "empty", "no_markdown", *_SPOKEN), ("leak", "empty"), 55, {}, 12),
    "text": CasePool(("no_markdown", *_SPOKEN), ("no_markdown", "leak", "empty"), 100, {"leak": 45}, 24),
    "fact": CasePool(("factual", *_SPOKEN), ("factual",), 90, {}, 10),
    "sum": CasePool(("reasoning", *_SPOKEN), ("reasoning",), 95, {"leak": 25}, 10),
    "everyday": CasePool(("everyday", *_SPOKEN), (), 160, {}, 12),
    "tool": CasePool(("tools", "raw_call"), ("tools", "raw_call", "empty"), 110, {"empty": 42}),
    "idle": CasePool(
        ("tools", "raw_call"), (), 45, {"empty": 18}
    ),  # tools are offered, and no call is expected
}


def lines() -> list[Line]:
    """Every case of the suite, as lines of its JSONL."""
    taken: set[str] = set()
    pools: dict[str, list[Line]] = defaultdict(list)
    for source in SOURCES:
        pools[source.pool] += _draft(source, taken)
    pools["everyday"] = list(_asked())
    return [line for name, drafts in pools.items() for line in _sorted_out(POOLS[name], drafts)]


def texts() -> dict[str, str]:
    """The JSONL files by name: the held-out lessons, and the everyday requests."""
    written = {"annie-nano.jsonl": "", "annie-nano.everyday.jsonl": ""}
    for line in lines():
        name = "annie-nano.everyday.jsonl" if "everyday" in line["gates"] else "annie-nano.jsonl"
        written[name] += json.dumps(line, ensure_ascii=False) + "\n"
    return written


def _asked() -> Iterator[Line]:
    """The everyday prompts, without gates and stage."""
    rng = random.Random(f"everyday tools {SEED}")
    for number, asked in enumerate(ASKED, start=1):
        said = [*asked.before, asked.prompt]
        roles = ("user", "assistant") * len(said)
        tools = [make_tool(rng, key).schema for key in asked.tools]
        wanted = {"answer": {"any": list(asked.says)}} if asked.says else {_FORMS[asked.kind]: True}
        yield {
            "id": f"everyday-{asked.kind}-{number:03}",
            "gates": [],
            "named": [],
            "stage": 1,
            "turn": asked.kind,
            "messages": [{"role": r, "content": text} for r, text in zip(roles, said, strict=False)],
            **({"tools": tools} if tools else {}),
            "expect": {"everyday": wanted, "max_seconds": POOLS["everyday"].seconds, "script": "Latn"},
        }


def _sorted_out(pool: CasePool, drafts: list[Line]) -> Iterator[Line]:
    """Assign gates and stages to the cases of a pool."""
    unnamed = seeded_shuffle(SPLIT_SEED, (d["id"] for d in drafts if not d["named"]))
    place = {name: i for i, name in enumerate(unnamed)}
    for draft in drafts:
        if draft["named"]:
            gates = (*pool.named, *(gate for gate in pool.gates if gate not in pool.named))
            yield draft | {"gates": list(gates), "named": _named(pool), "stage": 1}
            continue
        i = place[draft["id"]]
        stage, rank = (1, i) if i < pool.first else (2, i - pool.first)
        lent = [gate for gate, n in pool.lent.items() if rank < n]
        yield draft | {"gates": [*pool.gates, *lent], "named": [], "stage": stage}


def _named(pool: CasePool) -> list[str]:
    """The gates of a named case: its own, and `empty`, for which the same fifty cases are named."""
    return [pool.named[0], *(gate for gate in pool.named if gate == "empty")]


# ------------------------------------------------------------------------------------------- lessons


def _draft(source: CaseSource, taken: set[str]) -> Iterator[Line]:
    """The cases of a source, without gates and stage."""
    lessons = _lessons(source, taken)
    for number in range(1, source.count + 1):
        talk = next(lessons)
        yield {
            "id": f"{source.pool}-{source.turn}-{number:03}",
            "gates": [],
            "named": number <= source.named,
            "stage": 1,
            "turn": source.turn,
            "messages": _wire(talk, source.result),
            **({"tools": talk.schemas} if talk.tools else {}),
            "expect": _expected(source.pool, talk),
        }


def _lessons(source: CaseSource, taken: set[str]) -> Iterator[Dialogue]:
    for index in range(LOOKED_AT):
        talk = conversation(SEED, "test", index, source.category)
        prompt = normalize(talk.lesson.user)
        core, short = _DRESS.sub("", prompt), len(prompt.split()) < NGRAM_WORDS
        if short and _fits(source, talk) and core not in taken and not _SIGNS.search(talk.lesson.user):
            taken.add(core)
            yield talk
    raise ValueError(f"{LOOKED_AT} held-out lessons have too few for {source}")


def _fits(source: CaseSource, talk: Dialogue) -> bool:
    plain = talk.style == "hermes" and not talk.thinking
    armed = bool(talk.tools) or not source.armed
    return plain and armed and talk.lesson.kind in source.kinds


def _expected(pool: str, talk: Dialogue) -> Line:
    lesson, spoken = talk.lesson, {"max_seconds": POOLS[pool].seconds, "script": "Latn"}
    if pool in ("tool", "idle"):
        calls = [
            {"name": c.name, "arguments": {k: [v] for k, v in c.arguments.items()}} for c in lesson.calls
        ]
        return {"calls": calls}
    if pool in ("fact", "sum"):
        return {"answer": {"any": [_answer(lesson)]}} | spoken
    return spoken


def _answer(lesson: DialogueTurn) -> str:
    """What has to be said, as whole words: the key, or the whole answer if the key is in the question."""
    (key,) = lesson.must
    said, asked = (f" {normalize(text)} " for text in (lesson.answer, lesson.user))
    word = f" {normalize(key)} "
    return key.rstrip(".") if word in said and word not in asked else lesson.answer.rstrip(".")


def _wire(talk: Dialogue, result: bool) -> list[Message]:
    """Messages as sent over HTTP: arguments are strings, and thoughts are not sent back."""
    messages = annie.opening(talk) + (annie.called(talk.lesson) if result else [])
    return [_sent(message) for message in messages]


def _sent(message: Message) -> Message:
    sent = {key: value for key, value in message.items() if key != "reasoning_content"}
    if "tool_calls" in sent:
        sent["tool_calls"] = [_sent_call(call) for call in sent["tool_calls"]]
    return sent


def _sent_call(call: Message) -> Message:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return call | {"function": function | {"arguments": arguments}}


# ------------------------------------------------------------------------------------- the other side


def learned_conversations(recipe: NanoRecipe) -> Iterator[Line]:
    """Every dialogue that the models were trained on, and those of annie's everyday stage, in the form that the contamination check reads."""
    for seed, run in ((recipe.data_seed, recipe.base), (recipe.data_seed + 1, recipe.annie)):
        yield from learned(seed, run.conversations)
    for index in range(recipe.everyday.conversations):
        yield _read(dialogue(recipe.data_seed, index)[0])


def learned(seed: int, number: int) -> Iterator[Line]:
    """The first dialogues of a seed's training side; `data.annie_sample` says which seed belongs to which model."""
    for index in range(number):
        yield _read(conversation(seed, "train", index))


def _read(talk: Dialogue) -> Line:
    after = [{"role": "tool", "content": result} for result in talk.lesson.results]
    answer = {"role": "assistant", "content": talk.lesson.answer}
    return {"messages": [*annie.opening(talk), *after, answer], "tools": talk.schemas}
