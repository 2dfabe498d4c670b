"""BFCL's cases asked of llama-server directly and through the gateway; judged by bfcl-eval's own checker.

For each case the same greedy request goes to llama-server (`--jinja`, its own tool calls), and through Manners, whole and
streamed. What was answered is kept in `bfcl.jsonl`, so a run that was stopped goes on where it was.
"""

import asyncio
import importlib
import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import openai

from tests.bench.processes import Process
from tests.ports import free_port

CATEGORIES = ("simple_python", "parallel", "irrelevance")
WAYS = ("direct", "direct, streamed", "Manners", "Manners, streamed")
MODEL = "duel"
MOST_TOKENS = 160
SLOTS = 4
NAMED = re.compile(r'"(name|function|tool|action|tool_name)"\s*:\s*"')
GIVEN = re.compile(r'"(arguments|parameters|args|input|action_input|kwargs)"\s*:')
CONFIG = """[gateway]
listen = "127.0.0.1:{public}"
admin = "127.0.0.1:{admin}"
state = "{state}"
[engines.qwen]
dialect = "llama-server"
driver = "url"
url = "http://127.0.0.1:{engine}"
[models.{model}]
live = "qwen"
timeouts = {{ connect = 5.0, first_token = 300.0, idle = 120.0, total = 600.0 }}
"""


def load_checker(site: Path) -> Any:
    """bfcl-eval's `ast_checker`. Its table of models imports the client of every vendor, so a table of one row replaces it."""
    sys.path.append(str(site))
    table = ModuleType("bfcl_eval.constants.model_config")
    table.__dict__["MODEL_CONFIG_MAPPING"] = {MODEL: SimpleNamespace(underscore_to_dot=True)}
    sys.modules[table.__name__] = table
    return importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")


def cases(site: Path, count: int) -> Iterator[tuple[str, dict[str, Any], list[Any]]]:
    """(category, case, possible answers): each category's cases at equal distances, categories in turn."""
    drawn = []
    for category in CATEGORIES:
        rows = _lines(site / f"bfcl_eval/data/BFCL_v4_{category}.json")
        file = site / f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json"
        truths = {row["id"]: row["ground_truth"] for row in _lines(file)} if file.exists() else {}
        step = max(1, len(rows) // count)
        drawn.append([(category, row, truths.get(row["id"], [])) for row in rows[::step][:count]])
    for group in zip_longest(*drawn):
        yield from (case for case in group if case is not None)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def as_tools(functions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """BFCL's descriptions as OpenAI's tools, as its own handlers make them: no dot in a name, JSON Schema's types."""
    kinds = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}

    def schema(value: Any) -> Any:
        if isinstance(value, list):
            return [schema(item) for item in value]
        if not isinstance(value, dict):
            return value
        out = {key: schema(item) for key, item in value.items()}
        if isinstance(out.get("type"), str):
            out["type"] = kinds.get(out["type"], out["type"])
        return out

    return [
        {"type": "function", "function": {**schema(function), "name": function["name"].replace(".", "_")}}
        for function in functions
    ]


def verdict(
    checker: Any, category: str, case: dict[str, Any], truth: list[Any], answer: dict[str, Any]
) -> bool:
    """Whether BFCL holds the answer for right."""
    try:
        calls = [{name: json.loads(arguments or "{}")} for name, arguments in answer["calls"]]
    except ValueError:
        return category == "irrelevance"  # what cannot be decoded is no call
    if category == "irrelevance":
        return not calls
    if not calls or not all(isinstance(value, dict) for call in calls for value in call.values()):
        return False
    language = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON
    return bool(checker.ast_checker(case["function"], calls, truth, language, category, MODEL)["valid"])


def ask(client: openai.OpenAI, case: dict[str, Any], *, streamed: bool) -> dict[str, Any]:
    """What a caller gets: speech, calls, the error if there was one."""
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": case["question"][0],
        "tools": as_tools(case["function"]),
        "temperature": 0,
        "max_tokens": MOST_TOKENS,
    }
    try:
        if streamed:
            with client.chat.completions.stream(**asked) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
    except openai.APIError as error:
        return {"speech": "", "calls": [], "error": str(error)[:300]}
    calls = [call.function for call in message.tool_calls or ()]
    return {"speech": message.content or "", "calls": [[one.name, one.arguments] for one in calls]}


def hears_raw_call(answer: dict[str, Any]) -> bool:
    """Whether a call, or what was to become one, is in what is spoken: its tag, or a name and arguments as JSON has them."""
    speech = answer["speech"]
    return "<tool_call>" in speech or (NAMED.search(speech) is not None and GIVEN.search(speech) is not None)


@contextmanager
def served(weights: Path, folder: Path, threads: int) -> Iterator[tuple[str, str]]:
    """llama.cpp's own server on the weights, and a gateway before it: their addresses."""
    port, public, admin = free_port(), free_port(), free_port()
    settings = {
        "port": port,
        "n_parallel": SLOTS,
        "n_ctx": SLOTS * 2048,
        "cpuparams.n_threads": threads,
        "cpuparams_batch.n_threads": threads,
        "use_jinja": True,
    }
    program = "import sys, json, time; from deploy.drivers.llama_child import start_server"
    program += "; server = start_server(json.loads(sys.argv[1])); time.sleep(1e9)"
    child = json.dumps({"model": str(weights), "alias": MODEL, "settings": settings})
    config = folder / "manners.toml"
    config.write_text(
        CONFIG.format(public=public, admin=admin, state=folder / "state", engine=port, model=MODEL), "utf-8"
    )
    commands = {
        f"http://127.0.0.1:{port}/health": ["-c", program, child],
        f"http://127.0.0.1:{public}/readyz": ["-m", "app", "serve", "--config", str(config)],
    }
    with ExitStack() as stack:
        for n, (url, command) in enumerate(commands.items()):
            process = Process([sys.executable, *command], folder / f"server-{n}.log")
            stack.callback(process.stop)
            if why := asyncio.run(process.until_ready(url, 600)):
                raise SystemExit(f"{command[-1]} {why}")
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{public}"


def run(weights: Path, site: Path, folder: Path, count: int, threads: int) -> None:
    """Ask all that is not answered yet."""
    kept = folder / "bfcl.jsonl"
    done = {row["id"] for row in _lines(kept)} if kept.exists() else set()
    todo = [case for case in cases(site, count) if case[1]["id"] not in done]
    if not todo:
        return
    with (
        served(weights, folder, threads) as (direct, through),
        kept.open("a", encoding="utf-8") as file,
        ThreadPoolExecutor(SLOTS) as pool,
    ):
        clients = [
            openai.OpenAI(base_url=f"{url}/v1", api_key="x", timeout=900, max_retries=0)
            for url in (direct, through)
        ]
        places = list(zip(WAYS, (client for client in clients for _ in "12"), (False, True) * 2, strict=True))

        def one(case: tuple[str, dict[str, Any], list[Any]]) -> None:
            answers = {way: ask(client, case[1], streamed=streamed) for way, client, streamed in places}
            row = {"id": case[1]["id"], "category": case[0], "answers": answers}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()

        list(pool.map(one, todo))


def table(site: Path, folder: Path) -> str:
    """Right answers and raw calls heard, by way and category."""
    checker = load_checker(site)
    known = {case["id"]: (case, truth) for _, case, truth in cases(site, 10_000)}
    rows = _lines(folder / "bfcl.jsonl")
    lines = [
        "| way | " + " | ".join(f"{c}, right" for c in CATEGORIES) + " | raw call heard | error |",
        "|---" * (len(CATEGORIES) + 3) + "|",
    ]
    for way in WAYS:
        shown = []
        for category in CATEGORIES:
            of = [row for row in rows if row["category"] == category]
            right = sum(verdict(checker, category, *known[row["id"]], row["answers"][way]) for row in of)
            shown.append(f"{right} of {len(of)}")
        raw = sum(hears_raw_call(row["answers"][way]) for row in rows)
        wrong = sum("error" in row["answers"][way] for row in rows)
        lines.append(f"| {way} | " + " | ".join(shown) + f" | {raw} of {len(rows)} | {wrong} |")
    return "\n".join(lines)
