"""Suites on disk: a TOML head, its tools in JSON, its cases in JSONL; read strictly into one Suite.

The head holds `name`, `version`, `description`, `cases` (JSONL files beside it), `[sampling]` with
every parameter, `[systems]` (named system prompts) and, for tools that many cases share,
`tools_file` (a JSON list of OpenAI tool objects) and `[tools]` (named sets of them, in order). The
keys of a case's line are in `gates/suite/line.py`.

Rules this file keeps:

* A fault is one SuiteError that names file, line and field. Nothing is skipped or guessed.
* Ids are unique, and so is what is said: two cases with the same words, whatever their capitals,
  stops, system prompt or tools, are one piece of evidence at temperature 0, not two.
* The digest is over what reaches a model or a judge and over nothing else (see `digest_of`).
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.errors import SuiteError
from gates.suite.line import Shelf, case_of, check_tool
from gates.suite.phrases import normal

SHIPPED: Final = Path(__file__).parents[1] / "suites"

_HEAD: Final = {"name": str, "version": int, "description": str, "cases": list, "sampling": dict}
_MAY: Final = {"systems": dict, "tools": dict, "tools_file": str}
_KINDS: Final = {str: "text", int: "whole number", list: "list", dict: "table"}
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "temperature": (0, 2), "top_p": (0, 1), "top_k": (-1, 10**6), "min_p": (0, 1),
    "repetition_penalty": (0.01, 2), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2),
    "seed": (0, 2**31 - 1), "max_tokens": (1, 10**6),
}  # fmt: skip


def shipped() -> tuple[str, ...]:
    """The names of the suites that come with this program."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def load_suite(name_or_path: str | Path) -> Suite:
    """A shipped suite by its name, or any by the path of its .toml file.

    Raises:
        SuiteError: no such suite, or one that cannot be run as it stands.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = SHIPPED / f"{name_or_path}.toml"
        if str(name_or_path) not in shipped():
            raise SuiteError(
                f"{name_or_path}: no such suite; there are {', '.join(shipped())}, or give a .toml file"
            )
    head = _head(_text(path), str(path))
    sampling = _sampling(head["sampling"], f"{path}: sampling")
    cases = _cases(path, head, _shelf(path, head))
    _check_distinct(cases, str(path))
    return Suite(
        name=head["name"],
        version=head["version"],
        description=head["description"].strip(),
        sampling=sampling,
        cases=cases,
        digest=digest_of(sampling, cases),
    )


def digest_of(sampling: Sampling, cases: Iterable[Case]) -> str:
    """`sha256:` and 64 hex digits over sampling and cases, whatever files they were read from.

    The cases stand in the order of their ids. The order of keys inside messages and tools counts,
    because a chat template prints it and a grammar follows it; inside `expect` it does not. Left out
    are the suite's name, version and description and a case's `turn`: labels for people.
    """
    parts = [_canonical(asdict(sampling))]
    for case in sorted(cases, key=lambda case: case.id):
        judged = {"gates": sorted(case.gates), "named": sorted(case.named), "stage": case.stage}
        judged |= {"id": case.id, "expect": case.expect, "language": case.language}
        asked = {"messages": case.messages, "tools": case.tools, "tool_choice": case.tool_choice}
        parts += [_canonical(judged), json.dumps(asked, ensure_ascii=True, separators=(",", ":"))]
    return f"sha256:{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()}"


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


# -------------------------------------------------------------------------------------------- head


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SuiteError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise SuiteError(f"{path}: is not UTF-8 text") from None


def _head(text: str, where: str) -> dict[str, Any]:
    try:
        head = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{where}: not TOML ({error})") from None
    known = _HEAD | _MAY
    for problem, names in (("unknown", head.keys() - known.keys()), ("missing", _HEAD.keys() - head.keys())):
        if names:
            raise SuiteError(f"{where}: {problem} key {', '.join(sorted(names))}")
    for key, value in head.items():
        if type(value) is not known[key]:
            raise SuiteError(f"{where}: {key} must be a {_KINDS[known[key]]}")
    for key in ("systems", "tools"):
        head.setdefault(key, {})
    if not head["cases"] or not all(isinstance(name, str) for name in head["cases"]):
        raise SuiteError(f"{where}: cases must name at least one JSONL file beside it")
    return head


def _sampling(table: Mapping[str, Any], where: str) -> Sampling:
    """Every parameter has to be there: one left out would be the engine's choice, or this program's."""
    names = {field.name: field.type for field in fields(Sampling)}
    for problem, odd in (("unknown", table.keys() - names.keys()), ("missing", names.keys() - table.keys())):
        if odd:
            raise SuiteError(f"{where}: {problem} key {', '.join(sorted(odd))}")
    for key, value in table.items():
        low, high = _RANGES[key]
        whole = names[key] == "int"
        if type(value) not in ((int,) if whole else (int, float)) or not low <= value <= high:
            kind = "whole number" if whole else "number"
            raise SuiteError(f"{where}.{key} must be a {kind} from {low:g} to {high:g}, not {value!r}")
    values: dict[str, Any] = {k: v if names[k] == "int" else float(v) for k, v in table.items()}
    return Sampling(**values)


def _shelf(path: Path, head: Mapping[str, Any]) -> Shelf:
    """The named system prompts and tool sets."""
    where = str(path)
    for name, system in head["systems"].items():
        if not isinstance(system, str) or not system.strip():
            raise SuiteError(f"{where}: systems.{name} must be a text that is not empty")
    tools = _tools(path.parent / head["tools_file"]) if "tools_file" in head else {}
    sets = {}
    for name, members in head["tools"].items():
        if not isinstance(members, list) or not members:
            raise SuiteError(f"{where}: tools.{name} must be a list of tool names")
        for member in members:
            if member not in tools:
                raise SuiteError(f"{where}: tools.{name}: {member!r} is not in {head.get('tools_file')}")
        sets[name] = tuple(tools[member] for member in members)
    return Shelf({name: text.strip() for name, text in head["systems"].items()}, sets)


def _tools(path: Path) -> dict[str, Mapping[str, Any]]:
    try:
        listed = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{path}: not JSON ({error})") from None
    if not isinstance(listed, list):
        raise SuiteError(f"{path}: must be a list of OpenAI tool objects")
    for i, tool in enumerate(listed):
        check_tool(tool, f"{path}: [{i}]")
    return {tool["function"]["name"]: tool for tool in listed}


# ------------------------------------------------------------------------------------------- cases


def _cases(path: Path, head: Mapping[str, Any], shelf: Shelf) -> tuple[Case, ...]:
    cases = [case for name in head["cases"] for case in _file(path.parent / name, shelf)]
    if not cases:
        raise SuiteError(f"{path}: has no case; a suite that asks nothing passes nothing")
    return tuple(cases)


def _file(path: Path, shelf: Shelf) -> Iterator[Case]:
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            yield case_of(line, shelf, f"{path}:{number}")


def _check_distinct(cases: Iterable[Case], where: str) -> None:
    ids: set[str] = set()
    said: dict[str, str] = {}
    for case in cases:
        if case.id in ids:
            raise SuiteError(f"{where}: two cases have the id {case.id!r}")
        ids.add(case.id)
        other = said.setdefault(_said(case), case.id)
        if other != case.id:
            raise SuiteError(
                f"{where}: {other!r} and {case.id!r} say the same; the second is no new evidence"
            )


def _said(case: Case) -> str:
    """All that a case says, the system prompt apart, as it is compared."""
    turns = [m for m in case.messages if m["role"] != "system"]
    return "\n".join(f"{m['role']} {normal(m['content'])} {_canonical(m.get('tool_calls'))}" for m in turns)
