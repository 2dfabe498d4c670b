"""What is measured: each subject knows its command, its settings and why it may be missing.

Every subject gets one worker process, the same engine, no logging per request, and no retries that hide
errors. All of them listen on loopback only.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import ClassVar

import httpx2

from tests.bench import peers, script
from tests.bench.processes import Process
from tests.ports import free_port

START_SECONDS = 90.0


class Missing(Exception):
    """A subject that cannot be measured; the text says why and, where it can, what helps."""


class Subject:
    """A gateway in front of the scripted engine."""

    name: ClassVar[str]
    title: ClassVar[str]
    does: ClassVar[str]
    share: ClassVar[float] = 1.0
    """Of the streams of a row: a subject that takes 30 times as long need not run as many."""

    def __init__(self, engine_port: int, folder: Path) -> None:
        self.engine = f"http://127.0.0.1:{engine_port}"
        self.folder = folder / self.name
        self.port = free_port()
        self.process: Process | None = None

    def command(self) -> list[str]:
        """How to start it. Raises Missing."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """What it needs besides ours."""
        return {}

    def version(self) -> str:
        """Of what is measured; empty for our own."""
        return ""

    def start(self) -> None:
        """Start it and wait until a completion streams through it. Raises Missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = Process(self.command(), self.folder / "output.log", self.environment())
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if died := self.process.died:
                raise Missing(died)
            if not (why := probe(self.port)):
                return
            time.sleep(0.1)
        raise Missing(f"not ready within {START_SECONDS:.0f} s: {why}")

    def stop(self) -> None:
        """End it."""
        if self.process:
            self.process.stop()


def probe(port: int) -> str:
    """Ask for a short stream; empty when all of it came, else what was wrong."""
    messages = [{"role": "user", "content": script.order(4, paced=False)}]
    body = {"model": script.MODEL, "messages": messages, "stream": True, "max_tokens": 64}
    headers = {"authorization": f"Bearer {script.KEY}"}
    try:
        reply = httpx2.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, headers=headers)
    except httpx2.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    return (
        ""
        if reply.status_code == 200 and "[DONE]" in reply.text
        else f"{reply.status_code}: {reply.text[:200]}"
    )


class Direct(Subject):
    """The engine itself: what is subtracted for every added time."""

    name, title, does = "direct", "engine, direct", "the base for added times"

    def start(self) -> None:
        self.port = int(self.engine.rpartition(":")[2])


class Manners(Subject):
    """This gateway, as `make serve` runs it, with every filter on."""

    name, title = "manners", "Manners"
    does = "parse, think filter, tool calls, detectors, three clocks, re-encode"

    def command(self) -> list[str]:
        config = self.folder / "manners.toml"
        config.write_text(
            f'[gateway]\nlisten = "127.0.0.1:{self.port}"\nadmin = "127.0.0.1:{free_port()}"\n'
            f'state = "{self.folder / "state"}"\n'
            f'[engines.bench]\ndialect = "vllm"\ndriver = "url"\nurl = "{self.engine}"\n'
            f'[models.{script.MODEL}]\nlive = "bench"\nconcurrency = 64\nqueue = 64\n'
            "thought_guard = 0  # as for an engine that was shown to obey: this one answers no probe of it\n"
        )
        return [sys.executable, "-m", "app", "serve", "--config", str(config)]

    def environment(self) -> dict[str, str]:
        return {"MANNERS_ADMIN_TOKEN": script.KEY, "MANNERS_API_KEYS": script.KEY}


class Before(Manners):
    """This gateway from another checkout (`--before DIR`): what a change costs, measured in one run."""

    name, title, does = "before", "Manners, the other checkout", "the same, before a change"
    checkout: ClassVar[Path | None] = None

    def command(self) -> list[str]:
        if self.checkout is None:
            raise Missing("no other checkout was named: --before DIR")
        command = super().command()
        run = f"import sys; sys.path.insert(0, {str(self.checkout)!r}); from app.__main__ import main; main()"
        return [command[0], "-P", "-c", run, *command[3:]]


class Usual(Subject):
    """The stack that most would write first."""

    name, title, does = "aiohttp", "FastAPI + aiohttp", "pass-through, nothing else"

    def command(self) -> list[str]:
        engine = self.engine.rpartition(":")[2]
        return [sys.executable, "-m", "tests.bench.passthrough", str(self.port), engine]


class Smg(Subject):
    """smg, in Rust, as it comes: a runtime thread per core."""

    name, title, does = "smg", "smg (Rust)", "pass-through, route by load"

    def command(self) -> list[str]:
        settings = {
            "--worker-urls": self.engine,
            "--policy": "round_robin",
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--prometheus-host": "127.0.0.1",
            "--prometheus-port": str(free_port()),
            "--log-level": "error",
        }
        words = [word for pair in settings.items() for word in pair]
        return [str(_peer("smg", "smg")), "launch", *words, "--disable-health-check"]

    def version(self) -> str:
        return peers.version("smg", "smg")


class LiteLLM(Subject):
    """LiteLLM's proxy, in Python, set up as its production page asks."""

    name, title, does = "litellm", "LiteLLM proxy", "parse, rebuild, callbacks"
    share = 0.1

    def command(self) -> list[str]:
        model = {"model": f"hosted_vllm/{script.MODEL}", "api_base": f"{self.engine}/v1", "api_key": "none"}
        config = {
            "model_list": [{"model_name": script.MODEL, "litellm_params": model}],
            "litellm_settings": {"num_retries": 0, "set_verbose": False, "telemetry": False},
            "general_settings": {"master_key": script.KEY},
        }
        path = self.folder / "config.yaml"
        path.write_text(json.dumps(config))  # JSON is YAML
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--num_workers", "1"]
        return [str(_peer("litellm", "litellm")), "--config", str(path), *words, "--telemetry", "False"]

    def environment(self) -> dict[str, str]:
        local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1", "NO_PROXY": "127.0.0.1"}
        return {**local, "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}

    def version(self) -> str:
        return peers.version("litellm", "litellm")


class Nginx(Subject):
    """The floor: a proxy in C that looks at nothing."""

    name, title, does = "nginx", "nginx", "nothing (the floor)"

    def command(self) -> list[str]:
        program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if not program:
            raise Missing("nginx is not installed: apt-get install nginx-light")
        places = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = " ".join(f"{place}_temp_path {self.folder}/{place};" for place in places)
        config = self.folder / "nginx.conf"
        config.write_text(
            f"worker_processes 1; daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log;\n"
            f"events {{}}\nhttp {{ access_log off; {temporary}\n"
            f"upstream engine {{ server {self.engine.removeprefix('http://')}; keepalive 64; }}\n"
            f"server {{ listen 127.0.0.1:{self.port}; keepalive_requests 1000000; location / {{\n"
            'proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";\n'
            "proxy_buffering off; } } }\n"
        )
        return [program, "-e", f"{self.folder}/error.log", "-p", str(self.folder), "-c", str(config)]

    def version(self) -> str:
        return peers.output(["/usr/sbin/nginx", "-v"]).rpartition("/")[2]


def _peer(name: str, program: str) -> Path:
    path = peers.venv(name) / "bin" / program
    if not path.exists():
        raise Missing(f"{name} is not installed: python -m tests.bench --install")
    return path


SUBJECTS: dict[str, type[Subject]] = {
    kind.name: kind for kind in (Direct, Manners, Before, Usual, Smg, LiteLLM, Nginx)
}
