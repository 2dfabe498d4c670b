"""Scenes without tools: greetings, facts, things nobody knows, and small reasoning.

A scene is a function (rng, split, kit) -> Exchange. It is pure: the same generator state gives the
same exchange. Where the kit lacks a tool that the user's wish needs, the exchange says so in speech.
"""

from __future__ import annotations

import random

from quantizer.experiments.nano.conversation import Call, Exchange, Kit
from quantizer.experiments.nano.facts import all_facts
from quantizer.experiments.nano.say import voice
from quantizer.experiments.nano.talk import INTENTS, TELLINGS, UNKNOWN_ANSWERS, UNKNOWNS
from quantizer.experiments.nano.words import DAYS, MONTHS, NAMES, TOPICS, Split, coin, pick

_FACTS = all_facts()

_PLUS = ("what is {a} plus {b}?", "what's {a} plus {b}?", "{a} plus {b}", "add {a} and {b}",
         "how much is {a} plus {b}?", "what is {a} + {b}?", "{a} + {b}", "what does {a} plus {b} make?",
         "what is the sum of {a} and {b}?", "can you add {a} and {b}?", "calculate {a} plus {b}",
         "tell me {a} plus {b}", "what do you get when you add {a} and {b}?", "{a}+{b}?",
         "{a} and {b} make how much?", "what is {a}+{b}?")  # fmt: skip
_MINUS = ("what is {a} minus {b}?", "what's {a} minus {b}?", "{a} minus {b}", "take {b} from {a}",
          "how much is {a} minus {b}?", "what is {a} - {b}?", "subtract {b} from {a}", "{a} - {b}",
          "what is left when you take {b} from {a}?", "tell me {a} minus {b}")  # fmt: skip
_BIGGER = ("which is bigger, {a} or {b}?", "what is bigger, {a} or {b}?", "which is larger, {a} or {b}?",
           "which number is bigger, {a} or {b}?", "is {a} or {b} bigger?", "which is more, {a} or {b}?",
           "which is greater, {a} or {b}?", "tell me the bigger of {a} and {b}",
           "what is the larger of {a} and {b}?", "{a} or {b}, which is bigger?")  # fmt: skip
_NEXT_DAY = ("which day comes after {x}?", "what day comes after {x}?", "what is the day after {x}?",
             "which day follows {x}?", "what comes after {x}?", "today is {x}, what is tomorrow?",
             "if today is {x}, what day is tomorrow?", "name the day after {x}",
             "what day is it tomorrow if today is {x}?", "tell me the day after {x}")  # fmt: skip
_LAST_DAY = ("which day comes before {x}?", "what day comes before {x}?", "what is the day before {x}?",
             "today is {x}, what was yesterday?", "if today is {x}, what day was yesterday?",
             "name the day before {x}", "tell me the day before {x}")  # fmt: skip
_NEXT_MONTH = ("which month comes after {x}?", "what month comes after {x}?", "which month follows {x}?",
               "what is the month after {x}?", "name the month after {x}", "what is the next month after {x}?",
               "if it is {x} now, what is next month?", "tell me the month after {x}")  # fmt: skip


def greeting(rng: random.Random, split: Split, kit: Kit) -> Exchange:
    """Small talk of all kinds; one in six tells Annie something with open slots."""
    v = voice(rng)
    if rng.random() < 0.15:
        says, answer = rng.choice(TELLINGS)
        slots = {
            "name": v.word(pick(rng, NAMES, split, 0.3)),
            "word": v.word(pick(rng, TOPICS, split)),
        }
        fill = says.format(**slots)
        return Exchange("greeting", v.prompt(fill), answer.format(**slots), "They tell me something.")
    intent = rng.choice(INTENTS[:10]) if rng.random() < 0.5 else rng.choice(INTENTS)
    return Exchange("greeting", v.prompt(rng.choice(intent.says)), rng.choice(intent.answers), intent.thought)


def fact(rng: random.Random, split: Split, kit: Kit) -> Exchange:
    """A question that the model knows the answer to; tools in the kit are not needed."""
    known = rng.choice(_FACTS)
    user = voice(rng).prompt(rng.choice(known.asks))
    thought = f"I know this one. The answer is {known.key}."
    return Exchange("fact", user, known.answer, thought, (known.key,))


def unknown(rng: random.Random, split: Split, kit: Kit) -> Exchange:
    """A question about a made-up thing: look it up if there is a way to, else admit it."""
    v = voice(rng)
    name = v.word(" ".join(coin(rng) for _ in range(rng.choice((1, 1, 2)))))
    user = v.prompt(rng.choice(UNKNOWNS).format(name=name))
    thought = f"I do not know {name}."
    if "web_search" not in kit:
        return Exchange("unknown", user, rng.choice(UNKNOWN_ANSWERS), thought)
    tool = kit["web_search"]
    line = f"{name} is {rng.choice(('a town', 'a river', 'a writer', 'a song', 'a game'))} near {coin(rng)}."
    call = Call(tool.name, tool.arguments(query=name))
    return Exchange("web", user, line, f"{thought} I should search the web.", (line,), (call,), (line,),
                    "The result answers it.")  # fmt: skip


def reasoning(rng: random.Random, split: Split, kit: Kit) -> Exchange:
    """One step that needs no thought: a small sum, the bigger number, the next day or month."""
    kind = rng.choices(("plus", "minus", "bigger", "day", "yesterday", "month"), (5, 3, 3, 2, 1, 2))[0]
    if kind in ("plus", "minus"):
        return _sum(rng, kind)
    if kind == "bigger":
        return _bigger(rng)
    return _calendar(rng, kind)


def _sum(rng: random.Random, kind: str) -> Exchange:
    a, b = rng.randint(0, 9), rng.randint(0, 9)
    if kind == "minus":
        a, b = max(a, b), min(a, b)
    asks, sign, c = (_PLUS, "plus", a + b) if kind == "plus" else (_MINUS, "minus", a - b)
    user = voice(rng).prompt(rng.choice(asks).format(a=a, b=b))
    answer = f"{a} {sign} {b} is {c}."
    return Exchange("reasoning", user, answer, f"A small sum: {a} {sign} {b} is {c}.", (f"is {c}.",))


def _bigger(rng: random.Random) -> Exchange:
    top = rng.choice((20, 99, 99, 999))
    a, b = rng.sample(range(1, top + 1), 2)
    user = voice(rng).prompt(rng.choice(_BIGGER).format(a=a, b=b))
    low, high = sorted((a, b))
    answer = f"{high} is bigger than {low}."
    return Exchange("reasoning", user, answer, f"I compare {a} and {b}. {high} is more.", (answer[:-1],))


def _calendar(rng: random.Random, kind: str) -> Exchange:
    words = MONTHS if kind == "month" else DAYS
    asks = {"day": _NEXT_DAY, "yesterday": _LAST_DAY, "month": _NEXT_MONTH}[kind]
    step, side = (-1, "before") if kind == "yesterday" else (1, "after")
    i = rng.randrange(len(words))
    x, y = words[i], words[(i + step) % len(words)]
    user = voice(rng).prompt(rng.choice(asks).format(x=x))
    return Exchange("reasoning", user, f"The {'month' if kind == 'month' else 'day'} {side} {x} is {y}.",
                    f"The one {side} {x} is {y}.", (f"is {y}.",))  # fmt: skip


_THINGS = ("dosas", "idlis", "mangoes", "apples", "books", "coins", "pens", "flowers", "sweets", "eggs",
           "bananas", "stamps", "marbles", "tickets", "vadas", "laddus")  # fmt: skip
_TWO_STEPS = (
    ("-+", "{n} has {a} {t}. {n} gives away {b} and then buys {c}. How many {t} does {n} have?"),
    ("++", "{n} has {a} {t}, gets {b} more, and then another {c}. How many {t} is that?"),
    ("+-", "{n} bought {a} {t} and then {b} more, and ate {c} of them. How many {t} are left?"),
    ("--", "There are {a} {t}. {n} takes {b} and then {c}. How many {t} are left?"),
    ("+-", "what is {a} plus {b} minus {c}?"), ("++", "what is {a} plus {b} plus {c}?"),
    ("-+", "what is {a} minus {b} plus {c}?"), ("+-", "{a} plus {b}, then minus {c}?"),
    ("++", "add {a}, {b} and {c}"), ("--", "what is {a} minus {b} minus {c}?"),
)  # fmt: skip


def two_step(rng: random.Random, split: Split, kit: Kit) -> Exchange:
    """Two sums in a row. Thinking, they are thought; without thinking, the working is spoken.

    `answer` is the spoken working; `short_answer` gives the end alone, for when it was thought.
    """
    signs, ask = rng.choice(_TWO_STEPS)
    while True:
        a, b, c = rng.randint(2, 20), rng.randint(1, 9), rng.randint(1, 9)
        mid = a + b if signs[0] == "+" else a - b
        end = mid + c if signs[1] == "+" else mid - c
        if mid >= 0 and end >= 0:
            break
    v = voice(rng)
    slots = {
        "n": v.word(pick(rng, NAMES, split, 0.1)),
        "t": rng.choice(_THINGS),
        "a": a,
        "b": b,
        "c": c,
    }
    one = f"{a} {'plus' if signs[0] == '+' else 'minus'} {b} is {mid}"
    two = f"{mid} {'plus' if signs[1] == '+' else 'minus'} {c} is {end}"
    user = v.prompt(ask.format(**slots))
    return Exchange("two_step", user, f"{one}, and {two}.", f"{one}. {two}.", (f"is {end}.",))


def short_answer(exchange: Exchange) -> str:
    """The end of a two-step sum, for an answer whose working was thought."""
    return f"The answer {exchange.must[0]}"
