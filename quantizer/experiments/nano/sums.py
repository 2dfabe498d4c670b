"""Sums with two-digit numbers, whose working is spoken: the tens first, then the ones."""

from __future__ import annotations

import random
from typing import Final

from quantizer.experiments.nano.conversation import DialogueTurn
from quantizer.experiments.nano.vocabulary import spoken, voice

_PLUS: Final = (
    "what is {a} plus {b}?", "what's {a} plus {b}?", "{a} plus {b}", "{a} plus {b}?", "add {a} and {b}", "add {b} to {a}",
    "how much is {a} plus {b}?", "what is {a} + {b}?", "{a} + {b}", "{a}+{b}", "what does {a} plus {b} make?",
    "what is the sum of {a} and {b}?", "can you add {a} and {b}?", "calculate {a} plus {b}", "tell me {a} plus {b}",
    "what do you get when you add {a} and {b}?", "{a} and {b} make how much?", "what are {a} and {b} together?",
    "sum {a} and {b}", "how much do {a} and {b} make?", "work out {a} plus {b}", "can you work out {a} plus {b}?",
    "what's the total of {a} and {b}?", "if I add {a} and {b}, what do I get?", "what do {a} and {b} add up to?",
    "I have {a} and get {b} more, how many do I have?", "quick, {a} plus {b}", "do you know what {a} plus {b} is?",
    "{a} rupees and {b} rupees, how much is that?", "what is {a} and {b}?", "count {a} and {b} together",
    "{a} plus {b} equals?", "{a} plus {b} is what?", "what comes out of {a} plus {b}?", "please add up {a} and {b}",
    "I paid {a} and she paid {b}, how much did we pay?", "there are {a} apples and {b} pears, how many in all?",
    "we have {a} chairs and {b} stools, how many is that?", "one bag weighs {a} and the other {b}, what do both weigh?",
    "the first is {a}, the second is {b}, what is the sum?", "give me the total of {a} and {b}", "increase {a} by {b}",
    "could you sum up {a} and {b}?", "I have to add {a} and {b}, what is it?", "let's add {a} and {b}", "put {b} on top of {a}",
    "it was {a} and grew by {b}, how much is it?", "{a} today and {b} tomorrow, what is that altogether?",
    "his share is {a} and mine is {b}, what do we have?", "take {a} and add {b}", "do {a} plus {b}", "{a} and {b} more",
    "one costs {a} and the other {b}, what is the total?", "help me add {a} and {b}", "what is {a} more than {b}?",
)  # fmt: skip
_MINUS: Final = (
    "what is {a} minus {b}?", "what's {a} minus {b}?", "{a} minus {b}", "{a} minus {b}?", "take {b} from {a}", "{a} - {b}",
    "how much is {a} minus {b}?", "what is {a} - {b}?", "subtract {b} from {a}", "what is {a} less {b}?", "{a}-{b}",
    "what is left when you take {b} from {a}?", "tell me {a} minus {b}", "calculate {a} minus {b}", "work out {a} minus {b}",
    "take {b} away from {a}", "if I take {b} from {a}, what is left?", "I have {a} and spend {b}, how much is left?",
    "what is the difference between {a} and {b}?", "do you know what {a} minus {b} is?", "{a} take away {b}",
    "what do you get when you subtract {b} from {a}?", "{a} minus {b} equals?", "how much more is {a} than {b}?",
    "remove {b} from {a}", "reduce {a} by {b}", "lower {a} by {b}", "knock {b} off {a}", "{b} off {a}, what is left?",
    "there were {a} and {b} are gone, how many remain?", "I had {a} and lost {b}, how many do I have?",
    "out of {a}, {b} are used, how many are left?", "{a} without {b}", "do {a} minus {b}", "let's subtract {b} from {a}",
    "it cost {a} and is {b} cheaper today, what does it cost?", "we need {a} and have {b}, how many are missing?",
    "could you take {b} off from {a}?", "{b} from {a} leaves how much?",
)  # fmt: skip
_TIMES: Final = (
    "what is {a} times {b}?", "what's {a} times {b}?", "{a} times {b}", "how much is {a} times {b}?", "multiply {a} by {b}",
    "{a} multiplied by {b}", "calculate {a} times {b}", "tell me {a} times {b}", "what is {a} x {b}?", "{a} * {b}",
)  # fmt: skip

_ONES: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS: Final = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def in_words(number: int) -> str:
    """A number below a hundred as it is said."""
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f" {_ONES[ones]}" if ones else "")


def worked(a: int, b: int, sign: str) -> str:
    """The spoken working of a sum: 47 plus 30 is 77, and 77 plus 8 is 85."""
    way = 1 if sign == "plus" else -1
    tens, ones = b - b % 10, b % 10
    if not tens or not ones:
        return f"{a} {sign} {b} is {a + way * b}."
    middle = a + way * tens
    return f"{a} {sign} {tens} is {middle}, and {middle} {sign} {ones} is {middle + way * ones}."


def two_digits(rng: random.Random) -> DialogueTurn:
    """A sum or a difference below two hundred, or a product of the tables up to ten."""
    kind = rng.choices(("plus", "minus", "times"), (6, 3, 1))[0]
    if kind == "times":
        a, b = rng.randint(2, 10), rng.randint(2, 10)
        answer = f"{a} times {b} is {a * b}."
        ask, result = rng.choice(_TIMES), a * b
    else:
        a, b = rng.randint(10, 99), rng.randint(10, 99) if rng.random() < 0.85 else rng.randint(1, 9)
        if kind == "minus":
            a, b = max(a, b), min(a, b)
        elif rng.random() < 0.07:
            a, b = b, a
        answer, result = worked(a, b, kind), a + b if kind == "plus" else a - b
        ask = rng.choice(_PLUS if kind == "plus" else _MINUS)
    spelled = rng.random() < 0.1
    said = ask.format(a=in_words(a) if spelled else a, b=in_words(b) if spelled else b)
    return DialogueTurn(
        "summed", voice(rng).prompt(spoken(rng, said)), answer, f"A sum: {answer}", (f"is {result}.",)
    )
