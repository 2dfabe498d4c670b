"""Scenes in the house: timers, lights, music, reminders, the weather and the clock. Pure and seeded."""

from __future__ import annotations

import json
import random

from quantizer.experiments.nano.conversation import Call, Exchange, Kit
from quantizer.experiments.nano.results import BROKEN, DONE, shaped
from quantizer.experiments.nano.say import Voice, voice
from quantizer.experiments.nano.tool_scenes import FAILED, NO_WEB, made_topic
from quantizer.experiments.nano.words import ARTISTS, CHORES, CITIES, DAYS, NAMES, ROOMS, Split, pick

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
    return (
        ask.format(t=task, d=day),
        {"text": task, "day": day},
        f"I will remind you to {task} on {day}.",
    )


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


def device(rng: random.Random, split: Split, kit: Kit) -> Exchange:
    """A thing in the house is set: typed arguments, a result that only says yes or no."""
    keys = [key for key in _DEVICES if key in kit]
    v = voice(rng)
    key = rng.choice(keys or list(_DEVICES))
    plain, roles, done = _DEVICES[key](rng, v, split)
    user = v.prompt(plain)
    if key not in kit:
        return Exchange("device_without", user, rng.choice(_NO_DEVICE), "I have no tool for that.")
    tool = kit[key]
    call = Call(tool.name, tool.arguments(**roles))
    thought = f"I should call {tool.name}."
    if rng.random() < 0.12:
        return Exchange("device", user, rng.choice(FAILED), thought, (), (call,), (rng.choice(BROKEN),),
                        "It did not work.")  # fmt: skip
    return Exchange(
        "device",
        user,
        done[0].upper() + done[1:],
        thought,
        (done[1:],),
        (call,),
        (rng.choice(DONE),),
        "It worked.",
    )


def report(rng: random.Random, split: Split, kit: Kit) -> Exchange:
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
        return Exchange("device_without", user, rng.choice(NO_WEB), "I have no tool for that.")
    tool = kit[key]
    arguments = tool.arguments() if key == "get_date" else tool.arguments(city=city)
    if "unit" in tool.params and rng.random() < 0.4:
        unit = rng.choice(("celsius", "fahrenheit"))
        user = v.prompt(rng.choice(asks[:4]).format(c=city).rstrip("?") + f" in {unit}?")
        arguments = tool.arguments(city=city, unit=unit)
    result, answer = {"get_weather": _weather, "get_time": _clock, "get_date": _date}[key](rng, city)
    return Exchange("report", user, answer, f"I should call {tool.name}.", (answer,), (Call(tool.name, arguments),),
                    (result,), "The result answers it.")  # fmt: skip


def _weather_online(rng: random.Random, kit: Kit, user: str, city: str) -> Exchange:
    """Weather from a web search, where there is no weather tool."""
    tool = kit["web_search"]
    _, answer = _weather(rng, city)
    call = Call(tool.name, tool.arguments(query=f"{city} weather"))
    return Exchange("web", user, answer, f"I should search the web for {city} weather.", (answer,), (call,),
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
