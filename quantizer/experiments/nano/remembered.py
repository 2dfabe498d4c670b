"""Names, days and other small things that are told in a dialogue and asked for later in it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from quantizer.experiments.nano.conversation import DialogueTurn
from quantizer.experiments.nano.vocabulary import (
    ARTISTS,
    CHORES,
    CITIES,
    DAYS,
    MONTHS,
    NAMES,
    TOPICS,
    pick,
    spoken,
    voice,
)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|"))


_TELL_NAME: Final = _split(
    "my name is {x}|I'm {x}|hi, I'm {x}|call me {x}|hello, my name is {x}|I am {x}|this is {x}|{x} here|my name's {x}|"
    "people call me {x}|my friends call me {x}|you can call me {x}|hello, {x} speaking|the name is {x}|it's {x}|"
    "hi, this is {x}|please call me {x}|hey, {x} here|I go by {x}|good morning, I'm {x}|"
    "this is {x} speaking|you are talking to {x}|I'm called {x}|everybody calls me {x}|name's {x}|{x} is my name|"
    "my first name is {x}|you're speaking with {x}|hello there, {x} here|I'm {x}, nice to meet you"
)
_ASK_NAME: Final = _split(
    "what is my name?|what's my name?|do you know my name?|who am I?|tell me my name|do you remember my name?|"
    "can you tell me my name?|say my name|what did I say my name was?|do you still know my name?|remember my name?|"
    "what am I called?|what do people call me?|did you get my name?|which name did I give you?|can you say my name?|"
    "what was my name again?|who are you talking to?|how should you call me?|what name did I tell you?|my name is?|"
    "do you know who I am?|who is speaking to you?|can you remember who I am?|you know my name, right?|which name is mine?|"
    "how do people call me?|who did I say I am?|my name, please?|who is this?|what did I tell you my name is?|"
    "could you say my name?|have you kept my name?|is my name still with you?|give me my name"
)


@dataclass(frozen=True, slots=True)
class Told:
    """Something told: `says` and `asks` hold {x}, what is to be remembered, and {e}, what it belongs to."""

    says: tuple[str, ...]
    asks: tuple[str, ...]
    things: tuple[str, ...]
    kind: str


_EVENTS: Final = (
    *TOPICS, "dentist", "dentist appointment", "doctor's appointment", "haircut", "job interview", "birthday party", "exam",
    "test", "appointment", "swimming lesson", "piano lesson", "check up", "deadline", "day off", "football game", "dinner",
    "lunch with the team", "parents' evening", "training", "surgery", "big day", "graduation", "moving day", "eye test",
    "class", "driving test", "board meeting", "anniversary", "vet appointment", "date", "talk", "move",
)  # fmt: skip
_VISITORS: Final = _split(
    "my sister|my brother|my mother|my mom|my dad|my aunt|my uncle|my friend|my cousin|my parents|the plumber|my boss|"
    "the electrician|grandma|my son|my daughter|the cleaner|my neighbour|the painter|our guests"
)
_KIN: Final = _split(
    "dog|cat|brother|sister|son|daughter|wife|husband|teacher|boss|doctor|dentist|neighbour|best friend|cousin|uncle|aunt|"
    "mother|father|parrot|baby|boyfriend|girlfriend|friend|horse|fish|coach|landlord|manager|roommate"
)
_TOLD: Final = (
    Told(_split("my {e} is on {x}|I have a {e} on {x}|the {e} is on {x}|we have the {e} on {x}|{x} is my {e}|my {e} is {x}|"
                "remember that my {e} is on {x}|please remember that the {e} is on {x}|keep in mind that the {e} is on {x}|"
                "don't forget, the {e} is on {x}|just so you know, my {e} is on {x}|I've got my {e} on {x}|"
                "there's a {e} on {x}|our {e} is this {x}|my {e} is next {x}|the {e} will be on {x}|they moved my {e} to {x}|"
                "on {x} I have my {e}|I'm going to the {e} on {x}|remember, {e} on {x}|{e} is on {x}"),
         _split("when is my {e}?|when is the {e}?|what day is my {e}?|what day is the {e}?|on which day is my {e}?|"
                "which day is the {e}?|when was my {e} again?|when did I say my {e} is?|do you remember when my {e} is?|"
                "what day did I say the {e} was?|on what day is the {e}?|tell me when my {e} is|which day is my {e} on?|"
                "what day did I say?|which day did I tell you?|when do I have my {e}?|what day was it again?|"
                "which day was that?|do you know the day of my {e}?|when's my {e}?|which day was the {e}?"),
         _EVENTS, "day"),
    Told(_split("{e} is coming on {x}|{e} arrives on {x}|{e} will visit on {x}|{e} comes to see me on {x}|{e} is here on {x}|"
                "I'm meeting {e} on {x}|{e} visits us this {x}|on {x} {e} is coming over|{e} gets here on {x}"),
         _split("when is {e} coming?|what day does {e} come?|when does {e} arrive?|on which day is {e} coming?|"
                "what day is {e} coming?|when do I see {e}?|which day did I say {e} is coming?|when will {e} be here?|"
                "which day is that again?|what day did I say?"),
         _VISITORS, "day"),
    Told(_split("I need to {e} on {x}|I have to {e} on {x}|I want to {e} on {x}|I must {e} by {x}|I'll {e} on {x}|"
                "we {e} on {x}|on {x} I {e}|I plan to {e} on {x}"),
         _split("when do I need to {e}?|which day do I have to {e}?|what day did I want to {e}?|when will I {e}?|"
                "on which day do I {e}?|when did I say I would {e}?|what day was that?"),
         (*CHORES, "fly to Delhi", "leave for Goa", "go to the beach", "start my new job", "play tennis", "drive to Hampi",
          "visit my parents", "go shopping", "travel to Mumbai", "go running", "move house", "see the doctor"), "day"),
    Told(_split("my {e}'s name is {x}|my {e} is called {x}|my {e} is {x}|I have a {e} called {x}|I have a {e} named {x}|"
                "the name of my {e} is {x}|my {e}, {x}, is great|{x} is my {e}|we call our {e} {x}"),
         _split("what is my {e}'s name?|what's my {e}'s name?|what is my {e} called?|who is my {e}?|"
                "what name did I give my {e}?|do you know what my {e} is called?|remember what my {e} is called?|"
                "do you remember my {e}'s name?|what's the name of my {e}?|tell me my {e}'s name|how is my {e} called?|"
                "what did I say my {e} is called?"),
         _KIN, "name"),
    Told(_split("I live in {x}|I come from {x}|my home is in {x}|I'm from {x}|I moved to {x}|we live in {x}"),
         _split("where do I live?|which city do I live in?|where am I from?|where is my home?|what city did I tell you?|"
                "do you remember where I live?"), ("",), "city"),
    Told(_split("my favourite {e} is {x}|I like {x} best|the {e} I like most is {x}|my favorite {e} is {x}"),
         _split("what is my favourite {e}?|what's my favorite {e}?|which {e} do I like best?|"
                "do you remember my favourite {e}?|what {e} do I like?"),
         ("colour", "color", "food", "drink", "animal", "fruit", "day", "month", "singer"), "liked"),
    Told(_split("my {e} number is {x}|the {e} is number {x}|remember the {e} number {x}|my {e} is number {x}"),
         _split("what is my {e} number?|what's the {e} number?|which {e} number did I say?|"
                "tell me the {e} number"),
         ("room", "seat", "house", "locker", "bus", "gate", "flat", "ticket", "platform", "parking"), "number"),
)  # fmt: skip
_TOLD_WEIGHTS: Final = (10, 4, 4, 5, 2, 2, 1)
_LIKED: Final = {
    "colour": "blue red green yellow purple orange pink black white brown", "color": "blue red green yellow purple black",
    "food": "pizza dosa pasta rice idli soup curry noodles", "drink": "tea coffee milk juice water lemonade",
    "animal": "dog cat tiger horse elephant rabbit", "fruit": "mango apple banana orange grape melon",
}  # fmt: skip
_LIKED_LISTS: Final = {"day": DAYS, "month": MONTHS, "singer": ARTISTS}


def _value(rng: random.Random, told: Told, thing: str) -> str:
    if told.kind == "day":
        return rng.choice(DAYS)
    if told.kind == "name":
        return pick(rng, NAMES, "train", 0.4)
    if told.kind == "city":
        return pick(rng, CITIES, "train", 0.2)
    if told.kind == "number":
        return str(rng.randint(2, 99))
    return rng.choice(_LIKED_LISTS.get(thing) or _LIKED[thing].split())


def _say(rng: random.Random, plain: str) -> str:
    """As typed, with the capitals of what has to be repeated."""
    made = voice(rng)
    return made.prompt(plain) if not made.lower or rng.random() < 0.3 else plain


def _tell(rng: random.Random) -> tuple[Told, str, str]:
    told = rng.choices(_TOLD, _TOLD_WEIGHTS)[0]
    thing = rng.choice(told.things)
    return told, thing, _value(rng, told, thing)


def _told_name(rng: random.Random) -> tuple[str, str]:
    name = pick(rng, NAMES, "train", 0.4)
    return name, rng.choice(_TELL_NAME).format(x=name)


_CHANGES: Final = _split(
    "actually, it's on {x}|no, I meant {x}|sorry, it is on {x}|it was moved to {x}|it's on {x} instead|make that {x}|"
    "they changed it to {x}|it is {x} now|I mean {x}|not that day, {x}|no, on {x}|wait, it's {x}|it has moved to {x}|"
    "sorry, I meant {x}|it will be on {x} after all|we moved it to {x}|oh, it's on {x}"
)
_GOT: Final = ("Got it, {x}.", "Okay, {x}.", "Alright, {x}.")


def _turn(user: str, answer: str) -> DialogueTurn:
    return DialogueTurn("told", user, answer, "They tell me something.")


def remembered(rng: random.Random) -> tuple[tuple[DialogueTurn, ...], DialogueTurn, str | None]:
    """What was told, turn by turn; the question with its answer; a system prompt that matters, if any."""
    roll = rng.random()
    if roll < 0.05:
        return _never(rng)
    if roll < 0.09:
        name = pick(rng, NAMES, "train", 0.3)
        system = rng.choice(("You are Annie. The user is called {x}.", "The user's name is {x}. Be brief.",
                             "You are a voice assistant. You talk with {x}."))  # fmt: skip
        return (), _asked(rng, _ASK_NAME, f"Your name is {name}.", name), system.format(x=name)
    if roll < 0.25:
        name, said = _told_name(rng)
        return (_turn(_say(rng, said), f"Nice to meet you, {name}!"),), _name_asked(rng, name), None
    told, thing, value = _tell(rng)
    line = rng.choice(told.says).format(x=value, e=thing)
    if roll < 0.60:
        return _one(rng, told, thing, value, line)
    if roll < 0.80:
        return _with_name(rng, told, thing, value, line)
    return _two(rng, told, thing, value, line)


def _one(
    rng: random.Random, told: Told, thing: str, value: str, line: str
) -> tuple[tuple[DialogueTurn, ...], DialogueTurn, None]:
    turn = _turn(_say(rng, line), rng.choice(_GOT).format(x=value))
    if rng.random() < 0.25:
        return (), turn, None  # learn to take note of it
    if rng.random() < 0.2 and told.kind == "day":
        value = rng.choice([day for day in DAYS if day != value])
        change = rng.choice(_CHANGES)
        again = _turn(_say(rng, change.format(x=value)), rng.choice(_GOT).format(x=value))
        return (turn, again), _thing_asked(rng, told, thing, value), None
    return (turn,), _thing_asked(rng, told, thing, value), None


def _with_name(
    rng: random.Random, told: Told, thing: str, value: str, line: str
) -> tuple[tuple[DialogueTurn, ...], DialogueTurn, None]:
    """A name and something else, in one message or two; one of them or both are asked for."""
    name, said = _told_name(rng)
    hello, got = f"Nice to meet you, {name}!", rng.choice(_GOT).format(x=value)
    if rng.random() < 0.5:
        both = rng.choice((f"{said} and {line}", f"{said}. {line[0].upper()}{line[1:]}"))
        turns = [_turn(_say(rng, both), f"{hello} {got}")]
    else:
        turns = [_turn(_say(rng, said), hello), _turn(_say(rng, line), got)]
        rng.shuffle(turns)
    roll = rng.random()
    if roll < 0.1:
        return tuple(turns[:-1]), turns[-1], None
    if roll < 0.4:
        return tuple(turns), _name_asked(rng, name), None
    if roll < 0.85:
        return tuple(turns), _thing_asked(rng, told, thing, value), None
    ask = f"{rng.choice(_ASK_NAME[:2]).rstrip('?')} and {rng.choice(told.asks).format(e=thing)}"
    answer = f"Your name is {name}, and you said {value}."
    return tuple(turns), _asked(rng, (ask,), answer, name, value), None


def _two(
    rng: random.Random, told: Told, thing: str, value: str, line: str
) -> tuple[tuple[DialogueTurn, ...], DialogueTurn, None]:
    """Two things told, one asked for by name."""
    while True:
        other, what, second = _tell(rng)
        if what != thing and second != value and (other.things != told.things or thing):
            break
    turns = [
        _turn(_say(rng, line), rng.choice(_GOT).format(x=value)),
        _turn(_say(rng, rng.choice(other.says).format(x=second, e=what)), rng.choice(_GOT).format(x=second)),
    ]
    rng.shuffle(turns)
    asks = [ask for ask in told.asks if "{e}" in ask] or list(told.asks)
    return tuple(turns), _asked(rng, [a.format(e=thing) for a in asks], f"You said {value}.", value), None


def _never(rng: random.Random) -> tuple[tuple[DialogueTurn, ...], DialogueTurn, None]:
    """Asked for without having been told."""
    if rng.random() < 0.5:
        return (), _asked(rng, _ASK_NAME[:-5], "You haven't told me your name yet.", "haven't"), None
    told, thing, _ = _tell(rng)
    name, said = _told_name(rng)
    before = (_turn(_say(rng, said), f"Nice to meet you, {name}!"),) if rng.random() < 0.3 else ()
    asks = [ask for ask in told.asks if "{e}" in ask] or list(told.asks)
    return (
        before,
        _asked(rng, [a.format(e=thing) for a in asks], "You haven't told me that yet.", "haven't"),
        None,
    )


def _name_asked(rng: random.Random, name: str) -> DialogueTurn:
    return _asked(rng, _ASK_NAME, f"Your name is {name}.", name)


def _thing_asked(rng: random.Random, told: Told, thing: str, value: str) -> DialogueTurn:
    return _asked(rng, [ask.format(e=thing) for ask in told.asks], f"You said {value}.", value)


def _asked(rng: random.Random, asks: tuple[str, ...] | list[str], answer: str, *must: str) -> DialogueTurn:
    return DialogueTurn(
        "kept", voice(rng).prompt(spoken(rng, rng.choice(asks))), answer, "They told me.", must
    )
