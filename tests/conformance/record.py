"""Record golden streams from real engines: the suite does it before it stops one, with `CONFORMANCE_RECORD=1`.

An engine is asked what the gateway would ask it, and its raw bytes are written down, with the request beside them and
with what a caller hears of them. Read the difference that git shows before you commit it.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx2

from app.api.chat_request import check_chat
from app.api.engine_request import AskedEngine, upstream_body
from tests.conformance.engines import Engine, Kind
from tests.conformance.golden import FOLDER, Golden, Shot, abilities_of, expectation, shots_for
from tests.conformance.versions import version as version_of
from tests.deploy.test_process import group_of

LONGEST_TEXT = 200
MODEL = "annie-nano"


def engine_request(kind: Kind, shot: Shot) -> dict[str, Any]:
    """What the gateway sends for this request."""
    body = {"model": MODEL, **shot.asked}
    request = check_chat(body)
    abilities, thinking = abilities_of(kind.name), request.thinking_or(0)
    engine = AskedEngine(kind.dialect, MODEL, abilities, thinking, shot.metered)
    return dict(json.loads(upstream_body(request, body, engine)))


async def take(client: httpx2.AsyncClient, engine: Engine, shot: Shot) -> tuple[int, str, bytes]:
    """Status, content type and body, as far as the shot reads."""
    raw = b""
    sent = engine_request(engine.kind, shot)
    async with client.stream("POST", f"{engine.url}/v1/chat/completions", json=sent) as reply:
        try:
            async for part in reply.aiter_raw():
                raw += part
                if shot.kill_at is not None and len(raw) >= shot.kill_at:
                    kill(engine)
                    shot = Shot(shot.name, shot.asked)
                if shot.cut is not None and len(raw) >= shot.cut:
                    break
        except httpx2.HTTPError:
            pass  # it died; what came is what there is
        content_type = reply.headers.get("content-type", "").partition(";")[0]
        return reply.status_code, content_type, raw[: shot.cut]


def kill(engine: Engine) -> None:
    """vLLM computes in a process of its own, whose end the server outlives; of the others the whole group ends."""
    members = group_of(engine.pid)
    core = [pid for pid in members if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in core or [engine.pid]:
        os.kill(pid, signal.SIGKILL)


def write(kind: Kind, version: str, shot: Shot, status: int, content_type: str, raw: bytes) -> None:
    """The three files of one golden."""
    sidecar = {
        "engine": kind.name,
        "version": version,
        "dialect": kind.dialect,
        "weights": kind.weights.name,
        "arguments": [a.replace(str(FOLDER.parents[2]) + "/", "") for a in kind.args],
        "environment": dict(kind.environment),
        "status": status,
        "content_type": content_type,
        "asked": elided(shot.asked),
        "sent": elided(engine_request(kind, shot)),
        "cut": shot.cut,
    }
    golden = Golden(f"{kind.name}-{shot.name}", sidecar, raw)
    (FOLDER / f"{golden.name}.sse").write_bytes(raw)
    (FOLDER / f"{golden.name}.json").write_text(pretty(sidecar), "utf-8")
    expectation(golden.name).write_text(pretty(golden.heard()), "utf-8")


def pretty(data: Any) -> str:
    """JSON for people."""
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def elided(data: Any) -> Any:
    """Without the middle of long texts."""
    if isinstance(data, dict):
        return {key: elided(value) for key, value in data.items()}
    if isinstance(data, list):
        return [elided(value) for value in data]
    if isinstance(data, str) and len(data) > LONGEST_TEXT:
        return f"{data[:40]}… ({len(data)} characters)"
    return data


async def record(engine: Engine) -> None:
    """Every shot of one engine; the last may kill it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    kind, alone = (
        engine.kind,
        httpx2.Limits(max_keepalive_connections=0),
    )  # an engine may close what is kept open
    async with httpx2.AsyncClient(limits=alone, timeout=None, trust_env=False) as client:
        version = await version_of(client, engine.url, kind.dialect)
        for shot in shots_for(kind.name):
            write(kind, version, shot, *await take(client, engine, shot))
            print(f"{kind.name}-{shot.name}", flush=True)
