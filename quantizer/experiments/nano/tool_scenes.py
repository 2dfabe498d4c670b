"""Scenes with tools: memory, the web, and things in the house. Pure and seeded, as scenes.py."""

from __future__ import annotations

import random
from collections.abc import Callable

from quantizer.experiments.nano.conversation import Call, Exchange, Kit
from quantizer.experiments.nano.results import BROKEN, NOTHING, memory_line, news_line, noise_line, shaped
from quantizer.experiments.nano.say import voice
from quantizer.experiments.nano.words import EVERYDAY, NAMES, SUBJECTS, TOPICS, Split, coin, pick

# {n} a person, {t} a topic, {k} a number. The second text is the query to search for.
_MEMORY_ASKS = (
    ("what did {n} say about the {t}?", "{n} {t}"), ("what did {n} say about the {t}?", "{n} {t}"),
    ("what did {n} tell me about the {t}?", "{n} {t}"), ("what did {n} say about her {t}?", "{n} {t}"),
    ("do you remember what {n} said about the {t}?", "{n} {t}"),
    ("remind me what {n} said about the {t}", "{n} {t}"),
    ("did {n} say anything about the {t}?", "{n} {t}"),
    ("what did {n} mention about the {t}?", "{n} {t}"),
    ("what was it that {n} said about the {t}?", "{n} {t}"),
    ("tell me what {n} said about the {t}", "{n} {t}"),
    ("can you recall what {n} said about the {t}?", "{n} {t}"),
    ("what does {n} think about the {t}?", "{n} {t}"),
    ("when is {n}'s {t}?", "{n} {t}"), ("where is {n}'s {t}?", "{n} {t}"),
    ("what did {n} decide about the {t}?", "{n} {t}"), ("what did {n} say about {t}?", "{n} {t}"),
    ("what do you remember about {n}?", "{n}"), ("what did {n} say?", "{n}"),
    ("what did I say about the {t}?", "{t}"), ("what did we decide about the {t}?", "{t}"),
    ("what do you remember about the {t}?", "{t}"), ("when is my {t}?", "{t}"),
    ("search my memory for the {t}", "{t}"), ("what have I told you about the {t}?", "{t}"),
    ("look in your memory for {n} and the {t}", "{n} {t}"),
)  # fmt: skip
_MEMORY_LIMITED = (
    ("give me the last {k} things {n} said about the {t}", "{n} {t}"),
    ("what are the {k} latest things {n} said about the {t}?", "{n} {t}"),
    ("find {k} memories about the {t}", "{t}"), ("show me {k} memories about {n}", "{n}"),
    ("search for the {k} last notes on the {t}", "{t}"),
)  # fmt: skip
_WEB_ASKS = (
    ("what's the latest news on {s}?", "{b} news"), ("what is the latest news on {s}?", "{b} news"),
    ("what's the latest on {s}?", "{b} news"), ("any news about {s}?", "{b} news"),
    ("what's the news on {s}?", "{b} news"), ("what is the latest news about {s}?", "{b} news"),
    ("what's new with {s}?", "{b} news"), ("what's happening with {s}?", "{b} news"),
    ("find me the latest on {s}", "{b} news"), ("is there any news on {s} today?", "{b} news"),
    ("can you check the news about {s}?", "{b} news"), ("latest news on {s}", "{b} news"),
    ("give me the news about {s}", "{b} news"), ("what's going on with {s}?", "{b} news"),
    ("tell me the latest about {s}", "{b} news"), ("{s} news", "{b} news"),
    ("search the web for {s}", "{b}"), ("look up {s} online", "{b}"), ("look up {s}", "{b}"),
    ("search for {s}", "{b}"), ("google {s}", "{b}"), ("can you search the web for {s}?", "{b}"),
    ("find {s} on the web", "{b}"), ("look on the internet for {s}", "{b}"),
)  # fmt: skip
_WEB_LIMITED = (
    ("find the {k} latest stories on {s}", "{b} news"), ("give me {k} news stories about {s}", "{b} news"),
    ("search the web for {s} and show {k} results", "{b}"), ("find {k} results for {s}", "{b}"),
)  # fmt: skip

_LEADS = ("", "", "", "I found this. ", "Here is what I found. ")
_NO_MEMORY = (
    "I can't look into my memory right now, sorry.",
    "I don't have my memory at hand right now, sorry.",
)
NO_WEB = ("I can't search the web right now, sorry.", "I can't look that up right now, sorry.")
_EMPTY = ("I found nothing about that, sorry.", "I looked, but I found nothing about that.")
FAILED = ("Sorry, that did not work just now.", "That didn't work, sorry. Please try again later.")


def _searched(
    rng: random.Random,
    kind: str,
    user: str,
    call: Call,
    thought: str,
    about: str,
    lines: Callable[[], str],
) -> Exchange:
    """A search, its result in some shape, and the answer: the found words, or that there are none."""
    calls, roll = (call,), rng.random()
    if roll < 0.12:
        answer, after = rng.choice(_EMPTY), "The search found nothing."
        return Exchange(
            kind, user, answer, thought, ("nothing",), calls, (rng.choice(NOTHING),), after, about
        )
    if roll < 0.16:
        answer, after = rng.choice(FAILED), "The search failed."
        return Exchange(kind, user, answer, thought, (), calls, (rng.choice(BROKEN),), after, about)
    lines = (lambda: noise_line(rng)) if rng.random() < 0.3 else lines
    found = [lines() for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3)))]
    told = found[:2]  # two sentences are enough for a voice
    answer = rng.choice(_LEADS) + " ".join(told)
    return Exchange(kind, user, answer, thought, tuple(told), calls, (shaped(rng, found),),
                    "The result answers it.", about)  # fmt: skip


def memory(rng: random.Random, split: Split, kit: Kit) -> Exchange:
    """What somebody said: `search_memory`."""
    v, tool = voice(rng), kit.get("search_memory")
    name = v.word(pick(rng, NAMES, split, 0.4))
    topic = v.word(pick(rng, TOPICS, split)) if rng.random() < 0.6 else v.word(made_topic(rng))
    limited = bool(tool and "limit" in tool.params and rng.random() < 0.35)
    ask, query = rng.choice(_MEMORY_LIMITED if limited else _MEMORY_ASKS)
    k = rng.randint(2, 9)
    user = v.prompt(ask.format(n=name, t=topic, k=k))
    if tool is None:
        return Exchange("memory_without", user, rng.choice(_NO_MEMORY), "I have no memory tool here.")
    about = query.format(n=name, t=topic)
    arguments = tool.arguments(query=about, limit=k) if limited else tool.arguments(query=about)
    person = name if "{n}" in query else None
    thing = topic if "{t}" in query else pick(rng, TOPICS, split)
    return _searched(rng, "memory", user, Call(tool.name, arguments),
                     f"I should search memory for {about}.", person or "",
                     lambda: _capital(memory_line(rng, person, thing, split)))  # fmt: skip


def made_topic(rng: random.Random) -> str:
    """A topic that is on no list."""
    return rng.choice(
        (coin(rng).lower(), rng.choice(EVERYDAY), f"{rng.choice(EVERYDAY)} {rng.choice(EVERYDAY)}")
    )


def web(rng: random.Random, split: Split, kit: Kit) -> Exchange:
    """News and searches: `web_search`."""
    v, tool = voice(rng), kit.get("web_search")
    subject = v.word(pick(rng, SUBJECTS, split, 0.3) if rng.random() < 0.75 else made_topic(rng))
    limited = bool(tool and "limit" in tool.params and rng.random() < 0.35)
    ask, query = rng.choice(_WEB_LIMITED if limited else _WEB_ASKS)
    k = rng.randint(2, 9)
    user = v.prompt(ask.format(s=subject, k=k))
    if tool is None:
        return Exchange("web_without", user, rng.choice(NO_WEB), "I have no web search here.")
    bare = subject.removeprefix("the ")
    about = query.format(b=bare)
    arguments = tool.arguments(query=about, limit=k) if limited else tool.arguments(query=about)
    return _searched(rng, "web", user, Call(tool.name, arguments),
                     f"I should search the web for {about}.", bare,
                     lambda: _capital(news_line(rng, bare, split)))  # fmt: skip


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
