"""inspect_ai reads what `manners gate export --inspect` writes."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from app.__main__ import main
from tests.clients.test_clients import PYTHON
from tests.script import reply
from tests.scripted_engine import ScriptedEngine

SUITE = """\
- {prompt: A, contains: seven}
- {prompt: B, no_call: true, tools: [{name: set_timer, parameters: {type: object}}]}
"""
READ = """\
import json, sys
from inspect_ai.log import bundle_log_dir, read_eval_log
bundle_log_dir("logs", "bundle")
for path in sys.argv[1:]:
    log = read_eval_log(path)
    scores = {score.name: score.metrics["good"].value for score in log.results.scores}
    values = [[sample.scores["manners"].value, sample.output.completion] for sample in log.samples]
    print(json.dumps([log.eval.task, log.eval.model, scores, values]))
"""


@pytest.mark.clients
@pytest.mark.engine
@pytest.mark.skipif(not PYTHON.exists(), reason="inspect_ai is missing: make test-clients")
async def test_inspect_reads_and_bundles_an_exported_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(SUITE)
    async with ScriptedEngine() as candidate, ScriptedEngine() as baseline:
        candidate.always(*reply("It is eight."))
        baseline.always(*reply("It is seven."))
        urls = ["--candidate-url", candidate.url, "--baseline-url", baseline.url]
        assert await asyncio.to_thread(main, ["gate", "run", "--suite", "mine.yaml", *urls]) == 1
    assert main(["gate", "export", "gate", "--inspect", "logs"]) == 0
    paths = sorted(map(str, Path("logs").glob("*_mine_*.json")))
    done = subprocess.run([str(PYTHON), "-c", READ, *paths], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    found = {line[0]: line[1:] for line in lines}
    assert set(found) == {"mine (candidate)", "mine (baseline)"} and Path("bundle/index.html").is_file()
    model, scores, values = found["mine (candidate)"]
    assert scores["leak"] == 1.0 and scores["checks"] == 0.0
    assert ["I", "It is eight."] in values and ["C", "It is eight."] in values
    assert ["C", "It is seven."] in found["mine (baseline)"][2]
