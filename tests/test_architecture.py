"""The house keeps its shape: arrows point down, no cycles, cores are pure, pieces are small."""

import ast
import gc
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeVar

import pytest

from tests.looped import looped

ROOT = Path(__file__).parent.parent
FLOORS = ("app", "deploy", "quantizer", "gates")
ALLOWED = {
    "gates": set(),
    "quantizer": {"gates"},
    "deploy": {"gates"},
    "app": {"gates", "deploy"},
}
"""Which floors a floor may import; only the command line reaches the quantizer, and lazily."""
COMMAND_LINE = "app.cli.quantize"

MAX_FUNCTION_LINES = 60

PURE = (
    "app.stream.", "app.api.", "app.engines.breaker", "app.engines.affinity", "app.engines.outlier", "deploy.engine.dialects", "app.errors.tree", "app.errors.engine_words", "app.http.hosts", "app.api.chat_request", "app.api.strict_json", "app.api.tool_schema", "app.api.engine_request", "app.stream.audit", "app.api.thinking_budget",
    "app.promotion.state_machine", "app.promotion.eligibility", "app.promotion.bake",
    "app.promotion.overrides",
    "app.telemetry.redact", "app.telemetry.clocks", "app.shadow.compare",
    "app.registry.errors", "app.registry.values", "app.registry.chain",
    "deploy.engine.spec", "deploy.engine.supervisor", "deploy.engine.dialects", "deploy.core.errors", "gates.contracts.numerics",
)  # fmt: skip
"""Modules that take values and return values."""
IMPURE = {"asyncio", "time", "random", "os", "io", "socket", "subprocess", "threading", "logging", "structlog",
          "aiohttp", "httpcore2", "httpx2", "fastapi", "starlette", "uvicorn", "uuid", "secrets", "tempfile", "shutil"}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def without_collections() -> Iterator[None]:
    """No collection of garbage goes through the nodes of all modules again and again: that took most of the time."""
    gc.disable()
    yield
    _looked_at.cache_clear()
    tree.cache_clear()
    gc.enable()


@cache
def modules() -> dict[str, Path]:
    found = {}
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text("utf-8"))


LOOKED_AT = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler,
             ast.Call, ast.Await)  # fmt: skip
Node = TypeVar("Node", bound=ast.AST)


@cache
def _looked_at(name: str) -> tuple[ast.AST, ...]:
    """A module is walked through once for all tests."""
    return tuple(node for node in ast.walk(tree(name)) if isinstance(node, LOOKED_AT))


def nodes(name: str, *kinds: type[Node]) -> list[Node]:
    """All nodes of these kinds, wherever they stand in the module."""
    assert set(kinds) <= set(LOOKED_AT), "LOOKED_AT leaves these out"
    return [node for node in _looked_at(name) if isinstance(node, kinds)]


@cache
def imports(name: str, *, top_level_only: bool = False) -> tuple[str, ...]:
    return tuple(_imports(name, tree(name).body if top_level_only else _looked_at(name)))


def _imports(name: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute here"
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@cache
def ours(name: str) -> set[str]:
    """Our own modules that this one imports."""
    return {target for target in imports(name) if target in modules() and target != name}


@looped("name", modules())
def test_arrows_between_floors_point_down(name: str) -> None:
    floor = name.partition(".")[0]
    for target in ours(name):
        other = target.partition(".")[0]
        lazily = name == COMMAND_LINE and target not in set(imports(name, top_level_only=True))
        assert other == floor or other in ALLOWED[floor] or lazily, f"{name} imports {target}"


@looped("name", [n for n in modules() if not n.startswith("quantizer.nano")])
def test_no_product_module_imports_a_measurement(name: str) -> None:
    assert not {t for t in imports(name) if t.startswith("quantizer.nano")}


def test_no_module_imports_itself_by_a_detour() -> None:
    packages = {name for name, path in modules().items() if path.name == "__init__.py"}
    graph = {name: ours(name) - packages for name in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def folder_of(name: str) -> str:
    """The folder a module lies in. An entry point stands above all folders: nothing may import it."""
    return name if name.endswith("__main__") else ".".join(modules()[name].relative_to(ROOT).parts[:-1])


def test_no_folder_imports_another_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for name in modules():
        wanted = {folder_of(target) for target in ours(name)} - {folder_of(name)}
        graph.setdefault(folder_of(name), set()).update(wanted)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"folders import each other: {' -> '.join(error.args[1])}")


@looped("name", [n for n in modules() if n.startswith(PURE)])
def test_a_pure_core_reaches_for_no_clock_socket_file_or_log(name: str) -> None:
    reached = {target.partition(".")[0] for target in imports(name)} & IMPURE
    assert not reached, f"{name} imports {sorted(reached)}"
    calls = {call.func.id for call in nodes(name, ast.Call) if isinstance(call.func, ast.Name)}
    assert not calls & {"open", "print", "input"}
    assert not nodes(name, ast.AsyncFunctionDef) and not nodes(name, ast.Await)


CONTRACTS = (
    "gates.artefact.artefact",
    "gates.contracts.errors",
    "gates.contracts.verdict",
    "gates.contracts.sample",
    "gates.contracts.case",
    "gates.contracts.numerics",
)
DETECTORS_AND_RUNNER = {
    "py3langid",
    "markdown_it",
    "emoji",
    "jsonschema",
    "referencing",
    "httpcore2",
    "httpx2",
    "rich",
    "msgspec",
    "jinja2",
    "markupsafe",
    "re2",
    "yaml",
}


@looped("name", [name for name in modules() if name.startswith("gates")])
def test_the_gates_need_little_and_their_contracts_nothing(name: str) -> None:
    """Whoever reads an artefact or a report must not need our dependencies."""
    outside = {target.partition(".")[0] for target in imports(name)} - sys.stdlib_module_names - {"gates"}
    allowed = {"cryptography"} | (set() if name in CONTRACTS else DETECTORS_AND_RUNNER)
    assert outside <= allowed, f"{name} imports {sorted(outside - allowed)}"


@looped("name", modules())
def test_functions_are_small(name: str) -> None:
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [*nodes(name, ast.FunctionDef)]
    for node in functions + [*nodes(name, ast.AsyncFunctionDef)]:
        size = (node.end_lineno or 0) - node.lineno + 1
        assert size <= MAX_FUNCTION_LINES, f"{name}.{node.name} has {size} lines"


WIRE_TYPES = {"Text", "Tool"}
"""What two APIs call a thing of theirs: the names stand in the OpenAPI document."""


def test_no_two_classes_share_a_name() -> None:
    found: dict[str, set[str]] = {}
    for name in modules():
        for node in nodes(name, ast.ClassDef):
            if not node.name.startswith("_"):
                found.setdefault(node.name, set()).add(name)
    assert {cls: places for cls, places in found.items() if len(places) > 1 and cls not in WIRE_TYPES} == {}


BROAD = {"quantizer": 6, "app": 9, "deploy": 4}
"""Tokenizers, templates and unpicklers raise bare Exception, and a cell of a study or a bench that fails in
whatever way must not cost the others. Each callback and timer of an exchange ends that exchange and no other (9 in app);
a background task, an engine's run, its listener and a probe of it have one edge each. Elsewhere two will do."""


def test_few_broad_excepts_on_each_floor() -> None:
    for floor in FLOORS:
        broad = [
            f"{name}:{node.lineno}"
            for name in modules()
            if name.startswith(floor)
            for node in nodes(name, ast.ExceptHandler)
            if (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
        ]  # fmt: skip
        assert len(broad) <= BROAD.get(floor, 2), broad


SHORT_TASKS = {
    "app.conformance.suite": 2,  # of a command, which awaits it
    "app.proxy.exchange": 2,  # of one request: its end cancels them
    "app.proxy.reply_writer": 1,
    "app.promotion.worker": 3,  # awaited: an operation, an effect of it, and the writing of its steps
    "app.promotion.repository": 1,  # awaited, or goes on when a client hangs up
    "app.promotion.canary": 2,
    "app.promotion.steps": 1,  # the watches of replicas, awaited
    "app.promotion.watch": 1,  # its error is looked at with every reply that comes
    "deploy.core.tasks": 1,
    "deploy.drivers.url": 1,  # awaited by whoever starts the engine
    "gates.run.runner": 1,
}
"""Bare tasks: each ends with what awaits it. What lives on by itself is begun by `deploy.core.tasks`, which reports its failure."""
STARTS_A_TASK = ("create_task", "ensure_future")


def test_what_runs_in_the_background_is_begun_where_its_failure_is_seen() -> None:
    found: dict[str, int] = {}
    for name in (name for name in modules() if name.startswith(("app", "deploy", "gates"))):
        calls = [
            node
            for node in nodes(name, ast.Call)
            if getattr(node.func, "attr", getattr(node.func, "id", "")) in STARTS_A_TASK
        ]
        found |= {name: len(calls)} if calls else {}
    assert not {name: count for name, count in found.items() if count > SHORT_TASKS.get(name, 0)}


def test_no_event_loop_is_given_a_pipe() -> None:
    """uvloop closes the descriptor of such a transport twice, and by then it may be another thread's file or a caller's
    connection: libuv ends a process with abort() for it. A socket, and `sock_recv`, will do."""
    named = {getattr(node.func, "attr", "") for name in modules() for node in nodes(name, ast.Call)}
    assert not named & {"connect_read_pipe", "connect_write_pipe"}


def tracked() -> list[Path]:
    out = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [ROOT / name for name in out.split("\0") if name and (ROOT / name).is_file()]


def test_no_remote_code_no_pickles_and_no_heavy_files() -> None:
    files = tracked()
    assert not [p for p in files if p.suffix in (".bin", ".pt", ".pth", ".pkl", ".pickle")]
    assert sum(p.stat().st_size for p in files if "models" in p.parts) <= 60 << 20
    for path in files:
        if path.suffix == ".py" and path.parts[-2:] != ("tests", "test_architecture.py"):
            assert "trust_remote_code=True" not in path.read_text("utf-8"), path
