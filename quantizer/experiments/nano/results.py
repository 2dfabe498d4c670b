"""What tools give back: sentences about people and news, and the shapes in which they come."""

from __future__ import annotations

import json
import random

from quantizer.experiments.nano.words import (
    CHORES,
    CITIES,
    DAYS,
    EVERYDAY,
    MONTHS,
    NAMES,
    SUBJECTS,
    TOPICS,
    Split,
    coin,
    is_held_out,
    pick,
)

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
DONE = (
    '{"ok": true}',
    '{"status": "ok"}',
    "ok",
    "done",
    '{"success": true}',
    "OK",
    '{"result": "ok"}',
)
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
