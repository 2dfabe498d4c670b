"""Validate a file of conversations for training: the gates' detectors over everything the assistant says, and more.

The checks, by the code of their findings:

  row        a line that cannot be read or rendered, or from which nothing would be learned
  tools      a tool whose schema cannot be used
  toolcall   a call whose raw arguments are not JSON that its tool's schema accepts, or without an id of its own
  result     a result without a call, or a call without its result
  thought    a thought in a row that switches thinking off
  leak, raw_call, empty, markdown, loop, verbosity, speakable, script    as in the gates
  duplicate  a row that says the same as another, or nearly the same
  wall       a prompt of a suite
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gates.contracts.case import Case, Suite
from gates.decode.decoder import DecodeError, read
from gates.detect.speakable import spoken_seconds
from gates.reply.reply import Reply, ReplyCall
from gates.suite.contamination import ContaminationCheck
from gates.suite.load import ToolObject
from quantizer.core.errors import DataError, UnavailableError
from quantizer.data import conversation as rows
from quantizer.data.judge import find_faults
from quantizer.data.near_duplicates import NearDuplicates, compared_text

if TYPE_CHECKING:
    from quantizer.data.render import Renderer

SCRIPTS: Final = {"en": "Latn", "kn": "Knda"}
"""The script of the answers for a row's own `language`; other languages are not checked."""


@dataclass(frozen=True, slots=True)
class DataFinding:
    """One problem with a line. place: the message, or "row"."""

    line: int
    place: str
    code: str
    detail: str

    def __str__(self) -> str:
        return f"{self.line}, {self.place}: {self.code}: {self.detail}"


@dataclass(slots=True)
class DataReport:
    """The results. seconds: spoken length of each answer. tokens: length of each rendered sample; None without a
    model folder. learned: of those tokens, the assistant's."""

    file: str
    digest: str
    rows: int = 0
    with_calls: int = 0
    thinking: int = 0
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] | None = None
    learned: int = 0
    suites: dict[str, str] = field(default_factory=dict)
    findings: list[DataFinding] = field(default_factory=list)


def validate(
    path: Path,
    suites: Sequence[Suite],
    *,
    source: Path | None = None,
    template: str | None = None,
    max_seconds: float,
) -> DataReport:
    """Check every row of a file; `source`: the model folder that renders them, by `template` if it is named. Raises DataError, SourceError, UnavailableError."""
    renderer = _renderer(source, template)
    report = DataReport(str(path), rows.file_digest(path), tokens=[] if renderer else None)
    report.suites = {suite.name: suite.digest for suite in suites}
    look = RowValidator(report, suites, renderer, max_seconds)
    for number, line in rows.lines(path):
        report.rows += 1
        look.row(number, line)
    if not report.rows:
        raise DataError(f"{path}: is empty")
    return report


def _renderer(source: Path | None, template: str | None) -> Renderer | None:
    if source is None:
        return None
    if find_spec("transformers") is None:
        raise UnavailableError("--source renders with transformers, which is not installed: make quantizer")
    from quantizer.data.render import open_renderer, read_template

    return open_renderer(source, read_template(template))


class RowValidator:
    """One pass over rows, each with a number of its own; what is found goes into the report."""

    def __init__(
        self, report: DataReport, suites: Sequence[Suite], renderer: Renderer | None, max_seconds: float
    ) -> None:
        self._report, self._renderer, self._longest = report, renderer, max_seconds
        self._walls = [(suite.name, ContaminationCheck(suite)) for suite in suites]
        self._seen = NearDuplicates()
        self._line = 0

    def row(self, number: int, line: bytes) -> None:
        """Check one line."""
        self._line = number
        try:
            made = rows.parse(line, f"{self._report.file}:{number}")
        except DataError as error:
            self._add("row", "row", str(error).partition(f":{number}: ")[2] or str(error))
            return
        raw = json.loads(line)
        self._count(raw, made)
        self._faults(raw, made)
        self._likenesses(made)
        if self._renderer:
            self._rendered(made)

    def _faults(self, raw: Mapping[str, Any], made: rows.Conversation) -> None:
        """What is wrong with a row by itself."""
        sound = self._tools(made)
        self._results(raw["messages"])
        for i, message in enumerate(raw["messages"]):
            if message["role"] == "assistant":
                self._message(i, made, message, sound, raw.get("language", ""))

    def _likenesses(self, made: rows.Conversation) -> None:
        """What a row has in common with those before it, and with the suites."""
        for name, wall in self._walls:
            for overlap in wall.overlaps([{"messages": list(made.messages)}]):
                self._add("row", "wall", f"{name}: {overlap.case}, {overlap.kind}: {overlap.text!r:.100}")
        if like := self._seen.add(str(self._line), compared_text(made.messages)):
            how = "says the same as" if like[1] == 1.0 else f"is like ({like[1]:.2f})"
            self._add("row", "duplicate", f"{how} line {like[0]}")

    def _add(self, place: str, code: str, detail: str) -> None:
        self._report.findings.append(DataFinding(self._line, place, code, detail))

    def _count(self, raw: Mapping[str, Any], made: rows.Conversation) -> None:
        report = self._report
        report.with_calls += any("tool_calls" in message for message in made.messages)
        report.thinking += made.thinks
        if made.thinks and made.switches.get("enable_thinking") is False:
            self._add("row", "thought", "thinking is switched off, and there is a thought")

    def _tools(self, made: rows.Conversation) -> bool:
        """Whether calls can be checked against the tools."""
        sound = True
        for i, tool in enumerate(made.tools):
            try:
                read(ToolObject, tool, f"tools[{i}]")
            except DecodeError as error:
                self._add("row", "tools", str(error))
                sound = False
        return sound

    def _results(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Check that every call has its result before the next turn, and every result its call."""
        open_: list[str] = []
        for i, message in enumerate(messages):
            if message["role"] == "tool":
                call = message.get("tool_call_id")
                if call in open_:
                    open_.remove(call)
                else:
                    self._add(f"message {i}", "result", f"{call!r} is no call that waits for its result")
                continue
            if open_:
                self._add(f"message {i}", "result", f"{', '.join(open_)} has no result before it")
            open_ = [str(call.get("id")) for call in message.get("tool_calls") or ()]

    def _message(
        self, i: int, made: rows.Conversation, message: Mapping[str, Any], sound: bool, language: Any
    ) -> None:
        content = str(made.without_thoughts().messages[i]["content"])
        calls = _calls(message)
        expect = {"max_seconds": self._longest, "script": SCRIPTS.get(str(language), "")}
        case = Case("", (), (), tools=made.tools if sound else (), expect=expect)
        reply = Reply(200, content=content, calls=calls if sound else (), finish_reason="stop", done=True)
        if content.strip():
            self._report.seconds.append(spoken_seconds(content))
        elif calls and not sound:
            return  # calls cannot be checked without valid tools
        for finding in find_faults(reply, case):
            self._add(f"message {i}", finding.detector, f"{finding.kind}: {finding.excerpt!r}")

    def _rendered(self, made: rows.Conversation) -> None:
        assert self._renderer and self._report.tokens is not None
        try:
            samples = self._renderer.samples(made)
        except DataError as error:
            self._add("row", "row", str(error).partition(f":{self._line}: ")[2] or str(error))
            return
        for sample in samples:
            self._report.tokens.append(len(sample.ids))
            self._report.learned += int(sample.learned.sum())
            if not sample.learned.any():
                self._add("row", "row", "no token of it is the assistant's")


def _calls(message: Mapping[str, Any]) -> tuple[ReplyCall, ...]:
    """The calls with their raw arguments; an object is printed as a template would print it."""
    made = []
    for i, call in enumerate(message.get("tool_calls") or ()):
        arguments = call["function"].get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        made.append(ReplyCall(i, call.get("id"), call["function"]["name"], text))
    return tuple(made)


SHOWN: Final = 20
"""The number of findings that are printed; the JSON has all of them."""


def report_lines(report: DataReport) -> Iterator[str]:
    """The report as text, for a person."""
    yield f"{report.file}: {report.rows} rows, {report.digest}"
    yield f"  with calls         {report.with_calls} ({_share(report.with_calls, report.rows)})"
    yield f"  with thoughts      {report.thinking} ({_share(report.thinking, report.rows)})"
    yield f"  tokens             {_tokens(report)}"
    yield f"  clear of suites    {_clear(report)}"
    by_code = Counter(found.code for found in report.findings)
    yield "  found              " + (
        ", ".join(f"{n} {code}" for code, n in by_code.most_common()) or "nothing"
    )
    yield from (f"  line {found}" for found in report.findings[:SHOWN])
    yield "not fit" if report.findings else "fit"


def report_as_json(report: DataReport) -> dict[str, Any]:
    """The report as JSON values, for scripts."""
    tokens = report.tokens
    return {
        "file": report.file,
        "digest": report.digest,
        "fit": not report.findings,
        "rows": report.rows,
        "with_calls": report.with_calls,
        "with_thoughts": report.thinking,
        "spoken_seconds": _quantiles(report.seconds),
        "tokens": None if tokens is None else _quantiles(tokens) | {"learned": report.learned},
        "suites": report.suites,
        "counts": dict(Counter(found.code for found in report.findings).most_common()),
        "findings": [asdict(found) for found in report.findings],
    }


def _tokens(report: DataReport) -> str:
    if report.tokens is None:
        return "not rendered: name a model folder with --source"
    whole = sum(report.tokens)
    return (
        f"{whole:,} in {len(report.tokens)} samples, {_share(report.learned, whole)} of them the assistant's"
    )


def _clear(report: DataReport) -> str:
    hit = {found.detail.partition(":")[0] for found in report.findings if found.code == "wall"}
    return ", ".join(f"{name} {'NO' if name in hit else 'yes'}" for name in report.suites) or "none was named"


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    order = sorted(values)
    places = {"least": 0.0, "p50": 0.5, "p95": 0.95, "most": 1.0}
    return {name: round(order[round(share * (len(order) - 1))], 2) for name, share in places.items()}


def _share(count: int, of: int) -> str:
    return f"{count / of:.0%}" if of else "0%"
