"""`manners data generate`: what a teacher says is kept or told off, counted, and never asked for twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from quantizer.data import conversation
from tests.quantizer.data.teachers import Teacher, plan_file, teaching, whole
from tests.script import status

ROOT = Path(__file__).parents[3]


@pytest.fixture
def teacher() -> Iterator[Teacher]:
    with teaching() as made:
        yield made


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return plan_file(tmp_path)


def words(teacher: Teacher, plan: Path, out: Path, *more: str) -> list[str]:
    fixed = ["--url", f"{teacher.url}/v1", "--plan", str(plan), "--out", str(out), "--model", "scripted"]
    fixed += ["--suite", "annie"]
    return ["data", "generate", *fixed, *more]


def made(teacher: Teacher, plan: Path, out: Path, *more: str) -> dict[str, Any]:
    """The manifest of a run that went well."""
    assert main(words(teacher, plan, out, *more)) == 0
    manifest: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return manifest


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "conversations.jsonl").read_text().splitlines()]


def test_a_teacher_that_behaves_gives_what_was_asked_for(
    teacher: Teacher, plan: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    manifest = made(teacher, plan, out)

    assert manifest["categories"] == {"factual": 3, "memory": 4} and manifest["with_calls"] == 4
    assert manifest["file"]["digest"] == conversation.file_digest(out / "conversations.jsonl")
    assert len(teacher.requests) == manifest["answers_asked_for"] == 3 + 4 * 2
    read = list(conversation.read(out / "conversations.jsonl"))
    assert [len(row.messages) for row in read] == [3] * 3 + [5] * 4
    assert all(row.switches == {"enable_thinking": False} for row in read)
    memory = rows(out)[-1]["messages"]
    assert [m["role"] for m in memory] == ["system", "user", "assistant", "tool", "assistant"]
    assert memory[2]["tool_calls"][0]["id"] == memory[3]["tool_call_id"] == "call_0"
    assert isinstance(memory[2]["tool_calls"][0]["function"]["arguments"], str)


BAD = [
    (whole("**Tokyo** is the capital."), "markdown: strong"),
    (whole("Okay, the user asks for a capital. Let me think. It is Tokyo."), "leak: "),
    (whole("<tool_call>\n{\"name\": \"web_search\", \"arguments\": {}}\n</tool_call>"), "raw_call: call_tag"),
    (whole(""), "empty: nothing"),
    (whole("I have no idea at all."), "answer: missing"),
    (whole("ಟೋಕಿಯೋ ರಾಜಧಾನಿ."), "script: wrong_script"),
    (whole("Tokyo, Paris, Rome, Madrid, Cairo and Kathmandu.", reason="length"), "cut off: too many tokens"),
    (whole(calls=[("web_search", "{\"query\": \"capital\"}")]), "toolcall: "),
    (whole("I can't help with capitals. " + "It is Tokyo, Paris, Rome, Madrid, Cairo or so."), "refusal: declines"),
    (status(400, {"error": {"message": "too long", "code": 400}}), "refused: HTTP 400"),
]  # fmt: skip


@pytest.mark.parametrize("answer, code", BAD)
def test_an_unfit_answer_is_counted_by_its_reason_and_another_is_asked_for(
    answer: Any, code: str, teacher: Teacher, plan: Path, tmp_path: Path
) -> None:
    teacher.mischief = lambda body, number: answer if number == 1 else None
    manifest = made(teacher, plan, tmp_path / "out", "--count", "memory=0", "--concurrency", "1")

    assert manifest["categories"] == {"factual": 3, "memory": 0}
    [(reason, count)] = manifest["rejected"]["factual"].items()
    assert reason.startswith(code) and count == 1
    assert len(teacher.requests) == 4


@pytest.mark.parametrize(
    "code, line", [(401, "wants another API key (HTTP 401)"), (404, "does not serve 'scripted'")]
)
def test_a_teacher_that_refuses_everybody_ends_the_run(
    code: int, line: str, teacher: Teacher, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher.mischief = lambda body, number: status(code, {"error": {"message": "no"}})
    assert main(words(teacher, plan, tmp_path / "out", "--json")) == 69

    assert line in capsys.readouterr().err and not (tmp_path / "out" / "manifest.json").exists()


def test_the_key_goes_out_and_is_nowhere_on_the_disk(
    teacher: Teacher, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHER_KEY", "sk-very-private")
    made(teacher, plan, tmp_path / "out", "--key-env", "TEACHER_KEY")

    assert teacher.requests[0].headers["authorization"] == "Bearer sk-very-private"
    assert not [p for p in (tmp_path / "out").iterdir() if b"sk-very" in p.read_bytes()]


def test_another_teacher_does_not_go_on_where_one_stopped(
    teacher: Teacher, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(teacher, plan, tmp_path / "out")

    assert main([*words(teacher, plan, tmp_path / "out"), "--model", "other"]) == 65
    assert "give the run a folder of its own" in capsys.readouterr().err


@pytest.mark.slow  # three processes that import the quantizer, two of them killed: 10 s
def test_a_run_that_is_killed_goes_on_without_a_loss_or_a_second_question(
    teacher: Teacher, plan: Path, tmp_path: Path
) -> None:
    out, more = tmp_path / "killed", ["--count", "memory=9", "--count", "factual=5", "--concurrency", "2"]
    argv = [sys.executable, "-m", "app", *words(teacher, plan, out, *more, "--json")]
    on_file = 0
    for _ in range(2):
        child = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL)
        while lines(out) < on_file + 3 and child.poll() is None:
            time.sleep(0.001)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        on_file = lines(out)
        assert not (out / "manifest.json").exists()
    made(teacher, plan, out, *more)
    asked = Counter(seen.raw for seen in teacher.requests)
    straight = made(teacher, plan, tmp_path / "straight", *more)

    killed = json.loads((out / "manifest.json").read_text())
    assert killed["file"] == straight["file"] and killed["rejected"] == straight["rejected"]
    assert len(asked) == straight["answers_asked_for"] == lines(out)
    assert sum(asked.values()) <= len(asked) + 2 * 2  # only what a kill cut short, two at a time


def lines(out: Path) -> int:
    path = out / "ledger.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_what_a_suite_asks_is_never_asked_of_the_teacher(
    teacher: Teacher, plan: Path, tmp_path: Path
) -> None:
    plan.write_text(
        plan.read_text().replace(
            "What did {person} say about the {topic}?", "What did Priya say about the trip to Goa?"
        )
    )
    assert main(words(teacher, plan, tmp_path / "out", "--count", "factual=0")) == 65

    assert not teacher.requests
