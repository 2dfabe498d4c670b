"""From a plan to what users say: `scripts`, one after the other, the same ones every time. Pure.

A script is a whole conversation but for the teacher's part. Which one a category's number is, follows from the plan's
seed alone, so that a run that was killed goes on with the same ones. Nothing is said twice within a category, and
nothing that a wall refuses is asked at all: such scripts keep their number and say why they are `barred`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gates.suite.phrases import normal
from quantizer.data.plan import SLOT, WHOLE, Category, Plan, Record, Scene, Turn

DRAWS: Final = 200
"""A category has said all that it can when so many draws in a row bring nothing new."""
DECORATED: Final = 0.5
"""The share of conversations that begin with an opener, and of those that end a first question with a closer."""
DISTRACTORS: Final = 4
"""At most so many tools beside those that are needed."""


@dataclass(frozen=True, slots=True)
class Part:
    """One user turn. `calls`: what the teacher has to call, in the form of `gates.suite.expect`; `answer`: in that form too,
    or None where any answer will do."""

    say: str
    calls: tuple[Mapping[str, Any], ...] = ()
    result: str = ""
    answer: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """One conversation to be had. `barred`: why it is not asked, or ""."""

    id: str
    category: str
    language: str
    system: str
    tools: tuple[Mapping[str, Any], ...]
    parts: tuple[Part, ...]
    max_seconds: float
    script: str = ""
    barred: str = ""


Bar = Callable[[Sequence[str]], str]
"""Why these user turns may not be in a conversation, or ""."""


def scripts(plan: Plan, category: Category, bar: Bar) -> Iterator[Script]:
    """A category's scripts, until there is nothing new to say."""
    spoken = [name for name in plan.languages if any(name in s.languages for s in category.scenes)]
    if not spoken:
        return
    seen: set[str] = set()
    weights = [plan.languages[name].weight for name in spoken]
    number = barren = 0
    while barren < DRAWS:
        rng = random.Random(f"{plan.seed} {category.name} {number} {barren}")
        language = rng.choices(spoken, weights)[0]
        scene = rng.choice([s for s in category.scenes if language in s.languages])
        parts = _parts(plan, scene, language, rng)
        said = normal(" / ".join(part.say for part in parts))
        if said in seen:
            barren += 1
            continue
        seen.add(said)
        yield Script(
            id=f"{category.name}-{number:05}",
            category=category.name,
            language=language,
            system=rng.choice(plan.systems).strip(),
            tools=_tools(plan, category, parts, rng),
            parts=parts,
            max_seconds=category.max_seconds,
            script=plan.languages[language].script,
            barred=bar([part.say for part in parts]),
        )
        number, barren = number + 1, 0


def _parts(plan: Plan, scene: Scene, language: str, rng: random.Random) -> tuple[Part, ...]:
    drawn: dict[str, Record] = {}
    parts = [_part(plan, turn, language, drawn, rng) for turn in scene.turns]
    around, first = plan.languages[language], parts[0]
    say = first.say
    if around.openers and rng.random() < DECORATED:
        say = f"{rng.choice(around.openers)} {say}"
    if around.closers and rng.random() < DECORATED:
        say = f"{say} {rng.choice(around.closers)}"
    return (Part(say, first.calls, first.result, first.answer), *parts[1:])


def _part(plan: Plan, turn: Turn, language: str, drawn: dict[str, Record], rng: random.Random) -> Part:
    """One turn with its slots filled. A slot is the same record through a whole conversation."""

    def fill(text: str, form: str) -> str:
        for slot, part in SLOT.findall(text):
            if slot not in drawn:
                drawn[slot] = rng.choice(plan.slots[slot])
            word = _form(drawn[slot][part], plan.forms, form)
            text = text.replace(f"{{{slot}.{part}}}" if part != WHOLE else f"{{{slot}}}", word)
        return text

    say = fill(rng.choice(turn.say[language]), language)
    calls: tuple[Mapping[str, Any], ...] = ()
    if turn.call:
        has = {
            key: [{"has": ["|".join(dict.fromkeys(fill(t, form) for form in plan.forms)) for t in texts]}]
            for key, texts in turn.call.arguments.items()
        }
        calls = ({"name": turn.call.name, "arguments": has},)
    accepted = dict.fromkeys(fill(text, form) for text in turn.answer for form in plan.forms)
    answer = {"any": list(accepted)} if accepted else None
    return Part(say, calls, fill(turn.result, plan.forms[0]), answer)


def _form(forms: Sequence[str], names: Sequence[str], name: str) -> str:
    """The word in a language; one without a form of its own takes the first."""
    place = names.index(name) if name in names else 0
    return forms[min(place, len(forms) - 1)]


def _tools(
    plan: Plan, category: Category, parts: Sequence[Part], rng: random.Random
) -> tuple[Mapping[str, Any], ...]:
    needed = dict.fromkeys(call["name"] for part in parts for call in part.calls)
    if not plan.tools or (not needed and rng.random() >= category.offered):
        return ()
    others = [name for name in plan.tools if name not in needed]
    names = [
        *needed,
        *rng.sample(others, rng.randint(0 if needed else 1, min(DISTRACTORS, len(others))) if others else 0),
    ]
    rng.shuffle(names)
    return tuple(plan.toolbox[name] for name in names)
