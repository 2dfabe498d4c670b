"""Data plans: which conversations are wanted, and what users say in them. Strict TOML.

    name, version, seed, tries    candidates that a category may use for each conversation wanted
    tools, systems   of the shipped Annie's tools, or of `tools_file` beside the plan; system prompts, "" is none
    [sampling]       of the teacher, as in a suite
    [languages.L]    weight, script (as in the gate of that name), openers, closers
    [slots]          what is inserted into phrasings: lists of records by name
    [[categories]]   name, count, max_seconds, and scenes of one or more user turns

The fields of a record are lists with the form in each language, in the order of `forms`. In a text, {slot} or {slot.field} is
the form in the conversation's language; expected texts accept any form.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from gates.contracts.case import Sampling
from gates.decode.decoder import DecodeError, Meta, nearest, read
from gates.decode.files import TomlFiles, read_text
from gates.detect.script import SCRIPTS
from gates.suite.load import FILES as SUITES
from gates.suite.load import ToolObject
from quantizer.core.errors import RecipeError

FILES: Final = TomlFiles("plan", Path(__file__).parent / "plans", RecipeError)
TOOLS: Final = SUITES.folder / "annie.tools.json"
SLOT: Final = re.compile(r"\{(\w+)(?:\.(\w+))?\}")
WHOLE: Final = ""
"""The field of a record that is a single list."""

Record = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Language:
    """How often a language is used, the script of its answers, and what may precede or follow a phrasing."""

    weight: Annotated[float, Meta(gt=0)]
    script: str = ""
    openers: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.script and self.script not in SCRIPTS:
            raise DecodeError("script", f"must be one of {', '.join(SCRIPTS)}, or be left out")


@dataclass(frozen=True, slots=True)
class RequiredCall:
    """A call that the teacher has to make: a tool, and texts that its arguments must contain."""

    name: str
    arguments: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """What a user says, by language. With `call`, the teacher must call the tool; `answer`: it has to contain one of these."""

    say: Mapping[str, tuple[str, ...]]
    call: RequiredCall | None = None
    result: str = ""
    answer: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.call) != bool(self.result):
            raise DecodeError("result", "belongs to call, and call needs it")
        if not self.say or not all(self.say.values()):
            raise DecodeError("say", "must have at least one phrasing in each language that it names")


@dataclass(frozen=True, slots=True)
class Scenario:
    """The user turns of one kind of conversation."""

    turns: Annotated[tuple[TurnPlan, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if any(turn.say.keys() != self.turns[0].say.keys() for turn in self.turns):
            raise DecodeError("turns", "must all be there in the same languages")

    @property
    def languages(self) -> frozenset[str]:
        return frozenset(self.turns[0].say)


@dataclass(frozen=True, slots=True)
class Category:
    """A number of conversations from some scenes; `offered`: the share of those without a call that offer tools anyway."""

    name: str
    count: Annotated[int, Meta(ge=0)]
    max_seconds: float
    scenes: Annotated[tuple[Scenario, ...], Meta(min_length=1)]
    offered: Annotated[float, Meta(ge=0, le=1)] = 0.5


@dataclass(frozen=True, slots=True)
class DataPlan:
    """A plan. toolbox: the tool objects by name."""

    name: str
    version: int
    seed: int
    description: str
    tools: tuple[str, ...]
    sampling: Sampling
    languages: Mapping[str, Language]
    forms: tuple[str, ...]
    categories: tuple[Category, ...]
    systems: tuple[str, ...] = ("",)
    tries: int = 4
    tools_file: str = ""
    slots: Mapping[str, tuple[Record, ...]] = field(default_factory=dict)
    toolbox: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """`sha256:...` over everything that determines a conversation: not counts and tries, so that more can be requested later."""
        table = asdict(self)
        table["categories"] = [{**c, "count": 0} for c in table["categories"]]
        text = json.dumps({**table, "tries": 0}, sort_keys=True, ensure_ascii=False)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def category(self, name: str) -> Category:
        """The category of this name. Raises RecipeError."""
        for category in self.categories:
            if category.name == name:
                return category
        raise RecipeError(f"{name}: no such category{nearest(name, (c.name for c in self.categories))}")


def load_plan(name_or_path: str) -> DataPlan:
    """Load a shipped plan by its name, or any plan by the path of its .toml file. Raises RecipeError with the key."""
    path = FILES.path(name_or_path)
    table = FILES.table(read_text(path, RecipeError), str(path))
    try:
        tools = path.parent / table["tools_file"] if table.get("tools_file") else TOOLS
        return make_plan(table, json.loads(read_text(tools, RecipeError)))
    except ValueError as error:
        if isinstance(error, RecipeError):
            raise
        raise RecipeError(f"{path}: {error}") from None


def make_plan(table: Mapping[str, Any], listed: list[Any]) -> DataPlan:
    """A plan from its table and a list of OpenAI tool objects. Raises DecodeError."""
    if "toolbox" in table:
        raise DecodeError("toolbox", "unknown key; did you mean 'tools'?")
    rest = {key: value for key, value in table.items() if key != "slots"}
    bare = read(DataPlan, rest)
    slots = dict(_slots(table.get("slots", {})))
    boxed = {}
    for i, tool in enumerate(listed):
        read(ToolObject, tool, f"tools[{i}]")
        boxed[tool["function"]["name"]] = tool
    for name in bare.tools:
        if name not in boxed:
            raise DecodeError("tools", f"{name!r} is no known tool{nearest(name, boxed)}")
    values = {name: getattr(bare, name) for name in DataPlan.__slots__}
    plan = DataPlan(**{**values, "slots": slots, "toolbox": {name: boxed[name] for name in bare.tools}})
    _check(plan)
    return plan


def _slots(table: Any) -> Iterator[tuple[str, tuple[Record, ...]]]:
    if not isinstance(table, dict):
        raise DecodeError("slots", "must be a table")
    for name, records in table.items():
        if not isinstance(records, list) or not records:
            raise DecodeError(f"slots.{name}", "must be a list of at least one record")
        made = tuple(_record(record, f"slots.{name}[{i}]") for i, record in enumerate(records))
        if any(record.keys() != made[0].keys() for record in made):
            raise DecodeError(f"slots.{name}", "has records with other fields than its first")
        yield name, made


def _record(value: Any, where: str) -> Record:
    table = value if isinstance(value, dict) else {WHOLE: value}
    record = {key: (forms,) if isinstance(forms, str) else forms for key, forms in table.items()}
    for forms in record.values():
        if not isinstance(forms, list | tuple) or not forms or not all(isinstance(f, str) for f in forms):
            raise DecodeError(where, "must be a text, a list of texts, or a table of those")
    return {key: tuple(forms) for key, forms in record.items()}


def _check(plan: DataPlan) -> None:
    """Check that every name that is used exists."""
    names = [category.name for category in plan.categories]
    if not names or len(set(names)) != len(names):
        raise DecodeError("categories", "must be at least one, each with a name of its own")
    for number, category in enumerate(plan.categories):
        for i, scene in enumerate(category.scenes):
            where = f"categories[{number}].scenes[{i}]"
            for odd in sorted(scene.languages - plan.languages.keys()):
                raise DecodeError(where, f"{odd!r} is no language of the plan{nearest(odd, plan.languages)}")
            for turn in scene.turns:
                _check_turn(plan, turn, where)


def _check_turn(plan: DataPlan, turn: TurnPlan, where: str) -> None:
    if turn.call and turn.call.name not in plan.toolbox:
        raise DecodeError(
            where, f"{turn.call.name!r} is no tool of the plan{nearest(turn.call.name, plan.tools)}"
        )
    for text in _texts(turn):
        for slot, part in SLOT.findall(text):
            if slot not in plan.slots:
                raise DecodeError(where, f"{{{slot}}} is no slot{nearest(slot, plan.slots)}")
            if part not in plan.slots[slot][0]:
                raise DecodeError(where, f"{{{slot}.{part}}}: the slot has no such field")


def _texts(turn: TurnPlan) -> Iterable[str]:
    wanted = turn.call.arguments.values() if turn.call else ()
    return [t for texts in (*turn.say.values(), *wanted, (turn.result,), turn.answer) for t in texts]
