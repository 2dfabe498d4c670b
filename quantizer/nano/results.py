"""What tools give back: sentences about people and news, and the shapes in which they come."""

from __future__ import annotations

import json
import random

from quantizer.nano.words import CHORES, CITIES, DAYS, MONTHS, NAMES, SUBJECTS, TOPICS, Split, coin, pick

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

# Words for sentences without sense: they can only be repeated by copying them.
_ANY_WORDS = tuple(
    " ".join([*CHORES, *TOPICS, *SUBJECTS, *NAMES, *CITIES, *DAYS]).split()
) + tuple("the a is was has and with near after before not very from into they she he will in at to of".split()) * 8

NOTHING = ("[]", '{"results": []}', "No results found.", "", "null", "No results", '{"results": [], "total": 0}')
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
    )


def memory_line(rng: random.Random, name: str | None, topic: str, split: Split) -> str:
    """A remembered sentence with its full stop."""
    return _fill(rng, rng.choice(_MEMORY), topic, split, name) + "."


def news_line(rng: random.Random, topic: str, split: Split) -> str:
    """A news sentence with its full stop."""
    text = _fill(rng, rng.choice(_NEWS), topic, split, None)
    return text[0].upper() + text[1:] + "."


def noise_line(rng: random.Random) -> str:
    """A sentence of words in no order, with its full stop; what a tool finds can be anything."""
    words = [rng.choice(_ANY_WORDS) if rng.random() < 0.85 else _odd(rng) for _ in range(rng.randint(3, 11))]
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."


def _odd(rng: random.Random) -> str:
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
