"""Expands a data plan into conversation scripts: the user's turns and the required answers. Deterministic.

The script with a given number depends only on the plan's seed. No user turn occurs twice within a category. A script that
overlaps with a suite keeps its number but is never used; `blocked` says why.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gates.detect.detection import normalize
from quantizer.data.plan import SLOT, WHOLE, Category, DataPlan, Record, Scenario, TurnPlan

DRAWS: Final = 200
"""A category is exhausted after this many consecutive draws without anything new."""
DECORATED: Final = 0.5
"""The share of conversations that begin with an opener, and of those whose first question ends with a closer."""
DISTRACTORS: Final = 4
"""The maximum number of tools that are offered in addition to those needed."""


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One user turn: `calls` that the teacher has to make, and the `answer`, as in `gates.detect.toolcall`; None: any."""

    say: str
    calls: tuple[Mapping[str, Any], ...] = ()
    result: str = ""
    answer: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ConversationScript:
    """One conversation to generate. blocked: why it must not be used, or ""."""

    id: str
    category: str
    language: str
    system: str
    tools: tuple[Mapping[str, Any], ...]
    turns: tuple[ScriptedTurn, ...]
    max_seconds: float
    script: str = ""
    blocked: str = ""


BEGINNING: Final = re.compile(r"(?:^|[.!?] )[a-z]")
"""Of a sentence, which may be a slot."""

BlockReason = Callable[[Sequence[str]], str]
"""Returns why these user turns may not be used, or ""."""


def make_scripts(
    plan: DataPlan, category: Category, block_reason: BlockReason
) -> Iterator[ConversationScript]:
    """The scripts of a category, until it is exhausted."""
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
        turns = _turns(plan, scene, language, rng)
        said = normalize(" / ".join(turn.say for turn in turns))
        if said in seen:
            barren += 1
            continue
        seen.add(said)
        yield ConversationScript(
            id=f"{category.name}-{number:05}",
            category=category.name,
            language=language,
            system=rng.choice(plan.systems).strip(),
            tools=_tools(plan, category, turns, rng),
            turns=turns,
            max_seconds=category.max_seconds,
            script=plan.languages[language].script,
            blocked=block_reason([turn.say for turn in turns]),
        )
        number, barren = number + 1, 0


def _turns(plan: DataPlan, scene: Scenario, language: str, rng: random.Random) -> tuple[ScriptedTurn, ...]:
    drawn: dict[str, Record] = {}
    turns = [_turn(plan, turn, language, drawn, rng) for turn in scene.turns]
    around, first = plan.languages[language], turns[0]
    say = first.say
    if around.openers and rng.random() < DECORATED:
        say = f"{rng.choice(around.openers)} {say}"
    if around.closers and rng.random() < DECORATED:
        say = f"{say} {rng.choice(around.closers)}"
    return (replace(first, say=say), *turns[1:])


def _turn(
    plan: DataPlan, turn: TurnPlan, language: str, drawn: dict[str, Record], rng: random.Random
) -> ScriptedTurn:
    """One turn with its slots filled. A slot is the same record throughout a conversation."""

    def fill(text: str, form: str) -> str:
        for slot, key in SLOT.findall(text):
            if slot not in drawn:
                drawn[slot] = rng.choice(plan.slots[slot])
            word = _form(drawn[slot][key], plan.forms, form)
            text = text.replace(f"{{{slot}.{key}}}" if key != WHOLE else f"{{{slot}}}", word)
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
    result = fill(turn.result, plan.forms[0])
    return ScriptedTurn(BEGINNING.sub(lambda found: found[0].upper(), say), calls, result, answer)


def _form(forms: Sequence[str], names: Sequence[str], name: str) -> str:
    """The word in a language; the first form if the language has none of its own."""
    place = names.index(name) if name in names else 0
    return forms[min(place, len(forms) - 1)]


def _tools(
    plan: DataPlan, category: Category, turns: Sequence[ScriptedTurn], rng: random.Random
) -> tuple[Mapping[str, Any], ...]:
    needed = dict.fromkeys(call["name"] for turn in turns for call in turn.calls)
    if not plan.tools or (not needed and rng.random() >= category.offered):
        return ()
    others = [name for name in plan.tools if name not in needed]
    names = [
        *needed,
        *rng.sample(others, rng.randint(0 if needed else 1, min(DISTRACTORS, len(others))) if others else 0),
    ]
    rng.shuffle(names)
    return tuple(plan.toolbox[name] for name in names)
