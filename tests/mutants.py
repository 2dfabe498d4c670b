"""Break the stream core on purpose, one fault at a time, and see that a test notices.

`python -m tests.mutants` copies the core and its tests aside, applies each fault in turn, and fails
if the tests still pass with one of them. Each line is a bug that a real proxy has had. The test that a line names runs
first and alone, and must pass without a fault; if it does not notice, all of the core's tests run, and the line is out of date.
"""

import argparse
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from tests.scale import UNSHRUNK

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    """One fault: in `file`, `old` (which must occur) becomes `new`, and the test `by` fails. A name without a folder lies in the core's."""

    name: str
    by: str
    file: str
    old: str
    new: str

    @property
    def place(self) -> str:
        return self.file if "/" in self.file else STREAM + self.file

    @property
    def test(self) -> str:
        return self.by if "/" in self.by else f"{TESTS}/{self.by}"


STREAM = "app/stream/"
TESTS = "tests/app/stream"
MUTANTS = [
    Mutant("a lone CR at a read's end is taken for a line end", "tests/gates/test_reply.py::test_payloads_are_the_same_however_the_bytes_arrive", "gates/reply/sse.py", "self._after_cr = data[-1] == 0x0D", "self._after_cr = False"),
    Mutant("the last event is lost without a blank line", "tests/gates/test_reply.py::test_payloads_are_the_same_however_the_bytes_arrive", "gates/reply/sse.py", '        self._take(b"", payloads)\n        return payloads', "        return payloads"),
    Mutant("a partial line is dropped", "tests/gates/test_reply.py::test_payloads_are_the_same_however_the_bytes_arrive", "gates/reply/sse.py", "            if rest:\n                self._grow(rest)", "            pass"),
    Mutant("lines end at U+2028", "tests/gates/test_reply.py::test_payloads_are_the_same_however_the_bytes_arrive", "gates/reply/sse.py", "lines = data.splitlines()", 'lines = [x.encode("utf-8", "surrogateescape") for x in data.decode("utf-8", "surrogateescape").splitlines()]'),
    Mutant("a stream without a finish reason is clean", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "pipeline.py", '        self.over = True\n        if self._choice.finished:', '        self.over = True\n        if self._choice.finished or fault is None:'),
    Mutant("empty arguments stay empty", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "call_normalizer.py", '[CallArguments(0, self._count - 1, rest)] if rest else []', '[]'),
    Mutant("a call ends with stop", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "call_normalizer.py", "if self._count and reason in", "if False and reason in"),
    Mutant("[DONE] follows an error", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "encode.py", 'out.append(self.fault(event.message, event.code, "upstream_error"))', 'out += [self.fault(event.message, event.code, "upstream_error"), DONE]'),
    Mutant("the role frame stops the clock", "tests/app/telemetry/test_clocks.py::test_each_clock_ends_at_its_own_event", "gates/reply/chunks.py", "        if said.content:\n", "        if said.content is not None:\n"),
    Mutant("null goes out as it came", "test_hostile_replies.py::test_no_arguments_are_an_empty_object_before_anything_else", "call_normalizer.py", 'if "null".startswith(self._lead):', "if not self._lead:"),
    Mutant("words go out inside a call", "test_hostile_replies.py::test_no_arguments_are_an_empty_object_before_anything_else", "call_normalizer.py", "self._waiting.append(event)\n        return []", "return [event]"),
    Mutant("calls are not counted", "test_hostile_replies.py::test_a_reply_has_so_many_calls_and_no_more", "call_normalizer.py", "if self._count == MAX_CALLS:", "if False:"),
    Mutant("another choice is heard", "test_hostile_replies.py::test_a_malformed_chunk_is_that_error_and_no_other", "gates/reply/chunks.py", "if choice.index != 0:", "if False:"),
    Mutant("what was whole before a fault is lost", "test_hostile_replies.py::test_a_limit_does_not_depend_on_the_cut_and_loses_nothing_before_it", "gates/reply/sse.py", "            error.payloads = payloads\n", ""),
    Mutant("no hold-back of what may become a marker", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "parser.py", '            self._wait_if(len(self._buf) - at <= MAX_TAG and may_become(self._buf, at))', '            pass'),
    Mutant("a code span is no code", "test_every_cut.py::test_ordinary_texts_are_handed_on_to_the_letter", "parser.py", '                return self._as_text(marker, at, end)\n            self._span = 0', '                pass\n            self._span = 0'),
    Mutant("a quoted marker is a marker", "test_every_cut.py::test_ordinary_texts_are_handed_on_to_the_letter", "parser.py", '            if self._buf[end : end + 1] == quote:', '            if False:'),
    Mutant("a fence is no code", "test_every_cut.py::test_ordinary_texts_are_handed_on_to_the_letter", "parser.py", '        if self._fence:\n            return self._as_text(marker, at, end)\n', '        pass\n'),
    Mutant("a mention opens a region", "test_in_a_line.py::test_words_beside_a_marker_decide_what_it_is", "parser.py", '        if self._line or _WITHIN.search(self._before) is None:\n            return False', '        return False'),
    Mutant("every opening tag in a line is a mention", "test_in_a_line.py::test_words_beside_a_marker_decide_what_it_is", "parser.py", 'return self._begin_call(marker, at, end) if is_call else self._begin_thought("tag", end)', 'return self._literal(at, end)'),
    Mutant("an example in a fence is a call", "test_in_a_line.py::test_words_beside_a_marker_decide_what_it_is", "parser.py", 'elif (one.mode == "behind" and char in', 'elif one.mode == "closed" or (one.mode == "behind" and char in'),
    Mutant("JSON with words behind it is a call", "test_in_a_line.py::test_words_beside_a_marker_decide_what_it_is", "parser.py", 'elif (one.mode == "behind" and char in', 'elif one.mode == "behind" or (one.mode == "behind" and char in'),
    Mutant("text behind a turn's end is heard", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "parser.py", '        self._state, self._resumes = "ended", resumes', '        self._resumes = resumes'),
    Mutant("a call that lacks its brackets is lost", "test_in_a_line.py::test_words_beside_a_marker_decide_what_it_is", "parser.py", 'elif body.strip():\n            self._read_body', 'elif False:\n            self._read_body'),
    Mutant("a half marker at the end is heard", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "parser.py", 'if self._final and not (self._fence or self._span) and may_become(buf, at) and is_half(buf[at:]):', 'if False:'),
    Mutant("the seam ends no marker", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "parser.py", '            self._seam(seams[-1], at)\n', '            pass\n'),
    Mutant("the seam in a header ends no field", "test_in_a_line.py::test_headers_and_calls_are_read_across_the_seam_of_the_fields", "parser.py", '        self._cross_seams(at, end)\n        if role', '        if role'),
    Mutant("a call of another tool is handed on", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "parser.py", '            elif self._rules.strips_unasked:\n                self.hold.drop("unasked")', '            elif False:\n                pass'),
    Mutant("the engine's own call of no tool is handed on", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "parser.py", 'self._drops_native = self._rules.strips_unasked and event.name not in self._rules.tools', 'self._drops_native = False'),
    Mutant("JSON that was asked for is edited", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "parser.py", '            self._json_was_read, self._scanner, self._state = True, ValueScanner(), "json"\n            return at', '            self._json_was_read = True\n            return self._literal(at, at + 1)'),
    Mutant(
        "a call in a closed thought is made", "test_in_a_line.py::test_words_beside_a_marker_decide_what_it_is", "parser.py", 'self._state, self._rest, self._late = "text", None, []', 'self._state, self._rest, self._late = "text", None, self._late'),
    Mutant("what was read of a thought depends on the cut", "test_every_cut.py::test_the_state_after_i_characters_fed_i_to_j_is_the_state_after_j", "parser.py", 'self._before = (self._before + text)[-8:]\n        if self._state == "thought" or', 'self._before = text[-8:]\n        if self._state == "thought" or'),
    Mutant("words are glued where a piece was taken out", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "joiner.py", 'return " " if is_glued and', 'return "" if is_glued and'),
    Mutant("two spaces stay where a piece was taken out", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "joiner.py", '        if before or behind:\n            return " "', '        if before or behind:\n            return before + behind'),
    Mutant("an empty emphasis stays", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "joiner.py", '            before, behind = before[:-1], behind[1:]', '            break'),
    Mutant("an orphan bullet stays", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "joiner.py", '            before = before[: bullet.start()]', '            pass'),
    Mutant("held text is lost at the end", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "holdback.py", '        if not reason:\n            self._take_held()\n        self._release()', '        self._take_held()\n        self._release()'),
    Mutant("the hold-back releases early", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "holdback.py", 'if self._size > self._limit:', 'if self._size > 8:'),
    Mutant("an orphan end tag lets its thought out", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "holdback.py", '        self._take_back(always=True)\n', '        self._release()\n'),
    Mutant("a reply of which nothing is left is clean", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "holdback.py", 'if self._is_filtered and not self.is_visible and', 'if False and'),
    Mutant("an answer before a closing tag is lost", "test_every_cut.py::test_the_bank_of_replies_is_heard_as_it_should_be", "holdback.py", '            self._show(Text(0, self._orphan.strip()))', '            pass'),
    Mutant("a parameter keeps its newlines", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "call_reader.py", '.removeprefix("\\n").removesuffix("\\n")', ''),
    Mutant("a typed parameter stays text", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "call_reader.py", 'tools.encode(name, key, value)', 'json.dumps(value)'),
    Mutant("a key that is said twice is read", "test_hostile_replies.py::test_a_call_that_says_two_things_is_none", "call_reader.py", 'return fields if len(pairs) == len(fields) else None', 'return fields'),
    Mutant("braces in strings count", "test_json_value.py::test_a_value_ends_at_its_last_bracket_on_any_cut", "json_value.py", '            self.quote = char\n', '            pass\n'),
    Mutant("a deep call is read on", "test_hostile_replies.py::test_nesting_has_one_bound", "json_value.py", 'if bare.startswith(("{", "[")):', 'if False:'),
]  # fmt: skip


Outcome = Literal["caught", "caught elsewhere", "SURVIVED"]
QUIETLY = (
    "-q",
    "--tb=no",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--hypothesis-profile",
    UNSHRUNK,
)

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.collected"])
"""Each fault has a process of its own, forked from one that has collected the tests already: most of the time that a
run of one test takes."""


def outcome(mutant: Mutant | None) -> Outcome:
    """What the tests make of a fault, in a fresh process. Without a fault it is "SURVIVED" if the tests that the mutants
    name pass."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        data = ("tests/data/replies", "tests/data/streams")
        for part in ("app", "gates", TESTS, "tests/app/telemetry", *data):
            shutil.copytree(ROOT / part, copy / part, copy_function=_link)  # with what is compiled already
        (copy / "tests/app/__init__.py").touch()
        (copy / "tests/gates").mkdir()
        wire = [ROOT / "tests/gates" / name for name in ("__init__.py", "test_reply.py")]
        for path in [*(ROOT / "tests").glob("*.py"), *wire, ROOT / "pyproject.toml"]:
            shutil.copy(path, copy / path.relative_to(ROOT))
        if mutant is None:
            named = sorted({one.test for one in MUTANTS})
            return "SURVIVED" if _passes(copy, *named) else "caught"
        target = copy / mutant.place
        text = target.read_text("utf-8")
        if mutant.old not in text:
            raise RuntimeError(f"mutant {mutant.name!r}: {mutant.file} no longer holds its line")
        target.unlink()
        target.write_text(text.replace(mutant.old, mutant.new, 1), "utf-8")
        if not _passes(copy, mutant.test):
            return "caught"
        return "SURVIVED" if _passes(copy, TESTS) else "caught elsewhere"


def _link(source: str, target: str) -> None:
    """A second name for a file takes no time; on another disk it is a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _passes(folder: Path, *tests: str) -> bool:
    """Whether they do, in this process, over the copy in the folder."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("app", "gates", "tests")]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    importlib.import_module("tests.looped").ENOUGH = 1  # type: ignore[attr-defined]  # one row that fails is enough
    with redirect_stdout(StringIO()) as said:
        code = pytest.main(["-x", *QUIETLY, *tests])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{tests[0]} cannot be run: {said.getvalue()}")
    return code == pytest.ExitCode.OK


def main() -> int:
    """Try every mutant; the exit code is the number of survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--tests-pass", action="store_true", help="do not ask whether they do without a fault"
    )
    is_known = parser.parse_args().tests_pass
    found: Counter[Outcome] = Counter()
    with CONTEXT.Pool(2, maxtasksperchild=1) as pool:
        outcomes = pool.imap(outcome, [*([] if is_known else [None]), *MUTANTS])
        if not is_known and next(outcomes) != "SURVIVED":
            raise SystemExit("a test that a mutant names fails without a fault: mend that first")
        for mutant, came in zip(MUTANTS, outcomes, strict=True):
            found[came] += 1
            print(f"{came:16}  {mutant.file:18} {mutant.name}", flush=True)
    print(f"{len(MUTANTS) - found['SURVIVED']} of {len(MUTANTS)} faults caught")
    return found["SURVIVED"]


if __name__ == "__main__":
    sys.exit(main())
