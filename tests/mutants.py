"""Break the stream core on purpose, one fault at a time, and see that a test notices.

`python -m tests.mutants` copies the core and its tests aside, applies each fault in turn, and fails
if the tests still pass with one of them. Each line is a bug that a real proxy has had.
"""

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    """One fault: in `file`, `old` (which must occur) becomes `new`."""

    name: str
    file: str
    old: str
    new: str


STREAM = "app/stream/"
TESTS = "tests/app/stream"
COST = "test_linear_work.py"
"""Slow, and of cost alone: no mutant is one of cost only."""
FIRST = ("test_wire_cases.py", "test_manners.py")
"""Quick, and most mutants are noticed there, or in the file that is named like theirs."""
CONTROL = Mutant("no fault at all", "sse.py", "", "")
MUTANTS = [
    Mutant("a lone CR at a read's end is taken for a line end", "sse.py", "self._after_cr = data[-1] == 0x0D", "self._after_cr = False"),
    Mutant("the last event is lost without a blank line", "sse.py", '        self._take(b"", payloads)\n        return payloads', "        return payloads"),
    Mutant("a partial line is dropped", "sse.py", "            if rest:\n                self._grow(rest)", "            pass"),
    Mutant("lines end at U+2028", "sse.py", "lines = data.splitlines()", 'lines = [x.encode("utf-8", "surrogateescape") for x in data.decode("utf-8", "surrogateescape").splitlines()]'),
    Mutant("no hold-back of a partial tag", "tags.py", "if self.may_become(text, at):\n                    return None, at", "if self.may_become(text, at):\n                    return None, size"),
    Mutant("tags are matched in one case only", "tags.py", "flags = re.IGNORECASE", "flags = re.NOFLAG"),
    Mutant("a quoted tag is a tag", "tags.py", 'elif (text[at - 1] if at else before) != "`":', "elif True:"),
    Mutant("held text is lost at the end", "holdback.py", "            self._take_held()\n        self._release(out)", "            self._take_held()"),
    Mutant("what was held when the stream broke is spoken", "holdback.py", "        if not reason:\n            self._take_held()\n", ""),
    Mutant("the hold-back releases early", "holdback.py", "if self._size > self._limit:", "if self._size > 8:"),
    Mutant("the hold-back ends with the first thought", "holdback.py", "self._size, self._limit = 0, self._policy.held_after", "self._size, self._limit = 0, 0"),
    Mutant("a thought overtakes held text", "holdback.py", "        if self._held:\n            self._held.append(thought)\n        else:", "        if True:"),
    Mutant("an orphan end tag lets its thought out", "holdback.py", "self._take_back(out, always=True)", "self._release(out)"),
    Mutant("a call that was mused about is made", "holdback.py", "elif type(event) is Thought or self._is_native(event):", "else:"),
    Mutant("a reply of which nothing is left is clean", "holdback.py", "if self._filtered and not self._visible and", "if False and"),
    Mutant("an opening tag opens nothing", "segmenter.py", "        if role in _OPENERS:\n            self._open_thought()\n        elif", "        if"),
    Mutant("thoughts do not nest", "segmenter.py", "self._depth += 1", "pass"),
    Mutant("a tag split over two fields is spoken", "segmenter.py", "if match is None and self._tags.may_become(joined):", "if False:"),
    Mutant("a closing tag in the reasoning field stays", "segmenter.py", "            out.append(Retract(field=True))\n            return", "            self._ponder('</think>', out)\n            return"),
    Mutant("newlines behind a thought are spoken", "segmenter.py", "self._depth, self._state = 0, self._in_speech\n        self._strip = True", "self._depth, self._state = 0, self._in_speech"),
    Mutant("what may have been a tag is lost", "segmenter.py", "            self._say(held, out)\n        else:", "            pass\n        else:"),
    Mutant("an event overtakes the segmenter's held text", "segmenter.py", "            out = self._interrupt()\n            if type(event)", "            out = []\n            if type(event)"),
    Mutant("an orphan end of a call is spoken", "segmenter.py", "            out.append(Dropped(\"\"))\n            self._last", "            self._say(match[0], out)\n            self._last"),
    Mutant("a call that nobody asked for is handed on", "bare_calls.py", "    if call.name not in rules.tools and rules.strips_unasked:", "    if False:"),
    Mutant("the engine's own call of no tool is handed on", "segmenter.py", "repeats, is_asked = event == self._unasked, event.name in rules.tools", "repeats, is_asked = event == self._unasked, True"),
    Mutant("JSON without a tag is spoken", "segmenter.py", "        if bracket < cut:\n", "        if False:\n"),
    Mutant("JSON that was asked for is taken for a call", "segmenter.py", "        if self._rules.json:\n", "        if False:\n"),
    Mutant("JSON in a fence is taken for a call", "segmenter.py", "        elif self._fences.inside:\n            self._say(text[0], out)\n            return text[1:]\n", ""),
    Mutant("a call in a fence is no example without tools", "segmenter.py", "(ends or not self._rules.tools)", "bool(ends)"),
    Mutant("the short way passes JSON", "segmenter.py", "        return self._other is not None or _BRACKET.search(text) is not None", "        return False"),
    Mutant("JSON in the middle of a line is spoken", "segmenter.py", "            self._follow(text[followed:at])\n            return at", "            if self._begins_line(text, at):\n                return at"),
    Mutant("what is talked about is a call", "bare_calls.py", "        if not rest or rest[0] in _LINE_ENDS:", "        if True:"),
    Mutant("a line end behind an engine's own call hides the next one", "segmenter.py", "                self._swallow = self._line_is_blank = True", "                self._swallow = True"),
    Mutant("JSON that was no call is lost", "bare_calls.py", "        raw = \"\".join(self._raw)\n        self.plain, self", "        raw = \"\"\n        self.plain, self"),
    Mutant("a call by a tool's name alone is spoken", "segmenter.py", "if tools.may_become(name) if found.end() == len(text) else name in tools:", "if False:"),
    Mutant("the short way passes a tool's name", "segmenter.py", "if self._looks_for_names and self._tool_name(text, len(text)) < len(text):", "if False:"),
    Mutant("a tool's name in prose is a call", "named_calls.py", 'return tools.may_become(name) if name == head else name in tools', 'return True'),
    Mutant("JSON that may be a call is held without a bound", "bare_calls.py", "LONGEST_BARE = 1 << 16", "LONGEST_BARE = 1 << 30"),
    Mutant("escaped tags are text", "tags.py", 'f"(?:[<\\uff1c]|{_LT})"', 'f"(?:[<\\uff1c])"'),
    Mutant("an escaped tag is not held back", "tags.py", 'pattern = f"(?:{whole}|{_PARTS[atom]})" if atom in _PARTS else whole', "pattern = whole"),
    Mutant("white space before a call is shown", "holdback.py", "            self._blank.append(event)\n            return\n", "            pass\n"),
    Mutant("prose loses its tag", "segmenter.py", "            self._say(block.literal, out)", "            pass"),
    Mutant("a dropped block is spoken", "calls.py", "        self._state = self._in_dropped\n        return body", "        self.done = True\n        return body"),
    Mutant("a dropped block is not counted", "calls.py", "        out.append(Dropped())\n        self._call = None", "        self._call = None"),
    Mutant("an end tag in a string ends a dropped block", "calls.py", "        if self._quoted and not self._line_start:\n            return None\n", ""),
    Mutant("a call in a fence is made", "calls.py", 'if kind == "broken" or (kind != "xml" and self._fenced):', 'if kind == "broken":'),
    Mutant("a number goes out before its end", "jsonscan.py", "if not self._escape and self._scalar < 0 and not self._is_high:", "if not self._escape:"),
    Mutant("braces in strings count", "jsonscan.py", "                if self._in_string:\n", "                if self._in_string and text[at] not in '{}':\n"),
    Mutant("a parameter keeps its newlines", "xmlcall.py", '.removeprefix("\\n").removesuffix("\\n")', ""),
    Mutant("a typed parameter stays text", "xmlcall.py", "self._tools.encode(self.name, self._key, value)", "json.dumps(value)"),
    Mutant("a close does not go through the later stages", "pipeline.py", "[*self._through(self.segmenter.close()), *self._normalized(self.holdback.close())]", "self._normalized(self.holdback.close())"),
    Mutant("a stream without a finish reason is clean", "pipeline.py", 'return self._break("the engine\'s stream ended without a finish_reason", "upstream_truncated")', "pass"),
    Mutant("empty arguments stay empty", "call_normalizer.py", "[CallArguments(self._choice, self._count - 1, rest)] if rest else []", "[]"),
    Mutant("a call ends with stop", "call_normalizer.py", "if self._count and reason in", "if False and reason in"),
    Mutant("[DONE] follows an error", "encode.py", "out.append(error_frame(event.message, event.code))", "out += [error_frame(event.message, event.code), DONE]"),
    Mutant("the short way forgets the tools", "segmenter.py", 'if "`" in text or "~" in text or "\\n" in text:', "if False:"),
    Mutant("the role frame stops the clock", "chunks.py", "        if said.content:\n", "        if said.content is not None:\n"),
    Mutant("null goes out as it came", "call_normalizer.py", 'return "" if "null".startswith(self._seen) else', "return"),
    Mutant("words go out inside a call", "call_normalizer.py", "self._waiting.append(event)\n        return []", "return [event]"),
    Mutant("calls are not counted", "call_normalizer.py", "if self._count == MAX_CALLS:", "if False:"),
    Mutant("another choice is heard", "chunks.py", "if choice.index != 0:", "if False:"),
    Mutant("a deep call is read on", "jsonscan.py", "if len(self._stack) >= MAX_DEPTH:", "if False:"),
    Mutant("what was whole before a fault is lost", "sse.py", "            error.payloads = payloads\n", ""),
    Mutant("arguments that were encoded twice go unchecked at the end", "hermes.py", "            self._check()\n        elif", "            pass\n        elif"),
    Mutant("half of a surrogate pair goes out", "jsonscan.py", "if (0xDC00 <= unit < 0xE000) is not self._is_high:", "if False:"),
    Mutant("a number that is no double goes out", "jsonscan.py", "        if _is_out_of_range(scalar):", "        if False:"),
]  # fmt: skip


def survives(mutant: Mutant) -> bool:
    """Whether every test passes in spite of the fault."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("app", "deploy", "gates"):
            shutil.copytree(ROOT / part, copy / part)  # with what is compiled already
        shutil.copytree(ROOT / TESTS, copy / TESTS)
        (copy / "tests/app/__init__.py").touch()
        for path in [*(ROOT / "tests").glob("*.py"), ROOT / "pyproject.toml"]:
            shutil.copy(path, copy / path.relative_to(ROOT))
        target = copy / STREAM / mutant.file
        text = target.read_text("utf-8")
        if mutant.old not in text:
            raise SystemExit(f"mutant {mutant.name!r}: {mutant.file} no longer holds its line")
        target.write_text(text.replace(mutant.old, mutant.new, 1), "utf-8")
        files = sorted(path for path in (copy / TESTS).glob("test_*.py") if path.name != COST)
        own = f"test_{Path(mutant.file).stem}.py"
        first = [path for path in files if path.name == own]
        first += [path for path in files if path.name in FIRST]
        # In two runs, since most of a run's time goes into collecting its tests.
        return _passes(copy, first) and _passes(copy, [path for path in files if path not in first])


def _passes(folder: Path, files: list[Path]) -> bool:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-qx",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
        *map(str, files),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def main() -> int:
    """Try every mutant; the exit code is the number of survivors."""
    if not survives(CONTROL):
        raise SystemExit(f"{TESTS} fails without a fault: mend that first")
    survivors = 0
    with ThreadPoolExecutor(2) as pool:
        for mutant, survived in zip(MUTANTS, pool.map(survives, MUTANTS), strict=True):
            survivors += survived
            print(f"{'SURVIVED' if survived else 'caught  '}  {mutant.file:12} {mutant.name}", flush=True)
    print(f"{len(MUTANTS) - survivors} of {len(MUTANTS)} faults caught")
    return survivors


if __name__ == "__main__":
    sys.exit(main())
