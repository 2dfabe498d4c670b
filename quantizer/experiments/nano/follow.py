"""Follow-ups: what a user says next, when it leans on what was said before. Pure and seeded."""

from __future__ import annotations

import random
from dataclasses import replace

from quantizer.experiments.nano.conversation import Call, Exchange, Kit
from quantizer.experiments.nano.facts import CAPITALS
from quantizer.experiments.nano.results import memory_line, shaped
from quantizer.experiments.nano.say import voice
from quantizer.experiments.nano.words import NAMES, TOPICS, Split, pick

_AGAIN = ("can you say that again?", "say that again", "repeat that", "what did you say?", "sorry, what?",
          "could you repeat that?", "I didn't hear you", "once more", "come again?", "what was that?")  # fmt: skip
_NEXT = ("and {x}?", "what about {x}?", "and what about {x}?", "how about {x}?", "and the capital of {x}?",
         "and for {x}?", "now {x}")  # fmt: skip
_ALSO = ("and about the {t}?", "what about the {t}?", "and the {t}?", "and what about the {t}?",
         "did {n} say anything about the {t} too?", "anything about the {t}?")  # fmt: skip
_MY_NAME = ("what is my name?", "what's my name?", "do you know my name?", "who am I?", "tell me my name",
            "do you remember my name?", "can you tell me my name?", "say my name")  # fmt: skip
_TELL_NAME = ("my name is {n}", "I'm {n}", "hi, I'm {n}", "call me {n}", "hello, my name is {n}")


def follow(rng: random.Random, split: Split, kit: Kit, before: Exchange) -> Exchange | None:
    """An exchange that leans on the one before it, or None when there is nothing to lean on."""
    if rng.random() < 0.3:
        user = voice(rng).prompt(rng.choice(_AGAIN))
        return Exchange("follow", user, before.answer, "They want to hear it again.", (before.answer,))
    if before.kind == "fact" and before.answer.startswith("The capital of"):
        return _next_capital(rng)
    if before.kind == "memory" and before.about and "search_memory" in kit:
        return _next_memory(rng, split, kit, before)
    return None


def _next_capital(rng: random.Random) -> Exchange:
    place = rng.choice(list(CAPITALS))
    user = voice(rng).prompt(rng.choice(_NEXT).format(x=place))
    city = CAPITALS[place]
    return Exchange(
        "follow",
        user,
        f"The capital of {place} is {city}.",
        f"The capital of {place} now.",
        (city,),
    )


def _next_memory(rng: random.Random, split: Split, kit: Kit, before: Exchange) -> Exchange:
    tool, v = kit["search_memory"], voice(rng)
    topic = v.word(pick(rng, TOPICS, split, 0.1))
    user = v.prompt(rng.choice(_ALSO).format(t=topic, n=v.word(before.about)))
    query = f"{before.about} {topic}"
    line = memory_line(rng, before.about, topic, split)
    line = line[0].upper() + line[1:]
    call = Call(tool.name, tool.arguments(query=query))
    return Exchange("memory", user, line, f"I should search memory for {query}.", (line,), (call,),
                    (shaped(rng, [line]),), "The result answers it.", before.about)  # fmt: skip


def named(rng: random.Random, split: Split, kit: Kit) -> tuple[Exchange, Exchange]:
    """The user's name, told and asked for later."""
    name = pick(rng, NAMES, split, 0.3)
    told = Exchange("greeting", voice(rng).prompt(rng.choice(_TELL_NAME)), f"Nice to meet you, {name}!", "")
    v = replace(voice(rng), lower=False)
    told = replace(told, user=v.prompt(rng.choice(_TELL_NAME).format(n=name)))
    asked = Exchange("follow", voice(rng).prompt(rng.choice(_MY_NAME)), f"Your name is {name}.",
                     f"They told me: {name}.", (name,))  # fmt: skip
    return told, asked


def nameless(rng: random.Random) -> Exchange:
    """The user's name, asked for but never told."""
    user = voice(rng).prompt(rng.choice(_MY_NAME))
    return Exchange("follow", user, "You haven't told me your name yet.", "They never told me.", ("haven't",))
