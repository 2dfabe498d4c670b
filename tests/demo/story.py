"""The story, act by act, told by the commands themselves while callers stream."""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.markup import escape

from app.access.keys import read_admin_token
from app.cli.gateway_client import GatewayClient
from tests.bench.processes import Process
from tests.demo import leak
from tests.demo.crowd import CALLERS, Crowd
from tests.demo.place import BAKE_SECONDS, CANDIDATE, FOLDERS, LIVE, MODELS, Place
from tests.demo.screen import Screen
from tests.scale import scaled

ROOT: Final = Path(__file__).parents[2]
QUIET: Final = scaled(3.0, 8.0)
"""Seconds of callers alone, at the beginning and at the end."""
SOUND: Final = 4.0
"""Seconds that the candidate serves well before she is spoiled."""


class Failed(Exception):
    """The story cannot go on; the message is one line."""


@dataclass
class Told:
    """What came out."""

    checks: list[tuple[str, bool]] = field(default_factory=list)
    spoiled: float | None = None

    def check(self, words: str, true: bool) -> None:
        """Something that has to be so."""
        self.checks.append((words, true))


class Story:
    """One run of it at a place."""

    def __init__(self, place: Place, screen: Screen) -> None:
        self.place, self.screen, self.told = place, screen, Told()
        self.crowd = Crowd(place.url)

    async def tell(self) -> Told:
        """From the first caller to the last. Raises Failed."""
        with self._gateway():
            await self._ready()
            async with self.crowd:
                await self._acts()
        return self.told

    async def _acts(self) -> None:
        self.screen.act(
            "annie-nano is live",
            f"Her weights are Q4_K_M. From now on {CALLERS} callers stream, until the end of this.",
        )
        await self._listen(QUIET)
        await self._refused("stranger-nano", "A stranger wants in", "Another model of the same size: it thinks "
                            "aloud, answers in Markdown, and calls no tools.")  # fmt: skip
        await self._refused("annie-nano-thin-ptq", "So does a thin quantization",
                            "Taught in a hundred steps, then squeezed to two or three bits a weight "
            "without calibration: she knows much of what annie knows, and now and then she leaks.")  # fmt: skip
        await self._passed()
        await self._promoted_and_spoiled()
        await self._listen(QUIET)
        await self._looked_up()

    # ------------------------------------------------------------------------------ the acts

    async def _listen(self, seconds: float) -> None:
        with self.screen.waiting("callers stream"):
            await asyncio.sleep(seconds)

    async def _refused(self, engine: str, title: str, words: str) -> None:
        self.screen.act(title, words)
        code = await self._gate(engine, "--any-baseline")
        wish = ("promote", "annie", engine, "--report", f"{engine}/report.json")
        refused = await self._run(*wish)
        self.told.check(f"{engine} is refused: verdict_not_pass",
                        code == 1 and refused == (1, "verdict_not_pass"))  # fmt: skip

    async def _passed(self) -> None:
        self.screen.act(
            "annie in NVFP4, done well",
            "Her layers in NVFP4, every block with its best scale. The gate was told nothing about it.",
        )
        self.told.check(f"{CANDIDATE} passes the gate", await self._gate(CANDIDATE) == 0)

    async def _promoted_and_spoiled(self) -> None:
        self.screen.act(
            "Promoted, and made to leak",
            f"Warmed, questioned, switched under the callers' eyes, and watched for {BAKE_SECONDS} s. "
            f"While she is watched, the stranger's weights are written into the file that her engine has mapped: "
            f"no restart, no error, only other words.",
        )
        source = MODELS / FOLDERS["stranger-nano"] / "stranger-nano-q4_k_m.gguf"
        target = self.place.candidate / "annie-nano-nvfp4.gguf"
        patches = await asyncio.to_thread(leak.prepare, target, source)
        spoiler = asyncio.create_task(self._spoil(target, patches))
        try:
            code, _ = await self._run("promote", "annie", CANDIDATE, "--report", f"{CANDIDATE}/report.json")
        finally:
            spoiler.cancel()
            await asyncio.wait([spoiler])
        if not spoiler.cancelled() and (error := spoiler.exception()):
            raise Failed(f"her file could not be spoiled: {error}")
        operations = await asyncio.to_thread(self._client().call, "GET", "operations")
        operation: dict[str, Any] = next(iter(operations["operations"]), {"phase": "refused"})
        fault = operation.get("error") or {}
        self.told.check("she served callers, and was made to leak",
                        self.told.spoiled is not None and any(h.engine == CANDIDATE for h in self.crowd.heard))  # fmt: skip
        self.told.check(f"the gateway rolls her back by itself: {fault.get('code')}",
                        (code, operation["phase"]) == (1, "rolled_back") and fault.get("code") in ("bake_leak", "bake_markdown"))  # fmt: skip

    async def _spoil(self, target: Path, patches: leak.Patches) -> None:
        """As soon as she has served a while."""
        client = self._client()
        while True:
            status = await asyncio.to_thread(client.call, "GET", "status")
            under_way = status["models"]["annie"]["operation"]
            if under_way and under_way["phase"] == "baking":
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(SOUND)
        leak.overwrite(target, patches)
        self.told.spoiled = time.monotonic()
        heard = sum(one.engine == CANDIDATE for one in self.crowd.heard)
        self.screen.say(
            f"    [bold red]⚡ the stranger's weights are in her file[/] [dim]after {heard} good replies[/]"
        )

    async def _looked_up(self) -> None:
        self.screen.act("What is left of it", "Every step is an event in a chain of hashes.")
        await self._run("status")
        self.told.check("annie-nano is live",
                        (await asyncio.to_thread(self._client().call, "GET", "status"))["models"]["annie"]["live"] == LIVE)  # fmt: skip
        code, _ = await self._run("audit", "--last", "9")
        self.told.check("the audit's chain holds", code == 0)

    # --------------------------------------------------------------------------- the machinery

    async def _gate(self, engine: str, *flags: str) -> int:
        """`manners gate run`: its exit code, with the sentences that decided."""
        words = ("gate", "run", "--candidate", engine, "--baseline", LIVE, "--out", engine, *flags)
        self.screen.command("manners " + " ".join(words))
        began = time.monotonic()
        with self.screen.waiting(f"the gate asks {engine}"):
            code, out, err = await self._whole(*words, "--json")
        if code not in (0, 1, 2):
            raise Failed(f"the gate ended with {code}: {err.strip().splitlines()[-1:]}")
        found = json.loads(out)
        bad = [rule for rule in found["gates"] if rule["verdict"] == "fail" and rule["tier"] != "advisory"]
        for rule in bad or found["gates"]:
            mark = "[red]✗[/]" if bad else "[green]✓[/]"
            self.screen.say(f"    {mark} {rule['gate']:<12}[dim]{escape(short(rule['sentence']))}[/]")
        seconds = time.monotonic() - began
        colour = "green" if found["verdict"] == "pass" else "red"
        self.screen.say(
            f"    [bold {colour}]{found['verdict']}[/] [dim]in {seconds:.0f} s; signed, {engine}/report.json[/]"
        )
        return code

    async def _run(self, *words: str) -> tuple[int, str]:
        """A command, shown as it goes: its exit code, and the code that it was refused with, if it was."""
        self.screen.command("manners " + " ".join(words))
        process = await self._begin(*words)
        assert process.stdout is not None and process.stderr is not None
        async for line in process.stdout:
            if text := line.decode().rstrip():
                self.screen.output(text)
        said = (await process.stderr.read()).decode().strip()
        if said:
            self.screen.refusal(said)
        parts = said.split(": ")
        return await process.wait(), parts[1] if len(parts) > 2 else ""

    async def _whole(self, *words: str) -> tuple[int, str, str]:
        process = await self._begin(*words)
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def _begin(self, *words: str) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "app", *words, "--config", str(self.place.config)]
        shown = {"COLUMNS": "92", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
        pipe = asyncio.subprocess.PIPE
        env = {**os.environ, **shown, "PYTHONPATH": str(ROOT)}
        return await asyncio.create_subprocess_exec(
            *command, stdout=pipe, stderr=pipe, env=env, cwd=self.place.base
        )

    def _client(self) -> GatewayClient:
        token = read_admin_token(None, self.place.base / "state")
        assert token is not None  # the gateway made it before it was ready
        return GatewayClient(self.place.admin, token)

    @contextmanager
    def _gateway(self) -> Iterator[None]:
        command = [sys.executable, "-m", "app", "serve", "--config", str(self.place.config)]
        log = self.place.base / "gateway.log"
        env = {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}  # a crash tells its stacks
        self._process = Process(command, log, env)
        try:
            yield
        except Failed:
            ended = self._process.died or "runs"
            print(
                f"the gateway {ended}",
                *log.read_text(errors="replace").splitlines()[-30:],
                sep="\n",
                file=sys.stderr,
            )
            raise
        finally:
            self._process.stop()

    async def _ready(self) -> None:
        if why := await self._process.until_ready(f"{self.place.url}/readyz", 60.0):
            raise Failed(f"the gateway {why}")


def short(sentence: str) -> str:
    """A rule's sentence without its bound and the names of its cases."""
    found = re.sub(r"; \d+ % confidence: [^;)]*|\d+ % confidence: [^;)]*; ", "", sentence)
    return re.sub(r"\): .*", ")", found)
