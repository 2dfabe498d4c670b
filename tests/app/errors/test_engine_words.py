"""What an engine says of a bad request reaches the caller without traces, paths and control characters."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors.engine_words import MAX_WORDS, PATH, fit_for_callers
from app.errors.translate import from_status
from app.errors.tree import EngineRefused
from gates.reply.chunks import MAX_ERROR_CHARS

STREAMS = Path(__file__).parents[2] / "data" / "streams"
SECRET = "s3cret"
"""Stands in all that must not be passed on."""

TRACES = {
    "SGLang and vLLM": f'\n\n  File "/{SECRET}/srt/http_server.py", line 1659, in {SECRET}\n    POST /v1/chat/completions [{SECRET}]',
    "Python": f'\nTraceback (most recent call last):\n  File "x.py", line 3, in {SECRET}\n    {SECRET}()\n    ^^^^^^',
    "Python, no file": f"\nTraceback (most recent call last):\n  {SECRET}",
    "Python, escaped": rf"Traceback (most recent call last):\n  File \"x.py\", line 3, in {SECRET}\n",
    "Python, a group": f"\n  + Exception Group Traceback (most recent call last):\n  | {SECRET}\n  +-+-- 1 --\n    | {SECRET}",
    "Python, chained": f'\nTraceback (most recent call last):\n  File "x.py", line 1, in {SECRET}\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  {SECRET}',
    "Python, rich": f"\n╭── Traceback (most recent call last) ──╮\n│ {SECRET}.py:3 in f │\n│ {SECRET} │\n╰───╯",
    "PyTorch in C++": f" (most recent call first):\nframe #0: c10::{SECRET}(char const*) + 0x57 ({SECRET}.so)\nframe #1: {SECRET}",
    "gdb": f"\n#0  0x00007f12 in {SECRET} () from lib{SECRET}.so\n#1  0x00007f13 in {SECRET} ()",
    "Rust": f"\nstack backtrace:\n   0: {SECRET}\n             at {SECRET}.rs:5",
    "glibc": f"\nlibllama.so(_Z3{SECRET}+0x158) [0x7f12]",
}  # fmt: skip
PATHS = [
    f"/home/annie/{SECRET}.gguf", f"/{SECRET}/models/", f"//srv//{SECRET}", f"/models/{SECRET}/a.gguf:12:",
    f"'/home/annie/My {SECRET}/x'", f'"/{SECRET}/a b/{SECRET}"', f"=/opt/{SECRET}", f"x:/opt/{SECRET},", f"(/opt/{SECRET})",
    f"file:///{SECRET}", f"file:/{SECRET}", f"ipc:///tmp/{SECRET}", rf"C:\Users\{SECRET}", f"D:/models/{SECRET}",
    f"/données/é/{SECRET}", f"-I/usr/{SECRET}", f"/usr/bin:/usr/{SECRET}", rf"\n/opt/{SECRET}", f"\x1b[31m/opt/{SECRET}\x1b[0m",
    f"/op\x00t/{SECRET}", f"/v1.5/{SECRET}", f"/definitions.d/{SECRET}",
]  # fmt: skip
KEPT = [
    "/v1/chat/completions", "/v2/images", "application/json", "text/event-stream", "https://x.dev/a/b", "http://x:80/a/b", "</think>",
    "<a/>", "/no_think", "and/or", "1/2/3", "#/$defs/Person", "/properties/name/type", "messages[0]/content/0", "./a/b", "../a/b",
    "a / b", "0x7f", "line 12", "(most recent)", "at 10:30", "C:", "Traceback", "{'loc': ('body', 'top_p')}",
]  # fmt: skip


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_goes_and_the_reason_stays(name: str) -> None:
    said = f"top_p must be at most 1{TRACES[name]}"
    assert fit_for_callers(said).startswith("top_p must be at most 1")
    assert SECRET not in fit_for_callers(said)
    assert SECRET not in fit_for_callers(TRACES[name].strip())


def test_what_was_wrong_stands_below_a_trace_and_stays() -> None:
    said = f"Traceback (most recent call last):\n  {SECRET}\nValueError: top_p is 7\n  and so on"
    assert fit_for_callers(said) == "ValueError: top_p is 7 and so on"


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_the_engines_machine_goes(path: str) -> None:
    said = fit_for_callers(f"cannot open {path} now")
    assert SECRET not in said
    assert said.startswith("cannot open ")
    assert said.endswith(" now")
    assert PATH in said


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert fit_for_callers(f"no {text} here") == f"no {text} here"
    assert fit_for_callers(f"no '{text}' here") == f"no '{text}' here"


@pytest.mark.parametrize("said", ["", " \n", "/a/b/c", "...", 'File "x.py", line 3, in f', "\x1b[31m\x00"])
def test_if_nothing_is_left_the_gateway_says_so(said: str) -> None:
    assert fit_for_callers(said) == ""
    error = from_status(400, json.dumps({"error": {"message": said or " "}}).encode())
    assert error.message.startswith("the engine refused the request without a reason")


@pytest.mark.parametrize("recorded", sorted(STREAMS.glob("*-error-field.sse")), ids=lambda path: path.stem)
def test_every_recorded_refusal_says_what_was_wrong_and_where_no_code_lies(recorded: Path) -> None:
    error = from_status(400, recorded.read_bytes())
    assert isinstance(error, EngineRefused)
    assert "no_such_format" in error.message
    assert "File" not in error.message
    assert ".py" not in error.message


PIECES = st.one_of(
    st.sampled_from(list(TRACES.values())).map(lambda trace: f"{trace}\n"),
    st.sampled_from(PATHS).map(lambda path: f" {path} "),
    st.sampled_from([f"{kept} " for kept in KEPT]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(lambda text: f"{text} "),
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_in_any_company(message: str) -> None:
    said = fit_for_callers(message)
    assert SECRET not in said
    assert said.isprintable()
    assert len(said) <= MAX_WORDS
    assert fit_for_callers(said) == said


@pytest.mark.parametrize(
    "unit", ["/", "/a", "(/", " /a", "at ", "#1 ", "(+0x", "A:/", "a:", '"/', "'/a/", 'File "', " at a:1", " in ", "\\n/"]
)  # fmt: skip
def test_the_longest_message_is_little_work(unit: str) -> None:
    """It ends: what is quadratic without a bound would take minutes for the whole table."""
    for start in ("", "at ", "#1 ", "#1 a", "at a", "'/a/"):
        fit_for_callers(start + unit * (MAX_ERROR_CHARS // len(unit)))
