"""Made-up tools: a verb, a noun and one parameter, so that a model learns to read a schema.

A caller may send any tool. These are drawn anew each time (`find_recipe`, `check_parcel`, ...), with
names, parameters and values that are seldom seen twice.
"""

from __future__ import annotations

import json
import random

from quantizer.experiments.nano.conversation import Call, Exchange, Kit
from quantizer.experiments.nano.results import DONE, noise_line
from quantizer.experiments.nano.say import voice
from quantizer.experiments.nano.tools import Tool
from quantizer.experiments.nano.words import CITIES, NAMES, TOPICS, Split, coin, pick

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


def general(rng: random.Random, split: Split, kit: Kit) -> Exchange:
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
        return Exchange(
            "device_without", user, "I can't do that right now, sorry.", "I have no tool for that."
        )
    roles = {"number": value} if number else {"text": value}
    call, thought = Call(tool.name, tool.arguments(**roles)), f"I should call {tool.name}."
    if rng.random() < 0.3:
        return Exchange(
            "general",
            user,
            "That is done.",
            thought,
            ("done",),
            (call,),
            (rng.choice(DONE),),
            "It worked.",
        )
    line = noise_line(rng)
    result = rng.choice((line, json.dumps({"result": line}), json.dumps({noun: line}), json.dumps([line])))
    return Exchange("general", user, line, thought, (line,), (call,), (result,), "The result answers it.")


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


def make_general(rng: random.Random, key: str) -> Tool:
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
    return Tool(f"{key} {verb} {noun}", f"{verb}_{noun}", {role: param}, schema)
