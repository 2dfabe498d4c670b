"""How often real models write each form of a thought, a call or a marker.

`python -m tests.duel.forms REPLIES.jsonl…` prints the table of docs/tool-calls.md: one row for each form, one
column for each cell (model, tools declared or not, temperature), and one for the recorded streams of tests/data/streams.
A row of REPLIES.jsonl has `model`, `tools` (names), `temperature`, `reply`, and `end` (`limit`: cut by max_tokens).
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.conformance.golden import FOLDER

FENCE = re.compile(r"```([^\n`]*)\n(.*?)(?:```|\Z)", re.DOTALL)
SPAN = re.compile(r"`[^`\n]+`")
THINK = "think|thinking|thought|thoughts|reasoning|reason|reflection|scratchpad"
WRAPPER = "answer|response|output|final|final_answer|result"
CALL_TAGS = "function_call|function_calls|functioncall|tool|tools|toolcall|tool_use|invoke|call"
PATTERNS = {
    "`<|…|>`": re.compile(r"<\|[a-z_ ]+\|>", re.IGNORECASE),
    "`[TOOL_CALLS]` and the like": re.compile(r"\[/?(TOOL_CALLS?|TOOL_REQUEST|INST|THINK)\]"),
    "`<function=…>`, `<invoke …>`": re.compile(r"<(function=|invoke |parameter=)"),
    "ReAct lines": re.compile(r"^\W*(Action|Action Input|Observation|Thought)\s*:", re.MULTILINE),
    "invented turn": re.compile(
        r"\n\s*(?:\*\*)?(?:User|Human|Assistant|AI|system|user|assistant)(?:\*\*)?:\s|<\|(?:user|im_start|assistant)\b|### Instruction"
    ),
    "`<tool_response>` echoed": re.compile(r"</?tool_response>"),
}
HALF_CALL = re.compile(r"\{\s*\"name\"\s*:\s*\"[^\"\n]+\"\s*,\s*\"(arguments|parameters)\"")
DECODER = json.JSONDecoder(strict=False)


def objects(text: str) -> Iterator[tuple[int, int, Any]]:
    """JSON objects and arrays of `text`, outermost ones, with their places."""
    at = 0
    while (found := re.compile(r"[{\[]").search(text, at)) is not None:
        try:
            value, end = DECODER.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            at = found.end()
            continue
        yield found.start(), end, value
        at = end


def as_calls(value: Any) -> list[dict[str, Any]]:
    """Calls in a JSON value: an object (or a list of objects) with a name and something like arguments."""
    items = value if isinstance(value, list) else [value]
    return [i for i in items if isinstance(i, dict) and _name(i) is not None]


def _name(item: dict[str, Any]) -> str | None:
    inner = item.get("function")
    if isinstance(inner, dict):
        return _name(inner)
    name = next((item[k] for k in ("name", "function", "tool", "action", "tool_name") if k in item), None)
    has = any(k in item for k in ("arguments", "parameters", "args", "input", "action_input", "kwargs"))
    return name if isinstance(name, str) and has else None


def forms(reply: str, tools: list[str], is_cut: bool = False) -> set[str]:
    """The names of all forms in a reply."""
    out: set[str] = set()
    for tag in sorted(set(re.findall(rf"</?({THINK})>", reply, re.IGNORECASE))):
        out |= _paired(reply, tag, "thought", is_cut)
    for tag in sorted(set(re.findall(rf"</?({WRAPPER})>", reply, re.IGNORECASE))):
        out |= _paired(reply, tag, "wrapper", is_cut)
    out |= _paired(reply, "tool_call", "call", is_cut)
    for tag in sorted(set(re.findall(rf"</?({CALL_TAGS})>", reply, re.IGNORECASE))):
        out.add(f"`<{tag.lower()}>`")
    out |= {name for name, pattern in PATTERNS.items() if pattern.search(reply)}
    out |= _calls(reply, tools)
    if len(HALF_CALL.findall(reply)) > sum(len(as_calls(value)) for *_, value in objects(reply)):
        out.add("JSON call that is not whole" + (", cut by length" if is_cut else ""))
    if not reply.strip():
        out.add("empty reply")
    return out


def _paired(reply: str, tag: str, what: str, is_cut: bool) -> set[str]:
    opened = len(re.findall(rf"<{tag}>", reply, re.IGNORECASE))
    closed = len(re.findall(rf"</{tag}>", reply, re.IGNORECASE))
    if not opened and not closed:
        return set()
    name = f"{what} `<{tag.lower()}>`"
    if not opened:
        return {f"{name}: closer alone"}
    if closed < opened:
        return {f"{name}: not closed, cut by length" if is_cut else f"{name}: not closed"}
    if closed > opened:
        return {f"{name}: more closers than openers"}
    return {f"{name}: pair"}


def _calls(reply: str, tools: list[str]) -> set[str]:
    out: set[str] = set()
    fences = [(m.start(2), m.end(2), m[1].strip().lower()) for m in FENCE.finditer(reply)]
    tagged = [m.span() for m in re.finditer(r"<tool_call>.*?(?:</tool_call>|\Z)", reply, re.DOTALL)]
    for start, end, value in objects(reply):
        calls = as_calls(value)
        if calls:
            out.add(_place(reply, start, end, fences, tagged))
            out |= {defect for call in calls for defect in _defects(call, tools)}
            if len(calls) > 1:
                out.add("several calls in one array")
        elif tools and isinstance(value, dict) and value and reply.strip() == reply[start:end]:
            out.add("JSON object that is no call, alone")
    for name in tools:
        quoted = re.escape(name)
        if re.search(rf"^\s*\[?{quoted}\([^\n]*\)\]?\s*$", reply, re.MULTILINE):
            out.add("Python call of a declared tool, alone on its line")
        elif re.search(rf"\b{quoted}\([^\n]*\)", reply):
            out.add("Python call of a declared tool, in a line")
        if re.search(rf"<{quoted}[ >/]", reply):
            out.add("element named as a declared tool")
        if reply.strip() == name:
            out.add("name of a declared tool alone")
    for start, end in tagged:
        body = reply[start:end].removeprefix("<tool_call>").removesuffix("</tool_call>")
        if not any(as_calls(value) for *_, value in objects(body)):
            out.add("`<tool_call>` body that is no whole JSON call")
    return out


def _place(
    reply: str, start: int, end: int, fences: list[tuple[int, int, str]], tagged: list[tuple[int, int]]
) -> str:
    if any(a <= start and end <= b for a, b in tagged):
        return "JSON call in `<tool_call>`"
    for a, b, label in fences:
        if a <= start and end <= b:
            alone = "alone in" if reply[a:b].strip() == reply[start:end] else "within"
            return f"JSON call {alone} a ```{label or '(no label)'} fence"
    if reply.strip() == reply[start:end]:
        return "JSON call, the whole reply"
    before, after = reply[:start].rpartition("\n")[2], reply[end:].partition("\n")[0]
    return "JSON call in a line of prose" if (before + after).strip() else "JSON call alone on its lines"


def _defects(call: dict[str, Any], tools: list[str]) -> Iterator[str]:
    inner = call["function"] if isinstance(call.get("function"), dict) else call
    if tools and _name(call) not in tools:
        yield "call: name that was not declared"
    arguments = inner.get("arguments", inner.get("parameters", inner.get("args")))
    if isinstance(arguments, str):
        yield "call: arguments as a string"
    elif not isinstance(arguments, dict):
        yield "call: arguments are no object"
    if "arguments" not in inner:
        yield "call: key other than `arguments`"
    if set(inner) - {"name", "arguments", "id", "type"}:
        yield "call: further keys"


def recorded() -> Iterator[tuple[str, list[str]]]:
    """What the recorded streams say as text, and the tools of their requests."""
    for path in sorted(FOLDER.glob("*.sse")):
        asked = json.loads(path.with_suffix(".json").read_text("utf-8"))
        names = [t["function"]["name"] for t in asked["asked"].get("tools") or []]
        text = ""
        for line in path.read_text("utf-8", errors="replace").splitlines():
            try:
                chunk = json.loads(line.removeprefix("data: "))
            except ValueError:
                continue
            for choice in chunk.get("choices", []) if isinstance(chunk, dict) else []:
                text += (choice.get("delta") or {}).get("content") or ""
        yield text, names


def table(rows: list[dict[str, Any]]) -> str:
    """The whole table in Markdown: per cent of the replies of each cell, and the count over all."""
    sizes: Counter[str] = Counter()
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        cell = f"{row['model']}, {'tools' if row['tools'] else 'no tools'}, {row['temperature']:g}"
        sizes[cell] += 1
        for form in forms(row["reply"], row["tools"], row.get("end") == "limit"):
            found[form][cell] += 1
    for text, names in recorded():
        sizes["recorded"] += 1
        for form in forms(text, names):
            found[form]["recorded"] += 1
    cells = [*sorted(c for c in sizes if c != "recorded"), "recorded"]
    lines = ["| form | " + " | ".join(cells) + " | all |", "|---" * (len(cells) + 2) + "|"]
    lines.append("| *replies* | " + " | ".join(str(sizes[c]) for c in cells) + f" | {sizes.total()} |")
    for form in sorted(found, key=lambda f: -found[f].total()):
        shown = [str(found[form][c] or "") for c in cells]
        lines.append(f"| {form} | " + " | ".join(shown) + f" | {found[form].total()} |")
    return "\n".join(lines)


def main(paths: list[str]) -> None:
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            rows += [json.loads(line) for line in file]
    print(table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
