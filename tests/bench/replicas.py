"""`python -m tests.bench.replicas`: what it saves that a conversation goes where its cache is.

Two real llama.cpp engines of the same weights, and the same scripted conversations of several turns through each of:
this gateway, this gateway choosing its replicas in turns, smg with its cache-aware policy, and smg in turns (where
`python -m tests.bench --install` has been run). Engines are started anew for each, so that no cache is inherited. Cached
tokens are counted by the engine (`prompt_tokens_details.cached_tokens`), times by the caller.
"""

import argparse
import asyncio
import json
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from app.config.config import parse
from app.engines.balancer import Balancer, Chosen
from app.engines.pool import EnginePool
from deploy.drivers.embedded import EmbeddedEngine
from deploy.engine.spec import EngineSpec
from tests.app.house import NEVER, run
from tests.bench import machine, peers
from tests.bench.processes import Process, listens
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "models" / "annie-nano-q4_k_m"
PAGE = ROOT / "docs" / "replicas.md"
BLOCK = re.compile(r"(<!-- measured -->\n).*?(<!-- /measured -->)", re.DOTALL)
ENGINES = ("one", "two")
TOKENS = 16
"""Of each answer."""
WORDS = (
    "the",
    "lamp",
    "in",
    "kitchen",
    "was",
    "left",
    "on",
    "again",
    "and",
    "nobody",
    "knows",
    "who",
    "did",
    "it",
    "so",
    "please",
    "remember",
    "that",
    "for",
    "me",
)


@dataclass(frozen=True)
class Load:
    """Conversations of so many turns, so many of them at a time; a turn says about so many words."""

    conversations: int = 24
    turns: int = 6
    at_once: int = 4
    words: int = 120


@dataclass
class Heard:
    """What callers saw through one gateway."""

    prompt: int = 0
    cached: int = 0
    waits: list[float] = field(default_factory=list)  # to the first word, of all turns but the first

    @property
    def share(self) -> float:
        """Of the prompts' tokens, those that were not read again."""
        return self.cached / max(self.prompt, 1)


class InTurns(Balancer):
    """Each request to the next replica, whatever it says."""

    def __init__(self) -> None:
        super().__init__()
        self._number = count()

    def choose(self, said: Sequence[int], loads: Mapping[str, int]) -> Chosen:
        """The next one."""
        names = sorted(loads)
        return Chosen(names[next(self._number) % len(names)], "new")


# ------------------------------------------------------------------------------------ the load


def question(conversation: int, turn: int, words: int) -> dict[str, str]:
    """Nobody else says it: what is cached of it was cached in this conversation."""
    said = [WORDS[(conversation * 7 + turn * 3 + n) % len(WORDS)] for n in range(words)]
    return {"role": "user", "content": f"Note {conversation}.{turn}: {' '.join(said)}. Is that fine?"}


async def converse(client: aiohttp.ClientSession, url: str, number: int, load: Load, heard: Heard) -> None:
    """One conversation, turn by turn."""
    said: list[dict[str, str]] = [{"role": "system", "content": "You are Annie, a helpful voice."}]
    for turn in range(load.turns):
        said.append(question(number, turn, load.words))
        said.append({"role": "assistant", "content": await _ask(client, url, said, turn, heard)})


async def _ask(
    client: aiohttp.ClientSession, url: str, said: list[dict[str, str]], turn: int, heard: Heard
) -> str:
    body = {
        "model": "annie", "messages": said, "stream": True, "max_tokens": TOKENS, "temperature": 0.0,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    began, first, text = time.perf_counter(), None, ""
    async with client.post(f"{url}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.read()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            frame = json.loads(line[6:])
            word = "".join(choice["delta"].get("content") or "" for choice in frame.get("choices", ()))
            if word and first is None:
                first = time.perf_counter() - began
            text += word
            if usage := frame.get("usage"):
                heard.prompt += usage["prompt_tokens"]
                heard.cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    if turn and first is not None:
        heard.waits.append(first)
    return text


async def driven(url: str, load: Load) -> Heard:
    """The whole load through one gateway."""
    heard, waiting = Heard(), asyncio.Queue[int]()
    for number in range(load.conversations):
        waiting.put_nowait(number)

    async def caller(client: aiohttp.ClientSession) -> None:
        while not waiting.empty():
            await converse(client, url, waiting.get_nowait(), load, heard)

    async with aiohttp.ClientSession() as client:
        await asyncio.gather(*(caller(client) for _ in range(load.at_once)))
    return heard


# -------------------------------------------------------------------------------- the gateways


@asynccontextmanager
async def engines(state: Path) -> AsyncIterator[dict[str, str]]:
    """Two engines with empty caches; their addresses."""
    async with AsyncExitStack() as stack:
        urls = {}
        for name in ENGINES:
            args = ("--threads", "1", "--ctx-size", "16384", "--parallel", "4")
            spec = EngineSpec(  # the name is the model's, and smg wants the same of both
                name="annie", dialect="llama-server", driver="embedded", artefact=WEIGHTS, args=args
            )
            engine = EmbeddedEngine(spec, state_dir=state / name)
            await engine.start()
            stack.push_async_callback(engine.stop)
            assert engine.url is not None
            urls[name] = engine.url
        yield urls


@asynccontextmanager
async def ours(state: Path, urls: dict[str, str], in_turns: bool = False) -> AsyncIterator[str]:
    """This gateway over these engines; its address."""
    kind = {"dialect": "llama-server", "driver": "url", "artefact": str(WEIGHTS)}
    tables = {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(state)},
        "engines": {name: {**kind, "url": url} for name, url in urls.items()},
        "models": {"annie": {"live": list(urls), "concurrency": 64, "timeouts": NEVER}},
    }
    nobody: Any = None
    async with run(parse(tables, state), nobody) as house:
        pool = house.gateway.pool
        while not all(pool.takes(name) for name in urls):
            await asyncio.sleep(0.01)
        if in_turns:
            _choose_in_turns(pool)
        yield house.url


def _choose_in_turns(pool: EnginePool) -> None:
    pool._balancers["annie"] = InTurns()
    pool.route("annie", *ENGINES)


@asynccontextmanager
async def smg(state: Path, urls: dict[str, str], policy: str) -> AsyncIterator[str]:
    """smg over these engines; its address."""
    port = free_port()
    flags = {
        "--policy": policy, "--host": "127.0.0.1", "--port": str(port), "--prometheus-host": "127.0.0.1",
        "--prometheus-port": str(free_port()), "--log-level": "error",
    }  # fmt: skip
    words = [word for pair in flags.items() for word in pair]
    command = [str(peers.venv("smg") / "bin" / "smg"), "launch", "--worker-urls", *urls.values(), *words]
    process = Process([*command, "--disable-health-check"], state / "smg.log")
    try:
        await _until_served(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        await asyncio.to_thread(process.stop)


async def _until_served(process: Process, port: int) -> None:
    """Until it answers a chat. Raises RuntimeError: it does not."""
    body = {"model": "annie", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    answer = "nothing"
    async with aiohttp.ClientSession() as client:
        for _ in range(300):
            if process.died:
                raise RuntimeError(process.died)
            if listens(port):
                async with client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as response:
                    if response.status == 200:
                        return
                    answer = (await response.text())[:200]
            await asyncio.sleep(0.1)
    raise RuntimeError(f"smg does not serve: {answer}")


Gateway = Callable[[Path, dict[str, str]], Any]
OURS, TURNS = "Manners", "Manners, in turns"
GATEWAYS: dict[str, Gateway] = {
    OURS: ours,
    TURNS: lambda state, urls: ours(state, urls, in_turns=True),
    "smg, cache_aware": lambda state, urls: smg(state, urls, "cache_aware"),
    "smg, round_robin": lambda state, urls: smg(state, urls, "round_robin"),
}


async def measured(gateway: Gateway, load: Load) -> Heard:
    """The load through one gateway over fresh engines."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        async with engines(state) as urls, gateway(state, urls) as url:
            return await driven(url, load)


# ------------------------------------------------------------------------------------ the page


def table(found: Mapping[str, Heard]) -> str:
    """Markdown, and the factors in words."""
    lines = [
        "| gateway | prompt tokens | from the cache | share | TTFT p50 | p95 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, heard in found.items():
        p50, p95 = (statistics.quantiles(heard.waits, n=20)[at] * 1000 for at in (9, 18))
        lines.append(
            f"| {name} | {heard.prompt} | {heard.cached} | {heard.share:.1%} | {p50:.0f} ms | {p95:.0f} ms |"
        )
    by_cache, by_time = (factor(found, of) for of in (lambda h: h.share, _to_read))
    said = f"{by_cache:.2f} times the share of cached tokens, and {by_time:.2f} times the tokens to read"
    return "\n".join([*lines, "", f"Against the same gateway in turns: {said}."])


def factor(found: Mapping[str, Heard], of: Callable[[Heard], float]) -> float:
    """Ours over that of the same gateway in turns."""
    return of(found[OURS]) / of(found[TURNS])


def _to_read(heard: Heard) -> float:
    return 1 - heard.share


def write(text: str, load: Load) -> None:
    """Put the table into the page, with what it was measured on."""
    about = machine.facts()
    shape = (
        f"{load.conversations} conversations of {load.turns} turns, {load.at_once} at a time, about {load.words} words a turn; "
        f"two embedded llama.cpp engines of annie-nano Q4_K_M, one thread each, four slots each; TTFT of turns after the first. "
        f"{about['processor']}, shared with other work; smg {peers.version('smg', 'smg') or 'not installed'}."
    )
    page = PAGE.read_text("utf-8")
    PAGE.write_text(BLOCK.sub(lambda it: f"{it[1]}{shape}\n\n{text}\n{it[2]}", page), "utf-8")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=Load.conversations)
    parser.add_argument("--turns", type=int, default=Load.turns)
    parser.add_argument("--write", action="store_true", help="put the table into docs/replicas.md")
    args = parser.parse_args()
    load, found = Load(args.conversations, args.turns), dict[str, Heard]()
    for name, gateway in GATEWAYS.items():
        if name.startswith("smg") and not (peers.venv("smg") / "bin" / "smg").exists():
            print(f"{name}: not installed (python -m tests.bench --install)", flush=True)
            continue
        found[name] = await measured(gateway, load)
        print(f"{name}: {found[name].share:.1%} cached", flush=True)
    text = table(found)
    print(text)
    if args.write:
        write(text, load)


if __name__ == "__main__":
    asyncio.run(main())
