"""A gate of one's own as a stranger runs it, on real llama.cpp: asked, judged again, and compared."""

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml

from app.__main__ import _parser, main
from gates.report.keys import load_or_make
from gates.run import rulings
from tests.script import reply
from tests.scripted_engine import ScriptedEngine

SUITE = """\
prompts:
  - {prompt: "Hello, how are you?", max_sentences: 4}
  - {prompt: "Good morning!", max_sentences: 4}
  - {prompt: "Good night!", max_sentences: 4, language: en, python: "own.py:spoken"}
  - {prompt: "What is three plus four?", contains: [seven]}
"""
ASK = [
    "gate",
    "run",
    "--suite",
    "mine.yaml",
    "--json",
    "--candidate",
    "annie-nano",
    "--baseline",
    "annie-nano-bf16",
]
ROOT = Path(__file__).parents[3]
ARGO, HELM = "deploy/argo/analysistemplates.yaml", "tests/ops/helm/trial.yaml"
"""The manifests of a Job that compares two running engines."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the suite."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(SUITE)
    Path("own.py").write_text("def spoken(prompt, reply):\n    return '#' not in reply, 'a heading'\n")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main([*words])
    return code, capsys.readouterr().out


def job_command(manifest: str, **values: str) -> list[str]:
    """The command of a manifest's Job, with a controller's values in place and its folders replaced by the current one."""
    (args,) = re.findall(r"args:\n((?: +- .*\n)+) +(?:security|volume)", (ROOT / manifest).read_text())
    text = re.sub(r"/var/lib/manners|/etc/manners", ".", args)
    for name, value in values.items():
        text = re.sub(rf"(?<=--{name}=).*", value, text)
    return [str(word) for word in yaml.safe_load(text)]


async def test_a_controllers_job_compares_two_running_engines(folder: Path) -> None:
    """It ends by the verdict. Its report is genuine, and about addresses: no promotion takes it."""
    async with ScriptedEngine() as candidate, ScriptedEngine() as baseline:
        urls = {"candidate-url": f"{candidate.url}/v1/", "baseline-url": baseline.url}
        asked = job_command(ARGO, **urls, suite="mine.yaml", policy="derived")
        assert await asyncio.to_thread(main, [one for one in asked if "baseline" not in one]) == 64
        _parser().parse_args(job_command(HELM, **urls))
        good, leak = reply("It is seven."), reply("<think>The user asks.")
        runs = ("one", good, good, 0), ("two", leak, good, 1), ("three", good, leak, 2)
        for out, said, again, code in runs:
            candidate.always(*said)
            for _ in range(4):
                baseline.play(*good)
            baseline.always(*again)  # the baseline is asked a second time, and should not differ
            assert await asyncio.to_thread(main, [*asked, "--out", out, "--jobs=2"]) == code
            baseline.forget()
    assert main(["gate", "verify", "one/report.json"]) == 0
    assert main(["gate", "export", "two", "--inspect", "logs"]) == 0  # tests/clients reads them
    (path,) = Path("logs").glob("*_mine_candidate.json")
    log = json.loads(path.read_text())
    assert log["eval"]["task"] == "mine (candidate)" and log["version"] == 2
    assert {one["scores"]["manners"]["value"] for one in log["samples"]} == {"I"}
    assert log["samples"][0]["input"][-1]["content"] == "Hello, how are you?"


@pytest.mark.slow
def test_a_suite_of_four_prompts_is_asked_judged_again_and_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = said(capsys, *ASK, "--out", "one")
    asked = json.loads(out)
    assert code == {"pass": 0, "fail": 1}[asked["verdict"]]
    assert {gate["gate"] for gate in asked["gates"]} == {"leak", "raw_call", "empty", "checks"}
    assert next(gate for gate in asked["gates"] if gate["gate"] == "checks")["n"] == 4
    assert [file["name"] for file in asked["attachments"]] == ["mine.yaml", "own.py", "rulings.jsonl"]
    assert said(capsys, "gate", "verify", "one/report.json")[0] == 0

    monkeypatch.setattr(rulings, "ask_function", None)  # judging again runs nobody's code
    code_again, out = said(capsys, "gate", "rejudge", "one", "--suite", "mine.yaml", "--json")
    again = json.loads(out)
    assert (code_again, again["gates"]) == (code, asked["gates"])

    Path("mine.yaml").write_text(SUITE.replace("seven", "eight"))
    assert said(capsys, "gate", "rejudge", "one", "--suite", "mine.yaml")[0] == 65  # not what was asked
    assert said(capsys, "gate", "rejudge", "one")[0] == code  # by the copy in its folder

    code, out = said(capsys, "gate", "compare", "one", "one")
    assert code == 0 and "checks" in out and "annie-nano" in out and "derived 1" in out

    load_or_make(folder / "other")
    assert main(["gate", "compare", "one", "--trust", "other"]) == 1
    assert "manners gate compare: report_signature: one: signed by " in capsys.readouterr().err
