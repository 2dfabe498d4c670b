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
MUTANTS = [
    Mutant("a lone CR at a read's end is taken for a line end", "sse.py", "self._after_cr = data[-1] == 0x0D", "self._after_cr = False"),
    Mutant("the last event is lost without a blank line", "sse.py", '        self._take(b"", payloads)\n        return payloads', "        return payloads"),
    Mutant("a partial line is dropped", "sse.py", "        if rest:\n            self._grow(rest)", "        pass"),
    Mutant("lines end at U+2028", "sse.py", "lines = data.splitlines()", 'lines = [x.encode("utf-8", "surrogateescape") for x in data.decode("utf-8", "surrogateescape").splitlines()]'),
    Mutant("no hold-back of a partial tag", "tags.py", "return None, last", "return None, len(text)"),
    Mutant("the think filter does not flush", "think.py", "        else:\n            self._show(held, out)\n        self._release(out)", "        self._release(out)"),
    Mutant("guarded text is lost at the end", "think.py", "            self._flush_withheld(out)\n            out.append(Text(self._choice, text))\n\n    def _ponder", "            self._flush_withheld(out)\n\n    def _ponder"),
    Mutant("a thought overtakes held text", "think.py", "        self._show(held, out)\n        self._release(out)\n", "        self._held = held\n"),
    Mutant("an unclosed thought is spoken", "think.py", "            self._ponder(held, out)\n            self._end_unclosed_thought(reason, out)", "            out.append(Text(self._choice, held))"),
    Mutant("an orphan end tag lets its thought out", "think.py", 'lost = "".join(self._guarded)\n        self._guarded, self._guarded_size = [], 0', 'lost = ""\n        self._release(out)'),
    Mutant("newlines behind a thought are spoken", "think.py", "        self._strip = True\n        self._guard = 0 if", "        self._guard = 0 if"),
    Mutant("the call extractor does not flush", "calls.py", "        self._say(held, out)\n        return out", "        return out"),
    Mutant("an event overtakes the extractor's held text", "calls.py", "return [*self.close(reason), event]", "return [event, *self.close(reason)]"),
    Mutant("an unfinished call loses its tag", "calls.py", "        self._say(tag, out)\n        return raw[len(tag) :]", "        return raw[len(tag) :]"),
    Mutant("a call in a fence is made", "calls.py", "if self._fences.inside:", "if False:"),
    Mutant("a number goes out before its end", "jsonscan.py", "if not (self._escape or self._scalar):", "if not self._escape:"),
    Mutant("braces in strings count", "jsonscan.py", "if self._in_string:\n            self._string(char)", 'if self._in_string and char not in "{}":\n            self._string(char)'),
    Mutant("a parameter keeps its newlines", "xmlcall.py", 'start = max(self._sent, 1 if value.startswith("\\n") else 0)', "start = self._sent"),
    Mutant("a typed parameter stays text", "schema.py", 'if types == {"string"}:', "if True:"),
    Mutant("a close does not go through the later stages", "pipeline.py", "events = [*_through(self.extract, events), *self.extract.close()]", "pass"),
    Mutant("a stream without a finish reason is clean", "pipeline.py", 'return self._break("the engine\'s stream ended without a finish_reason", "upstream_truncated")', "pass"),
    Mutant("empty arguments stay empty", "callbook.py", "if not text.strip() and reason != \"length\":", "if False:"),
    Mutant("a call ends with stop", "callbook.py", "if self._count and reason in", "if False and reason in"),
    Mutant("[DONE] follows an error", "encode.py", "out.append(error_frame(event.message, event.code))", "out += [error_frame(event.message, event.code), DONE]"),
    Mutant("the short way forgets the tools", "pipeline.py", "if choice.extract is not None and not choice.extract.passes(joined):", "if False:"),
    Mutant("the role frame stops the clock", "chunks.py", "        if said.content:\n", "        if said.content is not None:\n"),
]  # fmt: skip


def survives(mutant: Mutant) -> bool:
    """Whether every test passes in spite of the fault."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("app", "deploy", "gates"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "tests/app/stream", copy / "tests/app/stream")
        for package in ("tests", "tests/app"):
            (copy / package / "__init__.py").touch()
        shutil.copy(ROOT / "pyproject.toml", copy)
        target = copy / STREAM / mutant.file
        text = target.read_text("utf-8")
        if mutant.old not in text:
            raise SystemExit(f"mutant {mutant.name!r}: {mutant.file} no longer holds its line")
        target.write_text(text.replace(mutant.old, mutant.new, 1), "utf-8")
        command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "tests/app/stream"]
        return subprocess.run(command, cwd=copy, capture_output=True, check=False).returncode == 0


def main() -> int:
    """Try every mutant; the exit code is the number of survivors."""
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(zip(MUTANTS, pool.map(survives, MUTANTS), strict=True))
    for mutant, survived in outcomes:
        print(f"{'SURVIVED' if survived else 'caught  '}  {mutant.file:12} {mutant.name}")
    survivors = sum(survived for _, survived in outcomes)
    print(f"{len(outcomes) - survivors} of {len(outcomes)} faults caught")
    return survivors


if __name__ == "__main__":
    sys.exit(main())
