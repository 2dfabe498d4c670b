"""The tools that dialogues offer: JSON schemas in many wordings, all with the same meaning.

Callers word their tools differently, so wordings, parameter names, the order of parameters and the presence of
optional ones are drawn anew for each dialogue; a model must read the schema it is given. Roles ("query", "limit",
...) say what a parameter is for, whatever its name.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """A parameter: its possible names, JSON type, possible descriptions, and the probability that it is present."""

    role: str
    names: tuple[str, ...]
    type: str
    texts: tuple[str, ...]
    chance: float = 1.0
    enum: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolVariant:
    """A tool as offered in one dialogue. params: from a role to the parameter's name in this variant."""

    key: str
    name: str
    params: dict[str, str]
    schema: dict[str, Any]

    def arguments(self, **by_role: object) -> dict[str, object]:
        """Arguments by role to arguments by name, in the schema's order; absent roles are dropped.

        The order matters: llama.cpp's grammar for a call follows the order of the properties.
        """
        given = {self.params[role]: v for role, v in by_role.items() if role in self.params}
        return {name: given[name] for name in self.params.values() if name in given}


_QUERY = ToolParameter("query", ("query",) * 6 + ("q", "text", "question"), "string",
    ("What to search for", "The search query", "Search terms", "Words to look for"))  # fmt: skip
_LIMIT = ToolParameter("limit", ("limit", "limit", "max_results", "count", "top_k"), "integer",
    ("How many results to return", "Maximum number of results", "Number of results"), 0.4)  # fmt: skip
_CITY = ToolParameter("city", ("city", "city", "location", "place"), "string",
    ("City name", "The city", "Name of the city", "The city, e.g. Mysuru"))  # fmt: skip

# key: (names, descriptions, parameters)
SPECS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[ToolParameter, ...]]] = {
    "search_memory": (
        ("search_memory",) * 8 + ("memory_search", "recall_memory"),
        ("Search the user's memories and past conversations.",
         "Search Annie's memory for what people said.",
         "Find things that the user or other people said before.",
         "Look up past conversations, people and events."),
        (_QUERY, _LIMIT)),
    "web_search": (
        ("web_search",) * 8 + ("search_web", "internet_search"),
        ("Search the web for current information.", "Search the internet.",
         "Find news and facts on the web.", "Look up recent information online."),
        (_QUERY, _LIMIT)),
    "get_weather": (
        ("get_weather",) * 5 + ("weather", "get_current_weather"),
        ("Get the current weather for a city.", "Current weather in a place.", "Weather by city."),
        (_CITY, ToolParameter("unit", ("unit", "units"), "string", ("Temperature unit", "Unit"), 0.4,
                      ("celsius", "fahrenheit")))),
    "get_time": (
        ("get_time", "get_time", "local_time"),
        ("Get the local time in a city.", "Current time in a place."),
        (_CITY,)),
    "get_date": (
        ("get_date", "today"), ("Get today's date.", "Returns the current date."), ()),
    "set_timer": (
        ("set_timer",) * 4 + ("start_timer",),
        ("Set a timer.", "Start a countdown timer.", "Set a kitchen timer."),
        (ToolParameter("minutes", ("minutes", "minutes", "duration_minutes"), "integer",
               ("Minutes", "Length in minutes", "How long, in minutes")),
         ToolParameter("label", ("label", "name"), "string", ("What it is for", "Label"), 0.3))),
    "set_light": (
        ("set_light",) * 4 + ("switch_light",),
        ("Turn a light on or off.", "Switch the light in a room.", "Control a light."),
        (ToolParameter("on", ("on", "on", "turn_on"), "boolean", ("true is on", "Whether it is on")),
         ToolParameter("room", ("room",), "string", ("Room name", "Which room")))),
    "set_temperature": (
        ("set_temperature", "set_temperature", "set_thermostat"),
        ("Set the room temperature.", "Set the thermostat.", "Change the heating."),
        (ToolParameter("degrees", ("degrees", "temperature"), "number", ("Degrees Celsius", "Temperature")),)),
    "set_volume": (
        ("set_volume",), ("Set the speaker volume.", "Change the volume."),
        (ToolParameter("level", ("level", "volume"), "integer", ("0 to 100", "Volume from 0 to 100")),)),
    "add_reminder": (
        ("add_reminder",) * 3 + ("create_reminder",),
        ("Add a reminder.", "Remember a task for a day.", "Create a reminder for the user."),
        (ToolParameter("text", ("text", "text", "task"), "string", ("What to remember", "The task")),
         ToolParameter("day", ("day",), "string", ("Weekday", "Day of the week")))),
    "play_music": (
        ("play_music",) * 3 + ("play",),
        ("Play music by an artist.", "Start music.", "Play songs on the speaker."),
        (ToolParameter("artist", ("artist",), "string", ("Artist name", "Who to play")),)),
}  # fmt: skip

# Tools that are offered but never needed: name, description, one parameter and its type.
_STRANGERS = (
    ("send_email", "Send an email.", "to", "string"),
    ("calculator", "Evaluate an arithmetic expression.", "expression", "string"),
    ("translate", "Translate text to another language.", "text", "string"),
    ("get_stock_price", "Get the price of a share.", "symbol", "string"),
    ("lock_door", "Lock or unlock the front door.", "locked", "boolean"),
    ("book_taxi", "Book a taxi.", "destination", "string"),
    ("take_photo", "Take a photo with the camera.", "zoom", "number"),
    ("read_calendar", "Read the user's calendar.", "day", "string"),
    ("set_alarm", "Set an alarm.", "hour", "number"),
    ("run_code", "Run a program.", "code", "string"),
)


def make_tool(rng: random.Random, key: str) -> ToolVariant:
    names, texts, params = SPECS[key]
    present = [p for p in params if rng.random() < p.chance]
    if rng.random() < 0.15:
        rng.shuffle(present)
    named = [(rng.choice(p.names), p) for p in present]
    properties = {name: _property(rng, p) for name, p in named}
    required = [name for name, p in named if p.chance == 1.0]
    name = rng.choice(names)
    schema = _schema(rng, name, rng.choice(texts), properties, required)
    return ToolVariant(key, name, {p.role: n for n, p in named}, schema)


def stranger_tool(rng: random.Random) -> ToolVariant:
    """A tool that no dialogue needs."""
    name, text, param, kind = rng.choice(_STRANGERS)
    return ToolVariant(name, name, {}, _schema(rng, name, text, {param: {"type": kind}}, [param]))


def _property(rng: random.Random, param: ToolParameter) -> dict[str, Any]:
    out: dict[str, Any] = {"type": param.type}
    if param.enum:
        out["enum"] = list(param.enum)
    if rng.random() < 0.6:
        out["description"] = rng.choice(param.texts)
    return out


def _schema(
    rng: random.Random, name: str, text: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required and rng.random() < 0.9:
        parameters["required"] = required
    if rng.random() < 0.1:
        parameters["additionalProperties"] = False
    function: dict[str, Any] = {"name": name}
    if rng.random() < 0.95:
        function["description"] = text
    function["parameters"] = parameters
    return {"type": "function", "function": function}
