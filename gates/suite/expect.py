"""Checks what a case expects against its gates and its tools, so that it can be judged. Pure."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Annotated, Any

import re2
from jsonschema import Draft202012Validator, SchemaError
from msgspec import Meta

from gates.decode.decoder import DecodeError, Text, read
from gates.detect.checks import LANGUAGES
from gates.detect.script import SCRIPTS
from gates.detect.toolcall import ABSENT

_QUIET = re2.Options()
_QUIET.log_errors = False  # on stderr, beside our one line


@dataclass(frozen=True, slots=True)
class _ExpectedCall:
    name: str
    arguments: Mapping[str, Annotated[tuple[Any, ...], Meta(min_length=1)]]


@dataclass(frozen=True, slots=True)
class _ExpectedAnswer:
    """`any` and `number` may both be given; then one of them is enough ("8" or the word for it)."""

    any: Annotated[tuple[Text, ...], Meta(min_length=1)] | None = None
    number: float | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.any is None and self.number is None:
            raise DecodeError("", "must have any, or number and tolerance, or both")
        if (self.number is None) != (self.tolerance is None):
            raise DecodeError("tolerance", "belongs to number, and number needs it; 0 for an exact one")


@dataclass(frozen=True, slots=True)
class _ExpectedEveryday:
    declines: bool | None = None
    says: bool | None = None
    answer: _ExpectedAnswer | None = None

    def __post_init__(self) -> None:
        if [self.declines or self.says, self.answer].count(None) != 1 or (self.declines and self.says):
            raise DecodeError("", "must have one of declines, says (both take true) and answer")


@dataclass(frozen=True, slots=True)
class _ExpectedFunction:
    """A function of the author's; `file` is relative to the suite's folder."""

    file: Text
    function: Text
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


@dataclass(frozen=True, slots=True)
class _Label:
    """A reply that a person judged by the rubric; where two replies are compared, beside an `other`."""

    reply: Text
    good: bool
    other: Text | None = None


@dataclass(frozen=True, slots=True)
class ExpectedJudge:
    """A rubric, and the model that is asked about it. `key_env`: the environment variable with its key. `compare`: with the baseline's
    reply, asked twice with the order swapped, and bad if it is the worse one both times.
    """

    rubric: Text
    url: Annotated[str, Meta(pattern=r"^https?://[^/@\s]+(/\S*)?\Z")]
    model: Text
    key_env: str | None = None
    compare: bool = False
    labels: tuple[_Label, ...] = ()

    def __post_init__(self) -> None:
        if any((label.other is None) == self.compare for label in self.labels):
            raise DecodeError("labels", "must each have an `other` reply if compare is true, and none if not")


@lru_cache(maxsize=8192)  # checking takes half a millisecond, and many cases have the same tools
def schema_fault(text: str) -> str | None:
    """What is wrong with a JSON schema (given as text), or None."""
    try:
        Draft202012Validator.check_schema(json.loads(text))
    except SchemaError as error:
        return f"{error.message:.120}"
    return None


@dataclass(frozen=True, slots=True)
class _ExpectedChecks:
    contains: Annotated[tuple[Text, ...], Meta(min_length=1)] | None = None
    regex: Text | None = None
    json_schema: Mapping[str, Any] | None = None
    max_sentences: Annotated[int, Meta(ge=1)] | None = None
    language: Text | None = None
    python: _ExpectedFunction | None = None

    def __post_init__(self) -> None:
        if self.language is not None and self.language not in LANGUAGES.split():
            which = f"{self.language!r:.40} is none of the languages that can be told: {LANGUAGES}"
            raise DecodeError("language", which)
        if self.language is not None and find_spec("py3langid") is None:
            raise DecodeError("language", "needs py3langid: pip install 'py3langid>=0.4'")
        try:
            re2.compile(self.regex or "", _QUIET)
        except re2.error as error:
            why = f"{self.regex!r:.80} is not a valid pattern of RE2: {error.args[0].decode()}"
            raise DecodeError("regex", why) from None
        if fault := schema_fault(json.dumps(self.json_schema or {})):
            raise DecodeError("json_schema", fault)


@dataclass(frozen=True, slots=True)
class _Expectation:
    """The fields of a case's `expect`."""

    calls: tuple[_ExpectedCall, ...] | None = None
    answer: _ExpectedAnswer | None = None
    max_seconds: Annotated[float, Meta(gt=0)] | None = None
    script: str | None = None
    everyday: _ExpectedEveryday | None = None
    checks: _ExpectedChecks | None = None
    judge: ExpectedJudge | None = None

    def __post_init__(self) -> None:
        if self.script is not None and self.script not in SCRIPTS:
            raise DecodeError("script", f"must be one of {', '.join(SCRIPTS)}")


def check_expectation(
    expect: Mapping[str, Any], needed: Collection[str], tools: Sequence[Mapping[str, Any]]
) -> None:
    """Raise DecodeError for what would make the expectation impossible to judge; `needed` are the fields of the gates."""
    found = read(_Expectation, expect, "expect")
    for field in sorted(expect.keys() ^ needed):
        unjudged, missing = "no gate of this case judges it", "is missing, and a gate of this case needs it"
        raise DecodeError(f"expect.{field}", unjudged if field in expect else missing)
    if found.calls is None:
        return
    if not tools:
        raise DecodeError("tools", "are missing; the tools gate asks nothing of a model that has none")
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    for i, call in enumerate(found.calls):
        where = f"expect.calls[{i}]"
        if call.name not in schemas:
            known = ", ".join(sorted(schemas))
            raise DecodeError(f"{where}.name", f"{call.name!r} is none of the case's tools: {known}")
        _check_arguments(call.arguments, f"{where}.arguments", schemas[call.name])


def _check_arguments(arguments: Mapping[str, Sequence[Any]], where: str, schema: Mapping[str, Any]) -> None:
    """Raise DecodeError unless the tool's schema takes a call with each accepted value."""
    closed = Draft202012Validator({**schema, "additionalProperties": False})
    first = {key: accepted[0] for key, accepted in arguments.items()}
    others = ({**first, key: one} for key, accepted in arguments.items() for one in accepted[1:])
    for call in (first, *others):
        try:
            made = {key: example(want) for key, want in call.items() if want != ABSENT}
        except ValueError as error:
            raise DecodeError(where, str(error)) from None
        if fault := next(closed.iter_errors(made), None):
            why = f"the tool's schema does not take {made!r:.80}: {fault.message:.120}"
            raise DecodeError(where, why)


def example(want: Any) -> Any:
    """A plain value that a form accepts. Raises ValueError for a form that is none."""
    if isinstance(want, Mapping) and want.keys() == {"has"}:
        parts = want["has"]
        if not (isinstance(parts, list) and all(isinstance(part, str) and part for part in parts)):
            raise ValueError(f"{want!r:.80}: has takes texts")
        return " ".join(part.split("|")[0] for part in parts)
    if isinstance(want, Mapping) and want.keys() == {"one_of"}:
        choices = [one for one in want["one_of"] if one != ABSENT] if isinstance(want["one_of"], list) else []
        if not choices:
            raise ValueError(f"{want!r:.80}: one_of takes values that are not all absent")
        return [example(one) for one in choices][0]
    if isinstance(want, Mapping):
        return {key: example(value) for key, value in want.items()}
    return [example(item) for item in want] if isinstance(want, list) else want
