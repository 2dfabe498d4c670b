"""Scenes with tools: memory, the web, devices and reports in the house, and made-up tools; and the results of
tools.

Everything is deterministic for a given generator state, as in `scenes`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from quantizer.experiments.nano.conversation import DialogueTurn, ExpectedToolCall, Kit
from quantizer.experiments.nano.tools import ToolVariant
from quantizer.experiments.nano.vocabulary import (
    ARTISTS,
    CHORES,
    CITIES,
    DAYS,
    EVERYDAY,
    MONTHS,
    NAMES,
    ROOMS,
    SUBJECTS,
    TOPICS,
    Split,
    Voice,
    coin,
    is_held_out,
    pick,
    voice,
)

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
    call: ExpectedToolCall,
    thought: str,
    about: str,
    lines: Callable[[], str],
) -> DialogueTurn:
    """A search, its result in some shape, and the answer: the found words, or that there are none."""
    calls, roll = (call,), rng.random()
    if roll < 0.12:
        answer, after = rng.choice(_EMPTY), "The search found nothing."
        return DialogueTurn(
            kind, user, answer, thought, ("nothing",), calls, (rng.choice(NOTHING),), after, about
        )
    if roll < 0.16:
        answer, after = rng.choice(FAILED), "The search failed."
        return DialogueTurn(kind, user, answer, thought, (), calls, (rng.choice(BROKEN),), after, about)
    lines = (lambda: noise_line(rng)) if rng.random() < 0.3 else lines
    found = [lines() for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3)))]
    spoken = found[:2]  # two sentences are enough for a voice
    answer = rng.choice(_LEADS) + " ".join(spoken)
    return DialogueTurn(kind, user, answer, thought, tuple(spoken), calls, (shaped(rng, found),),
                    "The result answers it.", about)  # fmt: skip


def memory(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """What somebody said: `search_memory`."""
    v, tool = voice(rng), kit.get("search_memory")
    name = v.word(pick(rng, NAMES, split, 0.4))
    topic = v.word(pick(rng, TOPICS, split)) if rng.random() < 0.6 else v.word(made_topic(rng))
    limited = bool(tool and "limit" in tool.params and rng.random() < 0.35)
    ask, query = rng.choice(_MEMORY_LIMITED if limited else _MEMORY_ASKS)
    k = rng.randint(2, 9)
    user = v.prompt(ask.format(n=name, t=topic, k=k))
    if tool is None:
        return DialogueTurn("memory_without", user, rng.choice(_NO_MEMORY), "I have no memory tool here.")
    about = query.format(n=name, t=topic)
    arguments = tool.arguments(query=about, limit=k) if limited else tool.arguments(query=about)
    person = name if "{n}" in query else None
    thing = topic if "{t}" in query else pick(rng, TOPICS, split)
    return _searched(rng, "memory", user, ExpectedToolCall(tool.name, arguments),
                     f"I should search memory for {about}.", person or "",
                     lambda: _capital(memory_line(rng, person, thing, split)))  # fmt: skip


def made_topic(rng: random.Random) -> str:
    """A topic that is on no list."""
    return rng.choice(
        (coin(rng).lower(), rng.choice(EVERYDAY), f"{rng.choice(EVERYDAY)} {rng.choice(EVERYDAY)}")
    )


def web(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """News and searches: `web_search`."""
    v, tool = voice(rng), kit.get("web_search")
    subject = v.word(pick(rng, SUBJECTS, split, 0.3) if rng.random() < 0.75 else made_topic(rng))
    limited = bool(tool and "limit" in tool.params and rng.random() < 0.35)
    ask, query = rng.choice(_WEB_LIMITED if limited else _WEB_ASKS)
    k = rng.randint(2, 9)
    user = v.prompt(ask.format(s=subject, k=k))
    if tool is None:
        return DialogueTurn("web_without", user, rng.choice(NO_WEB), "I have no web search here.")
    bare = subject.removeprefix("the ")
    about = query.format(b=bare)
    arguments = tool.arguments(query=about, limit=k) if limited else tool.arguments(query=about)
    return _searched(rng, "web", user, ExpectedToolCall(tool.name, arguments),
                     f"I should search the web for {about}.", bare,
                     lambda: _capital(news_line(rng, bare, split)))  # fmt: skip


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


_MEMORY = (
    "{name} said the {topic} is on {day}", "{name} said the {topic} was moved to {month}",
    "{name} wants to talk about the {topic} on {day}", "{name} was happy about the {topic}",
    "{name} said the {topic} costs {n} rupees", "{name} is worried about the {topic}",
    "{name} said the {topic} will be in {city}", "{name} asked {other} to help with the {topic}",
    "{name} finished the {topic} on {day}", "{name} said the {topic} starts at {hour} o'clock",
    "{name} does not want the {topic} any more", "{name} and {other} planned the {topic} together",
    "{name} said that the {topic} was cancelled", "The {topic} with {name} is on {day}",
    "{name} said the {topic} needs {n} more days", "{name} forgot about the {topic}",
    "{name} wants {other} to come to {city} for the {topic}", "{name} loved the {topic}",
)  # fmt: skip
_NEWS = (
    "{topic} made headlines in {city} on {day}", "Experts in {city} expect more from {topic} in {month}",
    "{topic} reached a new record of {n} this week", "A report on {topic} came out on {day}",
    "{name} spoke about {topic} in {city}", "{topic} will be discussed in {city} next {day}",
    "People in {city} are excited about {topic}", "{topic} rose by {n} percent in {month}",
    "{topic} fell by {n} percent in {month}", "New rules for {topic} start in {month}",
    "The {city} office confirmed news about {topic}", "{topic} is back after {n} years",
    "{name} won a prize for work on {topic}", "A new {coined} centre for {topic} opened in {city}",
)  # fmt: skip

# Words for meaningless sentences, which a model can only repeat by copying.
_ANY_WORDS = tuple(
    word
    for phrase in (*CHORES, *TOPICS, *SUBJECTS, *NAMES, *CITIES, *DAYS)
    if not is_held_out(phrase)
    for word in phrase.split()
)
_SMALL_WORDS = str.split(
    "the a is was has and with near after before not very from into they she he will in at to of for on "
    "by about until since six seven nine ten early late new old big small good bad because but so then"
)
_ENDINGS = (
    "at {word}", "in the morning", "with {name}", "because of the {word}", "and she is happy about it",
    "but {name} is not sure", "next to the {word}", "before {hour}", "until {day}", "at six", "so bring a {word}",
    "from {city}", "for {n} people", "in the evening", "after the {word}", "and it costs {n} rupees", "at noon",
    "which is early", "near the {word}", "by train", "by bus", "again", "around {hour}", "as planned",
    "and {name} will drive", "if it does not rain", "with the whole family", "for the first time", "in {month}",
)  # fmt: skip

NOTHING = (
    "[]",
    '{"results": []}',
    "No results found.",
    "",
    "null",
    "No results",
    '{"results": [], "total": 0}',
)
DONE = ('{"ok": true}', '{"status": "ok"}', "ok", "done", '{"success": true}', "OK", '{"result": "ok"}')
BROKEN = (
    '{"error": "timeout"}', "Error: device is offline", '{"ok": false}', "error: not reachable",
    '{"error": "not found"}', "Error: request failed",
)  # fmt: skip


def _fill(rng: random.Random, pattern: str, topic: str, split: Split, name: str | None) -> str:
    return pattern.format(
        topic=topic,
        name=name or pick(rng, NAMES, split, 0.15),
        other=pick(rng, NAMES, split, 0.15),
        day=rng.choice(DAYS),
        month=rng.choice(MONTHS),
        city=pick(rng, CITIES, split, 0.15),
        n=rng.randint(2, 999),
        hour=rng.randint(1, 12),
        coined=coin(rng),
        word=pick(rng, TOPICS, split, 0.3).lower(),
    )


def _ended(rng: random.Random, text: str, split: Split) -> str:
    """A sentence with up to two more turns to it, and its full stop."""
    extra = rng.choice((0, 0, 1, 1, 2))
    endings = [_fill(rng, ending, "", split, None) for ending in rng.sample(_ENDINGS, extra)]
    text = " ".join([text, *endings])
    return text[0].upper() + text[1:] + "."


def memory_line(rng: random.Random, name: str | None, topic: str, split: Split) -> str:
    """A remembered sentence with its full stop."""
    return _ended(rng, _fill(rng, rng.choice(_MEMORY), topic, split, name), split)


def news_line(rng: random.Random, topic: str, split: Split) -> str:
    """A news sentence with its full stop."""
    return _ended(rng, _fill(rng, rng.choice(_NEWS), topic, split, None), split)


def noise_line(rng: random.Random) -> str:
    """A sentence of words in no order, with its full stop; what a tool finds can be anything."""
    text = " ".join(_noise_word(rng) for _ in range(rng.randint(3, 12)))
    return text[0].upper() + text[1:] + "."


def _noise_word(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.4:
        return rng.choice(_SMALL_WORDS)
    if roll < 0.55:
        return rng.choice(EVERYDAY)
    if roll < 0.8:
        return rng.choice(_ANY_WORDS)
    return rng.choice((str(rng.randint(0, 9999)), coin(rng), coin(rng).lower(), f"{rng.randint(1, 12)}:30"))


def shaped(rng: random.Random, lines: list[str]) -> str:
    """Sentences in one of the shapes that tools answer in."""
    shape = rng.randrange(8)
    if shape < 3:
        return " ".join(lines)
    if shape == 3:
        return json.dumps(lines, ensure_ascii=False)
    if shape == 4:
        return "\n".join(f"- {line}" for line in lines)
    field = rng.choice(("text", "text", "content", "snippet", "memory"))
    items = [_item(rng, field, line) for line in lines]
    if shape == 5:
        return json.dumps(items, ensure_ascii=False)
    return json.dumps({rng.choice(("results", "results", "memories", "items")): items}, ensure_ascii=False)


def _item(rng: random.Random, field: str, line: str) -> dict[str, object]:
    item: dict[str, object] = {field: line}
    if rng.random() < 0.3:
        item["date"] = f"2026-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    if rng.random() < 0.2:
        item["score"] = rng.randint(50, 99) / 100
    if rng.random() < 0.15:
        item = {"title": coin(rng) + " " + coin(rng).lower(), **item}
    return item


_NO_DEVICE = ("I can't do that right now, sorry.", "I have no way to do that right now, sorry.")

_NUMBERS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30,
}  # fmt: skip


def _number(rng: random.Random, top: int) -> tuple[str, int]:
    """A number as it is said, and its value."""
    if rng.random() < 0.25:
        word = rng.choice(list(_NUMBERS))
        if _NUMBERS[word] <= top:
            return word, _NUMBERS[word]
    n = rng.randint(2, top)
    return str(n), n


def _timer(rng: random.Random, v: Voice, split: Split) -> tuple[str, dict[str, object], str]:
    said, n = _number(rng, 90)
    ask = rng.choice(("set a timer for {m} minutes", "set a {m} minute timer", "start a timer for {m} minutes",
                      "timer for {m} minutes", "can you set a timer for {m} minutes?", "wake me in {m} minutes",
                      "count down {m} minutes", "I need a timer of {m} minutes"))  # fmt: skip
    return ask.format(m=said), {"minutes": n}, f"The timer is set for {n} minutes."


def _light(rng: random.Random, v: Voice, split: Split) -> tuple[str, dict[str, object], str]:
    on, room = rng.random() < 0.5, rng.choice(ROOMS)
    ask = rng.choice(("turn {s} the light in the {r}", "turn {s} the {r} light", "switch {s} the {r} light",
                      "{r} light {s}", "switch the light in the {r} {s}", "can you turn {s} the {r} light?",
                      "turn the {r} light {s}"))  # fmt: skip
    state = "on" if on else "off"
    return ask.format(s=state, r=room), {"on": on, "room": room}, f"The {room} light is {state}."


def _volume(rng: random.Random, v: Voice, split: Split) -> tuple[str, dict[str, object], str]:
    said, n = _number(rng, 100)
    ask = rng.choice(
        ("set the volume to {n}", "volume {n}", "put the volume at {n}", "change the volume to {n}")
    )
    return ask.format(n=said), {"level": n}, f"The volume is at {n}."


def _reminder(rng: random.Random, v: Voice, split: Split) -> tuple[str, dict[str, object], str]:
    task, day = pick(rng, CHORES, split), v.word(rng.choice(DAYS))
    if rng.random() < 0.3:
        task = f"{task.split()[0]} the {made_topic(rng)}"
    if rng.random() < 0.3:
        task = v.word(f"call {pick(rng, NAMES, split, 0.3)}")
    ask = rng.choice(("remind me to {t} on {d}", "remind me on {d} to {t}", "add a reminder to {t} on {d}",
                      "can you remind me to {t} on {d}?", "set a reminder for {d} to {t}"))  # fmt: skip
    return (ask.format(t=task, d=day), {"text": task, "day": day}, f"I will remind you to {task} on {day}.")


def _music(rng: random.Random, v: Voice, split: Split) -> tuple[str, dict[str, object], str]:
    artist = v.word(pick(rng, ARTISTS, split, 0.5))
    ask = rng.choice(("play {a}", "play some {a}", "play music by {a}", "put on some {a}", "I want to hear {a}",
                      "play songs by {a}"))  # fmt: skip
    return ask.format(a=artist), {"artist": artist}, f"Playing {artist} now."


def _temperature(rng: random.Random, v: Voice, split: Split) -> tuple[str, dict[str, object], str]:
    n = rng.randint(15, 30) + rng.choice((0, 0, 0.5))
    ask = rng.choice(("set the temperature to {n} degrees", "make it {n} degrees", "heat to {n} degrees",
                      "set the heating to {n}", "put the thermostat at {n}"))  # fmt: skip
    return ask.format(n=n), {"degrees": n}, f"The temperature is set to {n} degrees."


_DEVICES = {
    "set_timer": _timer, "set_light": _light, "set_volume": _volume, "add_reminder": _reminder,
    "play_music": _music, "set_temperature": _temperature,
}  # fmt: skip


def device(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """A thing in the house is set: typed arguments, a result that only says yes or no."""
    keys = [key for key in _DEVICES if key in kit]
    v = voice(rng)
    key = rng.choice(keys or list(_DEVICES))
    plain, roles, done = _DEVICES[key](rng, v, split)
    user = v.prompt(plain)
    if key not in kit:
        return DialogueTurn("device_without", user, rng.choice(_NO_DEVICE), "I have no tool for that.")
    tool = kit[key]
    call = ExpectedToolCall(tool.name, tool.arguments(**roles))
    thought = f"I should call {tool.name}."
    if rng.random() < 0.12:
        return DialogueTurn("device", user, rng.choice(FAILED), thought, (), (call,), (rng.choice(BROKEN),),
                        "It did not work.")  # fmt: skip
    return DialogueTurn(
        "device",
        user,
        done[0].upper() + done[1:],
        thought,
        (done[1:],),
        (call,),
        (rng.choice(DONE),),
        "It worked.",
    )


def report(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """Weather, the time somewhere, the date: small facts that only a tool can know."""
    v = voice(rng)
    key = rng.choice(
        [k for k in ("get_weather", "get_weather", "get_time", "get_date") if k in kit] or ["get_weather"]
    )
    city = v.word(pick(rng, CITIES, split, 0.4))
    asks = {
        "get_weather": ("what's the weather in {c}?", "what is the weather like in {c}?", "how is the weather in {c}?",
                        "weather in {c}", "is it raining in {c}?", "how warm is it in {c}?", "{c} weather",
                        "what's the weather in {c} today?", "tell me the weather in {c}"),
        "get_time": ("what time is it in {c}?", "what's the time in {c}?", "tell me the time in {c}", "time in {c}"),
        "get_date": ("what is the date today?", "what day is it today?", "what's today's date?", "tell me the date",
                     "which day is it?", "what date is it?"),
    }[key]  # fmt: skip
    user = v.prompt(rng.choice(asks).format(c=city))
    if key == "get_weather" and key not in kit and "web_search" in kit:
        return _weather_online(rng, kit, user, city)
    if key not in kit:
        return DialogueTurn("device_without", user, rng.choice(NO_WEB), "I have no tool for that.")
    tool = kit[key]
    arguments = tool.arguments() if key == "get_date" else tool.arguments(city=city)
    if "unit" in tool.params and rng.random() < 0.4:
        unit = rng.choice(("celsius", "fahrenheit"))
        user = v.prompt(rng.choice(asks[:4]).format(c=city).rstrip("?") + f" in {unit}?")
        arguments = tool.arguments(city=city, unit=unit)
    result, answer = {"get_weather": _weather, "get_time": _clock, "get_date": _date}[key](rng, city)
    return DialogueTurn("report", user, answer, f"I should call {tool.name}.", (answer,), (ExpectedToolCall(tool.name, arguments),),
                    (result,), "The result answers it.")  # fmt: skip


def _weather_online(rng: random.Random, kit: Kit, user: str, city: str) -> DialogueTurn:
    """Weather from a web search, where there is no weather tool."""
    tool = kit["web_search"]
    _, answer = _weather(rng, city)
    call = ExpectedToolCall(tool.name, tool.arguments(query=f"{city} weather"))
    return DialogueTurn("web", user, answer, f"I should search the web for {city} weather.", (answer,), (call,),
                    (shaped(rng, [answer]),), "The result answers it.", city)  # fmt: skip


def _weather(rng: random.Random, city: str) -> tuple[str, str]:
    n, sky = (
        rng.randint(-9, 42),
        rng.choice(["sunny", "cloudy", "rainy", "windy", "foggy", "clear", "stormy", "humid"]),
    )
    answer = f"It is {n} degrees and {sky} in {city}."
    shapes = (
        json.dumps({"temperature": n, "condition": sky}), json.dumps({"temp": n, "sky": sky}), answer,
        json.dumps({"city": city, "temperature": n, "condition": sky}, ensure_ascii=False),
        f"{n} degrees, {sky}", f"{sky}, {n}°C", json.dumps({"temperature": n, "conditions": sky, "unit": "celsius"}),
    )  # fmt: skip
    return rng.choice(shapes), answer


def _clock(rng: random.Random, city: str) -> tuple[str, str]:
    clock = f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}"
    shapes = (
        clock,
        json.dumps({"time": clock}),
        json.dumps({"city": city, "time": clock}, ensure_ascii=False),
    )
    return rng.choice(shapes), f"It is {clock} in {city}."


def _date(rng: random.Random, city: str) -> tuple[str, str]:
    day = rng.choice(DAYS)
    shapes = (day, json.dumps({"day": day}), json.dumps({"weekday": day}), f"Today is {day}.")
    return rng.choice(shapes), f"Today is {day}."


_VERBS = (
    "find",
    "get",
    "check",
    "open",
    "show",
    "start",
    "order",
    "book",
    "track",
    "read",
    "fetch",
    "update",
)
_NOUNS = ("recipe", "ticket", "parcel", "taxi", "stock", "score", "song", "map", "train", "file", "note", "user",
          "invoice", "room", "table", "product", "route", "account", "flight", "bus", "shop", "poem", "photo")  # fmt: skip
_TEXT_PARAMS = ("name", "title", "id", "code", "place", "symbol", "key", "topic", "person", "city")
_NUMBER_PARAMS = ("number", "id", "amount", "size", "code")
_ASKS = ("{v} the {n} {x}", "{v} {n} {x}", "can you {v} the {n} {x}?", "please {v} the {n} {x}", "{v} the {n} for {x}",
         "{v} a {n} for {x}", "I want to {v} the {n} {x}", "could you {v} a {n} for {x}?")  # fmt: skip
_GET_ASKS = ("what is the {n} for {x}?", "what is the {n} of {x}?", "what's the {n} of {x}?", "give me the {n} of {x}",
             "tell me the {n} of {x}")  # fmt: skip


def general(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """A wish that a made-up tool in the kit fulfils; without one in the kit, Annie says she cannot."""
    made = [tool for key, tool in kit.items() if key.startswith("general")]
    tool = rng.choice(made) if made else make_general(rng, "general")
    verb, noun = tool.key.split()[1:]
    v = voice(rng)
    number = tool.params.get("number") is not None
    value = rng.randint(2, 9999) if number else v.word(_value(rng, split))
    asks = _ASKS + _GET_ASKS if verb in ("get", "find", "check", "fetch") else _ASKS
    user = v.prompt(rng.choice(asks).format(v=verb, n=noun, x=value))
    if not made:
        return DialogueTurn(
            "device_without", user, "I can't do that right now, sorry.", "I have no tool for that."
        )
    roles = {"number": value} if number else {"text": value}
    call, thought = ExpectedToolCall(tool.name, tool.arguments(**roles)), f"I should call {tool.name}."
    if rng.random() < 0.3:
        return DialogueTurn(
            "general", user, "That is done.", thought, ("done",), (call,), (rng.choice(DONE),), "It worked."
        )
    line = noise_line(rng)
    result = rng.choice((line, json.dumps({"result": line}), json.dumps({noun: line}), json.dumps([line])))
    return DialogueTurn("general", user, line, thought, (line,), (call,), (result,), "The result answers it.")


def _value(rng: random.Random, split: Split) -> str:
    roll = rng.random()
    if roll < 0.3:
        return pick(rng, NAMES, split, 0.3)
    if roll < 0.5:
        return pick(rng, CITIES, split, 0.3)
    if roll < 0.7:
        return pick(rng, TOPICS, split, 0.3)
    if roll < 0.85:
        return f"{coin(rng)[:2].upper()}{rng.randint(1, 99)}"
    return f"{coin(rng)} {coin(rng)}"


def make_general(rng: random.Random, key: str) -> ToolVariant:
    """A made-up tool. Its key tells its verb and noun, for the asking."""
    verb, noun = rng.choice(_VERBS), rng.choice(_NOUNS)
    number = rng.random() < 0.3
    role, param = ("number", rng.choice(_NUMBER_PARAMS)) if number else ("text", rng.choice(_TEXT_PARAMS))
    if rng.random() < 0.3:
        param = f"{noun}_{param}"
    kind = {"type": "integer" if number else "string"}
    if rng.random() < 0.4:
        kind["description"] = f"The {noun}'s {param.removeprefix(noun + '_')}"
    function = {
        "name": f"{verb}_{noun}",
        "description": rng.choice(
            (f"{verb.capitalize()} a {noun}.", f"{verb.capitalize()} the {noun}.", "A tool.")
        ),
        "parameters": {"type": "object", "properties": {param: kind}, "required": [param]},
    }
    schema = {"type": "function", "function": function}
    return ToolVariant(f"{key} {verb} {noun}", f"{verb}_{noun}", {role: param}, schema)
