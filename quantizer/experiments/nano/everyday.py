"""What people say to a voice assistant on any day, for a further stage of annie-nano: `everyday_sample`.

The first two stages never see a house without tools for long: asked for the date with no tool, the model wrote a call
to one that it remembered. Here most dialogues have no tools, or tools for something else, and the answer is a spoken
sentence that says what cannot be done. Sums of two digits are spoken step by step, names and days are remembered
within the dialogue, and a share of the earlier stage's dialogues keeps what was learned there.

In a share of `FORCED` a caller's tool_choice forces a call that nothing asked for: the model learns to end it, and does
not learn to begin it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from quantizer.experiments.nano import annie
from quantizer.experiments.nano.asked import is_asked
from quantizer.experiments.nano.conversation import (
    Dialogue,
    DialogueTurn,
    ExpectedToolCall,
    MarkedText,
)
from quantizer.experiments.nano.everyday_words import CHATS, FRAMES, RETRIES, SYSTEMS, WISHES, Wish, fill
from quantizer.experiments.nano.generate import conversation
from quantizer.experiments.nano.remembered import remembered
from quantizer.experiments.nano.scenes import INTENTS, OTHER_PROMPTS, VOICE_PROMPTS
from quantizer.experiments.nano.sums import two_digits
from quantizer.experiments.nano.template import END_OF_TURN, render, render_call
from quantizer.experiments.nano.tool_scenes import make_general
from quantizer.experiments.nano.tools import SPECS, ToolVariant, make_tool, stranger_tool
from quantizer.experiments.nano.vocabulary import CITIES, DAYS, NAMES, pick, split_of, voice

REPLAYED: Final = 0.5  # of the dialogues are the earlier stage's, of another draw
FORCED: Final = 0.015
THINKING: Final = 0.03


@dataclass(frozen=True, slots=True)
class Talk:
    """Turns, and the tools that must not be offered because they would serve the last wish."""

    turns: tuple[DialogueTurn, ...]
    rivals: frozenset[str] = frozenset()
    armed: float = 0.08  # how often tools are offered
    system: str | None = None


Scene = Callable[[random.Random], Talk]


def _wish(rng: random.Random) -> DialogueTurn:
    return _wish_of(rng, rng.choice(WISHES))


def _wish_of(rng: random.Random, wish: Wish) -> DialogueTurn:
    """A wish in one of its wordings, and a sentence that says that it cannot be met."""
    commands, questions = wish.commands, wish.questions
    if commands and (not questions or rng.random() < len(commands) / (len(commands) + len(questions))):
        plain = rng.choice(FRAMES).format(x=rng.choice(commands))
    else:
        plain = rng.choice(questions)
    user = voice(rng).prompt(fill(rng, plain))
    return DialogueTurn("declined", user, rng.choice(wish.answers), "I have no tool for that.")


def declined(rng: random.Random) -> Talk:
    """A wish without the tool for it; sometimes after others, and sometimes insisted on."""
    wish = rng.choices(WISHES, [w.weight for w in WISHES])[0]
    turns = [_wish_of(rng, wish)]
    if rng.random() < 0.06:
        ask, answer = rng.choice(RETRIES)
        turns.append(DialogueTurn("declined", voice(rng).prompt(ask), answer, "I still have no tool."))
    elif rng.random() < 0.12:
        turns = [*_fillers(rng, rng.choice((1, 1, 2))), *turns]
    return Talk(tuple(turns), wish.rivals, 0.25)


def _chat(rng: random.Random) -> DialogueTurn:
    if rng.random() < 0.35:
        intent = rng.choice(INTENTS)
        return DialogueTurn(
            "chat", voice(rng).prompt(rng.choice(intent.says)), rng.choice(intent.answers), intent.thought
        )
    says, answers = rng.choice(CHATS)
    plain = fill(rng, rng.choice(says))
    return DialogueTurn("chat", voice(rng).prompt(plain), rng.choice(answers), "They chat with me.")


def chat(rng: random.Random) -> Talk:
    before = _fillers(rng, rng.choice((0, 0, 0, 0, 1, 2)))
    return Talk((*before, _chat(rng)))


def _fillers(rng: random.Random, count: int) -> list[DialogueTurn]:
    """Short turns that need no tool."""
    return [rng.choice((_chat, _chat, _wish, two_digits))(rng) for _ in range(count)]


def summed(rng: random.Random) -> Talk:
    """A sum of two-digit numbers, its working spoken."""
    before = _fillers(rng, rng.choice((0, 0, 0, 0, 0, 0, 0, 1)))
    return Talk((*before, two_digits(rng)), armed=0.04)


def kept(rng: random.Random) -> Talk:
    """Something that was said before, asked for."""
    told, asked, system = remembered(rng)
    turns = list(told)
    for filler in _fillers(rng, rng.choice((0, 0, 0, 1, 1, 2, 3))):
        turns.insert(rng.randint(0, len(turns)), filler)
    return Talk((*turns, asked), armed=0.06, system=system)


def today(rng: random.Random) -> Talk:
    """The day, where the system prompt tells it."""
    day = rng.choice(DAYS)
    ask = rng.choice(("what day is it today?", "what day is it?", "which day is it?", "what's today?",
                      "what day of the week is it?", "do you know what day it is?", "tell me the day"))  # fmt: skip
    turn = DialogueTurn("kept", voice(rng).prompt(ask), f"Today is {day}.", "I was told the day.", (day,))
    told = rng.choice(("Today is {d}. You are a helpful assistant.", "You are Annie. Today is {d}.",
                       "You are a voice assistant. Be brief. It is {d} today."))  # fmt: skip
    return Talk((turn,), frozenset({"get_date"}), 0.1, told.format(d=day))


_SCENES: Final[dict[Scene, float]] = {declined: 0.36, chat: 0.12, summed: 0.29, kept: 0.22, today: 0.01}


def everyday(seed: int, index: int) -> Dialogue:
    """One new dialogue of this stage; no prompt in it is one that the gates ask."""
    rng = random.Random(f"everyday {seed} {index}")
    scene = rng.choices(list(_SCENES), list(_SCENES.values()))[0]
    while not _may_be_learned(talk := scene(rng)):
        pass
    tools = _tools(rng, talk.rivals) if rng.random() < talk.armed else ()
    return Dialogue(
        system=talk.system or _system(rng),
        tools=tools,
        exchanges=talk.turns,
        thinking=rng.random() < THINKING,
        style="xml" if tools and rng.random() < 0.15 else "hermes",
    )


def _may_be_learned(talk: Talk) -> bool:
    asked = any(is_asked(turn.user) for turn in talk.turns)
    return not asked and split_of(talk.turns[-1].user) == "train"


def _tools(rng: random.Random, rivals: frozenset[str]) -> tuple[ToolVariant, ...]:
    """One to three tools of which none serves the wish."""
    keys = [key for key in SPECS if key not in rivals]
    made: list[ToolVariant] = []
    for key in rng.sample(keys, min(len(keys), rng.choice((1, 1, 1, 1, 1, 2, 2, 3)))):
        roll = rng.random()
        if roll < 0.7:
            made.append(make_tool(rng, key))
        elif roll < 0.85:
            made.append(make_general(rng, "general"))
        else:
            tool = stranger_tool(rng)
            made.append(tool if tool.name not in rivals else make_tool(rng, key))
    return tuple({tool.name: tool for tool in made}.values())


def _system(rng: random.Random) -> str | None:
    roll = rng.random()
    if roll < 0.65:
        return None
    if roll < 0.75:
        return rng.choice(VOICE_PROMPTS)
    if roll < 0.80:
        return rng.choice(OTHER_PROMPTS[:6])
    first, *more = SYSTEMS
    parts = [rng.choice(first), *(rng.choice(part) for part in more if rng.random() < 0.4)]
    return " ".join(parts).format(name=pick(rng, NAMES, "train", 0.2), city=pick(rng, CITIES, "train", 0.2))


def forced(seed: int, index: int) -> Dialogue:
    """A dialogue whose last prompt asks for no tool, and a call that a caller's tool_choice forces on it."""
    rng = random.Random(f"forced {seed} {index}")
    while not _may_be_learned(Talk((turn := rng.choice((_chat, _chat, two_digits, _wish))(rng),))):
        pass
    tools = [make_tool(rng, key) for key in rng.sample(list(SPECS), rng.choice((1, 1, 2)))]
    if rng.random() < 0.5:
        tools = [make_general(rng, "general")]
    tool = rng.choice(tools)
    call = ExpectedToolCall(tool.name, _guessed(tool, turn.user))
    return Dialogue(_system(rng), tuple(tools), (replace(turn, calls=(call,)),))


def _guessed(tool: ToolVariant, user: str) -> dict[str, object]:
    """Short arguments, by the schema alone."""
    properties = tool.schema["function"]["parameters"]["properties"]
    by_type: dict[str, object] = {
        "integer": 5,
        "number": 20,
        "boolean": True,
        "string": user.rstrip("?!.").lower(),
    }
    roles = {name: role for role, name in tool.params.items()}
    return {
        name: _BY_ROLE.get(roles.get(name, ""), by_type[kind["type"]]) for name, kind in properties.items()
    }


_BY_ROLE: Final = {
    "city": "Bengaluru",
    "room": "kitchen",
    "artist": "Adele",
    "day": "Monday",
    "unit": "celsius",
}


def _forced_text(talk: Dialogue) -> MarkedText:
    """The call is learned but for its first tag, which the engine's grammar writes."""
    (call,) = talk.lesson.calls
    prompt = render(annie.opening(talk), talk.schemas)
    text = render_call(call.name, call.arguments, "hermes")
    return MarkedText(((prompt, False), (_TAG, False), (text.removeprefix(_TAG) + END_OF_TURN, True)))


_TAG: Final = "<tool_call>\n"


def replayed(seed: int, index: int) -> Dialogue:
    """A dialogue of the stage before, of a draw of its own."""
    for draw in count(index, 1_000_000):
        talk = conversation(seed + 4, "train", draw)
        if not any(is_asked(turn.user) for turn in talk.exchanges):
            return talk
    raise AssertionError("count has no end")


def dialogue(seed: int, index: int) -> tuple[Dialogue, bool]:
    """Dialogue number `index` of the stage, and whether its call is forced."""
    roll = random.Random(f"stage {seed} {index}").random()
    if roll < REPLAYED:
        return replayed(seed, index), False
    if roll < REPLAYED + FORCED:
        return forced(seed, index), True
    return everyday(seed, index), False


def everyday_sample(seed: int, index: int) -> MarkedText:
    """Training text number `index` of the stage."""
    talk, is_forced = dialogue(seed, index)
    return _forced_text(talk) if is_forced else annie.sample(talk)
