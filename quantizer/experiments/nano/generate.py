"""The dialogue generator: (seed, split, index) -> Dialogue. Deterministic.

It covers five categories: greetings, facts, memory tools, web tools, and dialogues of several turns. It also covers
cases without which a model would learn the wrong rule: tools that are offered but not needed, requests whose tool
is not offered, empty and failing results, typed arguments, two calls at once, and simple reasoning.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from quantizer.experiments.nano.conversation import Dialogue, DialogueTurn, Kit
from quantizer.experiments.nano.scenes import (
    OTHER_PROMPTS,
    VOICE_PROMPTS,
    fact,
    follow,
    greeting,
    named,
    nameless,
    reasoning,
    short_answer,
    two_step,
    unknown,
)
from quantizer.experiments.nano.tool_scenes import device, general, make_general, memory, report, web
from quantizer.experiments.nano.tools import SPECS, ToolVariant, make_tool, stranger_tool
from quantizer.experiments.nano.vocabulary import DAYS, Split, split_of

Scene = Callable[[random.Random, Split, Kit], DialogueTurn]


def parallel(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """Two requests in one message: two calls in one turn, two results, one answer."""
    first, second = (rng.choice(_TOOL_SCENES)(rng, split, kit) for _ in range(2))
    if not (first.calls and second.calls) or first.calls == second.calls:
        return first
    user = f"{first.user.rstrip('?!.')}, and {_uncapped(second.user)}"
    return DialogueTurn("parallel", user, f"{first.answer} {second.answer}",
                    f"{first.thought} {second.thought}", first.must + second.must,
                    first.calls + second.calls, first.results + second.results,
                    "The results answer it.")  # fmt: skip


_TOOL_SCENES: tuple[Scene, ...] = (memory, web, device, device, report, general)
# scene: (weight, the tools that its request may need)
_SCENES: dict[Scene, tuple[float, tuple[str, ...]]] = {
    greeting: (0.16, ()),
    fact: (0.20, ()),
    memory: (0.15, ("search_memory",)),
    web: (0.13, ("web_search",)),
    device: (0.08, ("set_timer", "set_light", "set_volume", "add_reminder", "play_music", "set_temperature")),
    report: (0.06, ("get_weather", "get_time", "get_date")),
    general: (0.06, ("general",)),
    parallel: (
        0.08,
        ("search_memory", "web_search", "set_timer", "set_light", "get_weather", "add_reminder"),
    ),
    reasoning: (0.12, ()),
    two_step: (0.06, ()),
    unknown: (0.04, ()),
}
CATEGORIES = tuple(scene.__name__ for scene in _SCENES)


def _uncapped(text: str) -> str:
    """A request appended to another one: it loses its capital letter unless it begins with a name."""
    word = text.split()[0].strip(",").lower()
    return text[0].lower() + text[1:] if word in _OPENERS else text


_OPENERS = frozenset(
    [
        "what",
        "what's",
        "any",
        "is",
        "can",
        "tell",
        "find",
        "give",
        "search",
        "look",
        "google",
        "did",
        "do",
        "remind",
        "when",
        "where",
        "show",
        "set",
        "start",
        "timer",
        "count",
        "turn",
        "switch",
        "change",
        "put",
        "volume",
        "add",
        "play",
        "how",
        "weather",
        "time",
        "which",
        "please",
        "so",
    ]
)


def needing(rng: random.Random, scene: Scene, split: Split, kit: Kit) -> DialogueTurn:
    """A turn of a scene whose prompt is on the wanted side of the split."""
    while True:
        exchange = scene(rng, split, kit)
        if split_of(exchange.user) == split:
            return exchange


def conversation(seed: int, split: Split, index: int, category: str | None = None) -> Dialogue:
    """One dialogue. category: the scene of the last turn; by default drawn by weight."""
    rng = random.Random(f"{seed} {split} {index} {category}")
    scene = _scene(rng, category)
    kit, tools = _kit(rng, _SCENES[scene][1])
    exchanges = _exchanges(rng, split, kit, scene)
    thinking = rng.random() < 0.25
    if thinking and exchanges[-1].kind == "two_step":
        exchanges[-1] = replace(exchanges[-1], answer=short_answer(exchanges[-1]))
    return Dialogue(
        system=_system(rng),
        tools=tools,
        exchanges=tuple(exchanges),
        thinking=thinking,
        style="xml" if tools and rng.random() < 0.2 else "hermes",
    )


def _scene(rng: random.Random, category: str | None) -> Scene:
    if category:
        return next(scene for scene in _SCENES if scene.__name__ == category)
    return rng.choices(list(_SCENES), [weight for weight, _ in _SCENES.values()])[0]


def _kit(
    rng: random.Random, needs: tuple[str, ...]
) -> tuple[dict[str, ToolVariant], tuple[ToolVariant, ...]]:
    """The tools to offer: those needed, nearly always; others, often; in any order."""
    keys = set(needs) if rng.random() < 0.88 else set()
    if len(keys) > 3:
        keys = set(rng.sample(sorted(keys), rng.randint(2, 4)))
    if rng.random() < 0.5:
        keys |= {"search_memory", "web_search"} if needs or rng.random() < 0.7 else set()
    if rng.random() < 0.25:
        keys.add(rng.choice(list(SPECS)))
    if needs and rng.random() > 0.93:
        keys -= set(needs)
    tools = [make_tool(rng, key) for key in sorted(keys - {"general"})]
    if "general" in keys or rng.random() < 0.1:
        tools += [make_general(rng, "general") for _ in range(rng.choice((1, 1, 2)))]
    kit = {tool.key: tool for tool in tools}
    if rng.random() < 0.2:
        tools += [stranger_tool(rng)]
    rng.shuffle(tools)
    return kit, tuple(tools)


def _system(rng: random.Random) -> str | None:
    roll = rng.random()
    if roll < 0.3:
        return None
    if roll < 0.8:
        return rng.choice(VOICE_PROMPTS)
    return rng.choice(OTHER_PROMPTS).format(day=rng.choice(DAYS))


def _exchanges(rng: random.Random, split: Split, kit: Kit, scene: Scene) -> list[DialogueTurn]:
    """One turn, or several: a third of the dialogues have a history."""
    roll = rng.random()
    if roll < 0.04:
        return _about_a_name(rng, split, kit)
    if roll < 0.16:
        before = needing(rng, scene, "train", kit)
        after = _wanted(split, lambda: follow(rng, split, kit, before))
        if after:
            return [*_history(rng, kit, rng.choice((0, 0, 1))), before, after]
    last = needing(rng, scene, split, kit)
    if roll < 0.75:
        return [last]
    return [*_history(rng, kit, rng.choice((1, 1, 1, 2, 2, 3, 5, 8))), last]


def _wanted(split: Split, make: Callable[[], DialogueTurn | None]) -> DialogueTurn | None:
    """The result of `make` if it is on the wanted side of the split within a few tries."""
    for _ in range(50):
        made = make()
        if made and split_of(made.user) == split:
            return made
    return None


def _about_a_name(rng: random.Random, split: Split, kit: Kit) -> list[DialogueTurn]:
    """The user's name: told and asked for, or asked for although it was never told."""
    while True:
        told, asked = named(rng, split, kit)
        if rng.random() < 0.2:
            asked = nameless(rng)
        if split_of(told.user) == "train" and split_of(asked.user) == split:
            break
    if asked.must == ("haven't",):
        return [asked]
    return [told, *_history(rng, kit, 1), asked]


def _history(rng: random.Random, kit: Kit, count: int) -> list[DialogueTurn]:
    """Earlier turns of any kind, from the training side."""
    weights = [weight for weight, _ in _SCENES.values()]
    return [needing(rng, rng.choices(list(_SCENES), weights)[0], "train", kit) for _ in range(count)]
