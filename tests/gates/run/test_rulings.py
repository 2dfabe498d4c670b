"""Checks outside of the detectors: an author's function in a child process, and a judge model at a server of the test's own."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gates.contracts.errors import SamplesError, SuiteError
from gates.contracts.sample import Sample, SampleKey, TimedRead
from gates.contracts.verdict import Verdict
from gates.judge.score import Ruling, judge_agreement, score
from gates.policy.load import derive
from gates.run import rulings
from gates.run.rulings import OutsideChecks, ask_function, ask_judge, check_judge, read_rulings
from gates.suite.load import load_suite

CODE = """\
import os, time
def has(prompt, reply): return "x" in reply
def why(prompt, reply): return prompt == "P", f"asked {prompt}"
def loud(prompt, reply): print("no answer"); os.system("echo no answer"); return True
def odd(prompt, reply): return 1
def lost(prompt, reply): return 1 / 0
def gone(prompt, reply): os._exit(0)
def slow(prompt, reply): time.sleep(600)
"""


@pytest.fixture(autouse=True)
def no_time_limit_that_a_busy_host_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rulings, "FUNCTION_SECONDS", 300.0)


def written(folder: Path, function: str) -> dict[str, str]:
    (folder / "own.py").write_text(CODE)
    return {"file": "own.py", "function": function, "sha256": hashlib.sha256(CODE.encode()).hexdigest()}


@pytest.mark.parametrize(
    ("function", "ruling"),
    [
        ("has", ("ok", "has: ")),
        ("why", ("bad", "why: asked Q")),
        ("loud", ("ok", "loud: ")),
        ("odd", ("lost", "odd: TypeError: returned 1, which is no bool and no (bool, reason)")),
        ("lost", ("lost", "lost: ZeroDivisionError: division by zero")),
        ("gone", ("lost", "gone: its process ended")),
    ],
)
async def test_a_function_of_the_authors_rules(
    tmp_path: Path, function: str, ruling: tuple[str, str]
) -> None:
    assert await ask_function(tmp_path, written(tmp_path, function), prompt="Q", reply="x") == ruling


async def test_a_function_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rulings, "FUNCTION_SECONDS", 0.1)
    found = await ask_function(tmp_path, written(tmp_path, "slow"), prompt="Q", reply="x")
    assert found == ("lost", "slow: took more than 0.1 s")


async def test_a_file_that_changed_since_it_was_hashed_does_not_run(tmp_path: Path) -> None:
    wanted = written(tmp_path, "has")
    (tmp_path / "own.py").write_text(CODE + "\n")
    with pytest.raises(SuiteError, match="has changed"):
        await ask_function(tmp_path, wanted, prompt="Q", reply="x")


class JudgeServer(HTTPServer):
    """Answers every question with the next of `answers`."""

    answers: list[str]
    asked: list[dict[str, Any]]


class _Handler(BaseHTTPRequestHandler):
    server: JudgeServer

    def do_GET(self) -> None:
        self._send({"data": [{"id": "m"}]}, 401 if self.headers["authorization"] == "Bearer no" else 200)

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        said = self.server.answers.pop(0)
        self._send({"choices": [{"message": {"content": said}}]})

    def _send(self, value: object, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    made = JudgeServer(("127.0.0.1", 0), _Handler)
    made.answers, made.asked = [], []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def judge(server: JudgeServer, **more: object) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{server.server_port}/v1", "model": "m", "rubric": "It is kind.", **more}


@pytest.mark.parametrize(
    ("answers", "other", "outcome"),
    [
        (["YES\nIt is."], None, "ok"),
        (["**No.** It is not."], None, "bad"),
        (["It is, as far as I can tell.\n\nYes"], None, "ok"),
        (["Nobody can say."], None, "lost"),
        (["A"], "other", "ok"),
        (["EQUAL"], "other", "ok"),
        (["B: it is kinder.", "A"], "other", "bad"),  # the other one is better in both orders
        (["B", "B"], "other", "ok"),  # the judge likes what comes last
    ],
)
async def test_a_judge_rules(
    server: JudgeServer, answers: list[str], other: str | None, outcome: str
) -> None:
    server.answers = list(answers)
    assert (await ask_judge(judge(server), "Q", 'Say "YES"', other)).outcome == outcome
    shown = [body["messages"][1]["content"] for body in server.asked]
    assert len(shown) == len(answers) and all(r'"Say \"YES\""' in text for text in shown)


async def test_a_judge_that_cannot_be_asked_is_found_before_anything_starts(
    server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_judge(judge(server))
    monkeypatch.setenv("KEY", "no")
    for wanted, why in (
        (judge(server, key_env="KEY"), "refuses the key"),
        (judge(server) | {"model": "other"}, "has no model 'other'; it has m"),
        (judge(server) | {"url": "http://127.0.0.1:9/v1"}, "does not answer"),
    ):
        with pytest.raises(SuiteError, match=why):
            await check_judge(wanted)


async def test_a_file_that_cannot_be_imported_is_found_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import no_such_module\ndef f(prompt, reply): ...\n")
    (tmp_path / "s.yaml").write_text("- {prompt: Q, python: 'own.py:f'}")
    with pytest.raises(SuiteError, match=r"own.py cannot be loaded: f: ModuleNotFoundError"):
        await OutsideChecks(load_suite(tmp_path / "s.yaml").cases, tmp_path / "s.yaml").checked()


def sample(arm: str, text: str) -> Sample:
    chunk = {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}
    data = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    key = SampleKey("s", "a", "e", "r", arm, "prompt-001", 0, "stream")
    return Sample(key, {}, "", 200, 1, (TimedRead(1, data),), 2)


async def test_rulings_are_asked_once_stored_and_decide(server: JudgeServer, tmp_path: Path) -> None:
    written(tmp_path, "has")
    labels = [{"reply": "good", "good": True}, {"reply": "bad", "good": False}]
    prompt = {"prompt": "Q", "python": "own.py:has", "judge": judge(server, labels=labels)}
    (tmp_path / "s.jsonl").write_text(json.dumps(prompt))
    suite = load_suite(tmp_path / "s.jsonl")
    server.answers = ["YES", "YES", "NO", "no word"]
    samples, file = [sample("candidate", "y"), sample("baseline", "x")], tmp_path / "rulings.jsonl"
    outside = OutsideChecks(suite.cases, tmp_path / "s.yaml")
    await outside.ask(samples, file)
    results = score(derive(suite), suite, samples, rulings=outside.rulings).results
    outcomes = {arm: {one.gate: one.outcome for one in found} for arm, found in results.items()}
    assert outcomes["candidate"] | {"leak": "", "raw_call": "", "empty": ""} == {
        "leak": "", "raw_call": "", "empty": "", "checks": "bad", "judge": "bad"
    }  # fmt: skip
    assert (outcomes["baseline"]["checks"], outcomes["baseline"]["judge"]) == ("ok", "lost")
    agreed = judge_agreement(suite, outside.rulings, 0.95)
    assert agreed and agreed.verdict is Verdict.INCONCLUSIVE and "did on 1 of 2" in agreed.sentence

    server.answers = ["YES"]  # what was lost is asked again, and nothing else
    again = OutsideChecks(suite.cases, tmp_path / "s.yaml")
    await again.ask(samples, file)
    assert server.answers == [] and set(read_rulings(file).values()) == set(again.rulings.values())
    assert Ruling("lost") not in again.rulings.values()


def test_a_file_of_rulings_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "rulings.jsonl").write_text("[1]\n")
    with pytest.raises(SamplesError, match="no file of rulings"):
        read_rulings(tmp_path / "rulings.jsonl")
