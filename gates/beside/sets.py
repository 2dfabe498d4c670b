"""The sets that are asked beside the gates: our own, and files of IFEval and BFCL that a user has. Nothing is fetched.

A set is named on the command line: `instructions`, `calls`, `answers` (ours, in `gates/beside/sets`), `ifeval=PLACE` (a
folder with input_data.jsonl, or such a file) and `bfcl=PLACE` (a folder with BFCL's simple and parallel questions, and
possible_answer beside them). A line that cannot be judged here is skipped and counted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gates.beside import calls, instructions
from gates.contracts.case import Case, Sampling
from gates.contracts.errors import SuiteError
from gates.decode.jsonl import read_objects

SHIPPED: Final = Path(__file__).parent / "sets"
MAX_BYTES: Final = 64 * 2**20
MAX_CASES: Final = 20_000
_BFCL: Final = re.compile(r"BFCL_v\d+_(simple|simple_python|parallel)\.json")
ANSWERS: Final = "possible_answer"


@dataclass(frozen=True, slots=True)
class BesideSet:
    """A set to ask. source: "ours", or the names of the user's files. skipped: lines that cannot be judged here. digest: of
    everything that is sent or used to judge, of the whole set."""

    name: str
    source: str
    sampling: Sampling
    cases: tuple[Case, ...]
    skipped: int
    digest: str

    def first(self, limit: int) -> tuple[Case, ...]:
        """At most so many cases, in the set's order; which ones follows from their ids. 0: all."""
        if not limit or limit >= len(self.cases):
            return self.cases
        order = sorted(self.cases, key=lambda case: hashlib.sha256(case.id.encode()).digest())
        chosen = {case.id for case in order[:limit]}
        return tuple(case for case in self.cases if case.id in chosen)


def load_sets(wanted: Iterable[str]) -> tuple[BesideSet, ...]:
    """The sets of a command line, each item one name or several with commas between.

    Raises SuiteError: an unknown name, a folder without the files, a file that cannot be used, or a set named twice.
    """
    names = [name.strip() for item in wanted for name in item.split(",") if name.strip()]
    found = tuple(_load(name) for name in names)
    if len({one.name for one in found}) < len(found):
        raise SuiteError(f"--also names a set twice: {', '.join(names)}")
    return found


def _load(wanted: str) -> BesideSet:
    name, sign, place = wanted.partition("=")
    if name in _OWN and not sign:
        read, file, tokens = _OWN[name]
        return _made(name, "ours", tokens, read([SHIPPED / file]))
    if name in _STANDARD and place:
        find, read, tokens = _STANDARD[name]
        files = find(Path(place))
        return _made(name, ", ".join(file.name for file in files), tokens, read(files))
    if name in _STANDARD:
        raise SuiteError(f"--also {name} needs the place of your files: {name}=DIR; ours: {', '.join(_OWN)}")
    known = ", ".join((*_OWN, *(f"{one}=DIR" for one in _STANDARD)))
    raise SuiteError(f"--also {wanted[:80]!r}: there is no such set; there are {known}")


def _made(name: str, source: str, tokens: int, read: Iterator[Case | None]) -> BesideSet:
    lines = list(read)
    cases = tuple(case for case in lines if case is not None)
    if not cases:
        raise SuiteError(f"--also {name}: no line of {source} can be judged here")
    if len({case.id for case in cases}) < len(cases):
        raise SuiteError(f"--also {name}: {source} has an id twice")
    sampling = Sampling(max_tokens=tokens)
    text = json.dumps([asdict(sampling), [asdict(case) for case in cases]], sort_keys=True)
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return BesideSet(name, source, sampling, cases, len(lines) - len(cases), digest)


# ---------------------------------------------------------------------------------------------- reading


def _lines(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return read_objects(file, max_bytes=MAX_BYTES, max_lines=MAX_CASES)


def _case(name: str, kind: str, messages: Sequence[Any], **more: Any) -> Case | None:
    """A case; None if its messages are none."""
    good = messages and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
        for m in messages
    )
    return Case(name, (kind,), tuple(messages), turn=kind, **more) if good else None


def _said(prompt: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": prompt}]


def read_ifeval(files: Sequence[Path]) -> Iterator[Case | None]:
    """Prompts with `instruction_id_list` and `kwargs`. A key without a value counts as absent."""
    for file in files:
        for where, line in _lines(file):
            names, given = line.get("instruction_id_list"), line.get("kwargs")
            if not isinstance(names, list) or not isinstance(given, list) or len(names) != len(given):
                raise SuiteError(f"{where}: instruction_id_list and kwargs must be lists of one length")
            if not all(one is None or isinstance(one, dict) for one in given):
                raise SuiteError(f"{where}: each of kwargs must be an object")
            given = [{k: v for k, v in (one or {}).items() if v is not None} for one in given]
            usable = names and not any(map(instructions.problem, map(str, names), given))
            expect = {"instructions": [[name, one] for name, one in zip(names, given, strict=True)]}
            yield (
                _case(str(line.get("key")), "instructions", _said(line.get("prompt")), expect=expect)
                if usable
                else None
            )


def read_bfcl(files: Sequence[Path]) -> Iterator[Case | None]:
    """Questions, with the answers of the file of the same name in possible_answer."""
    for file in files:
        answers = {line.get("id"): line for _, line in _lines(file.parent / ANSWERS / file.name)}
        kind = "parallel" if "parallel" in file.name else "simple"
        for _, line in _lines(file):
            try:
                tools = calls.tools_of(line.get("function"))
                truth = answers.get(line.get("id"), {}).get("ground_truth")
                wanted = calls.expected_calls(truth, tools)
                (messages,) = line["question"]
            except (ValueError, KeyError, TypeError):
                yield None
                continue
            yield _case(str(line.get("id")), kind, messages, tools=tools, expect={"calls": wanted})


def read_answers(files: Sequence[Path]) -> Iterator[Case | None]:
    """Our own facts and sums: id, kind, prompt, answer."""
    for file in files:
        for _, line in _lines(file):
            yield _case(line["id"], line["kind"], _said(line["prompt"]), expect={"answer": line["answer"]})


def _find_ifeval(place: Path) -> list[Path]:
    file = place / "input_data.jsonl" if place.is_dir() else place
    if not file.is_file():
        raise SuiteError(f"{place}: there is no input_data.jsonl, which IFEval calls its prompts")
    return [file]


def _find_bfcl(place: Path) -> list[Path]:
    folder = place / "data" if (place / "data").is_dir() else place
    found = sorted(file for file in folder.glob("BFCL_v*.json") if _BFCL.fullmatch(file.name))
    if not found:
        raise SuiteError(f"{place}: there is no BFCL_v…_simple.json, _simple_python.json or _parallel.json")
    return found


def _own_bfcl(files: Sequence[Path]) -> Iterator[Case | None]:
    return read_bfcl(_find_bfcl(files[0]))


Reader = Callable[[Sequence[Path]], Iterator[Case | None]]
_OWN: Final[Mapping[str, tuple[Reader, str, int]]] = {
    "instructions": (read_ifeval, "instructions.jsonl", 256),
    "calls": (_own_bfcl, "bfcl", 384),
    "answers": (read_answers, "answers.jsonl", 128),
}
"""Name to its reader, its file, and the longest reply in tokens."""
_STANDARD: Final[Mapping[str, tuple[Callable[[Path], list[Path]], Reader, int]]] = {
    "ifeval": (_find_ifeval, read_ifeval, 1280),
    "bfcl": (_find_bfcl, read_bfcl, 512),
}
