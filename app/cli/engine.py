"""`manners engine`: list, check, start, stop and pin engines as they are configured, without a gateway around them.

`check` is the conformance suite of `app.conformance`, sent through a gateway in this process. A container that `up`
has started keeps running, and the gateway of the same state folder adopts it. An engine of the drivers embedded and
process is a child of the process that starts it: `up` runs until it is interrupted.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from os import EX_NOINPUT, EX_TEMPFAIL
from pathlib import Path
from typing import Any

from app.cli.exit_codes import CommandError, UsageError
from app.cli.terminal import show_list
from app.config.config import EMBEDDED_DEFAULT, Config, load, read_tables
from app.conformance import suite
from app.conformance.suite import rated
from deploy.core.errors import SpecError
from deploy.doctor.collectors import configuration
from deploy.drivers.docker_client import shared
from deploy.drivers.factory import make_engine, put_down, running
from deploy.engine.log import log_path
from deploy.engine.probe import served_model, wait_until_streams
from deploy.engine.spec import EngineSpec, spec_digest
from deploy.images import pins as locks
from deploy.memory.guard import Guard
from deploy.memory.lease import Lease, lease_path

UNREACHABLE = 2
"""The exit code for an engine that does not stream."""
CHILDREN = ("embedded", "process")
"""The drivers whose engines are children of the process that starts them."""
REACH_SECONDS = 10.0
"""How long `check` waits until the engine streams its first token."""


def run(args: argparse.Namespace) -> int:
    """Run one verb; its exit code."""
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    if args.verb == "check":
        return await _check(args)
    if args.verb == "pin":
        return await _pin(args)
    config = load(args.config)
    if args.verb == "list":
        return _list(config, args.json)
    spec = config.engine(args.engine)
    if args.verb == "logs":
        return await _logs(config, spec, args.lines)
    return await (_up if args.verb == "up" else _down)(config, spec, args.json)


def _list(config: Config, as_json: bool) -> int:
    listed: list[dict[str, Any]] = [
        {
            "name": name,
            "driver": spec.driver,
            "dialect": spec.dialect,
            "kind": spec.kind,
            "format": spec.format or spec.taught_format or None,
            "live_for": [m for m, model in config.models.items() if name in model.live],
            "fallback_for": [m for m, model in config.models.items() if name in model.fallback],
            "serves": spec.url or (str(spec.artefact) if spec.artefact else None),
            "image": spec.image,
        }
        for name, spec in config.engines.items()
    ]
    if as_json:
        print(json.dumps({"engines": listed}, indent=1))
    else:
        names = ("name", "driver", "dialect", "kind", "format", "live_for", "fallback_for", "serves")
        show_list(listed, {name.replace("_", " "): name for name in names})
    return 0


async def _check(args: argparse.Namespace) -> int:
    files = {"key_file": args.key_file, "ca_file": args.ca_file}
    try:
        access = EngineSpec(name="engine", dialect=args.dialect, driver="url", url=args.url, **files).access
        access.check()
    except SpecError as error:
        raise UsageError(f"{error.field}: {error.why}") from None
    except ValueError as error:
        raise CommandError(error, EX_NOINPUT) from None
    url = args.url.rstrip("/").removesuffix("/v1")
    model = args.model or await served_model(url, deadline_s=REACH_SECONDS, access=access)
    reached = await wait_until_streams(
        url, model=model or "engine", deadline_s=REACH_SECONDS, dialect=args.dialect, access=access
    )
    if not reached.ok:
        raise CommandError(f"{url} does not stream: {reached.for_operators}", UNREACHABLE)
    found = []
    async with suite.open_session(url, args.dialect, model=model, access=access) as it:
        facts = {"url": url, "dialect": args.dialect, "model": model, "build": it.state.abilities.build}
        async for result in suite.results(it):
            found.append(rated(result, args.dialect))
            print(f"{len(found)} of {len(suite.CHECK_NAMES)}: {result.name}", file=sys.stderr)
    if args.json:
        print(json.dumps({**facts, "rows": found}, indent=1, ensure_ascii=False))
    else:
        print(", ".join(fact for fact in facts.values() if fact))
        show_list(found, {"row": "name", "passed": "heard", "why": "why"})
        counts = [f"{sum(one['heard'] == mark for one in found)} {mark}" for mark in ("yes", "gap", "no")]
        print(f"{len(found)} rows: {', '.join(counts)}")
    return 1 if any(one["heard"] == "no" for one in found) else 0


def _report(facts: Mapping[str, Any], text: str, as_json: bool) -> int:
    """Say how it ended; exit code 0."""
    print(json.dumps(facts) if as_json else text, flush=True)
    return 0


async def _up(config: Config, spec: EngineSpec, as_json: bool) -> int:
    guard, digest = Guard(), spec_digest(spec)
    lease = Lease(lease_path(config.state_dir))
    engine = make_engine(spec, state_dir=config.state_dir)
    async with lease.held(f"manners engine up {spec.name}"):
        found = await running((spec,), state_dir=config.state_dir)
        runs = any(one.spec == digest and one.running for one in found)
        if not runs and (short := guard.admit(spec)) is not None:
            raise CommandError(f"{spec.name} {short.why}", EX_TEMPFAIL)
        with guard.watching(engine):
            state = await engine.start()
    facts = {"engine": spec.name, "url": state.url, "pid": state.pid, "build": state.abilities.build}
    _report({**facts, "spec": digest}, f"{spec.name} streams at {state.url}", as_json)
    if spec.driver in CHILDREN:
        await _wait_for_interrupt()
    await engine.leave()
    return 0


async def _wait_for_interrupt() -> None:
    """Wait for SIGINT or SIGTERM."""
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    print("the engine is a child of this command and ends with it: Ctrl-C", file=sys.stderr, flush=True)
    await asked.wait()


async def _down(config: Config, spec: EngineSpec, as_json: bool) -> int:
    if spec.driver != "docker":
        whose = "a child of its gateway" if spec.driver in CHILDREN else "not started by this program"
        raise UsageError(f"{spec.name}: is {whose}: there is no container to end")
    found = await running((spec,), state_dir=config.state_dir)
    ends = [await put_down(one, state_dir=config.state_dir) for one in found if one.engine == spec.name]
    text = "\n".join(f"{spec.name}: {end}" for end in ends) or f"{spec.name}: there is no container"
    return _report({"engine": spec.name, "ended": ends}, text, as_json)


async def _logs(config: Config, spec: EngineSpec, lines: int) -> int:
    found = await running((spec,), state_dir=config.state_dir)
    path = log_path(config.state_dir, spec.name)
    if mine := [one for one in found if one.engine == spec.name]:
        data = await shared().logs(mine[0].container)
    elif path.is_file():
        data = path.read_bytes()
    else:
        raise CommandError(f"{spec.name} has no log in {path.parent}", EX_NOINPUT)
    for line in data.decode("utf-8", "replace").splitlines()[-lines:]:
        print(line)
    return 0


async def _pin(args: argparse.Namespace) -> int:
    if args.compose and (args.engines or args.config):
        raise UsageError(
            "--compose pins all that the file names; no engine or configuration is named beside it"
        )
    source = args.config or EMBEDDED_DEFAULT
    named = locks.tags(args.compose) if args.compose else _images(source, args.engines)
    pins = {image: await locks.pin(image, shared(), pull=args.pull) for image in sorted(set(named.values()))}
    shown = [f"{name}: {image} is {pins[image]}" for name, image in named.items()]
    if args.compose:
        pins = {name: pins[image] for name, image in named.items()}
        lock = locks.write_compose_lock(args.compose, pins)
        shown.append(f"docker compose --env-file {lock} up")
    else:
        lock = locks.lock_path(source.parent)
        if fresh := {image: pinned for image, pinned in pins.items() if image != pinned}:
            locks.write_lock(lock, locks.read_lock(lock) | fresh)
    facts = {"lock": str(lock), "images": pins}
    return _report(facts, "\n".join(shown) or "no engine runs in a container", args.json)


def _images(source: Path, wanted: list[str]) -> dict[str, str]:
    """Engines and their images, from a file that need not load yet: unpinned images may be the reason."""
    engines = configuration.engines(read_tables(source), source.parent).items()
    found = {name: spec.image for name, spec in engines if spec.driver == "docker" and spec.image}
    if unknown := [name for name in wanted if name not in found]:
        raise UsageError(f"{unknown[0]}: is no engine with an image; there is: {', '.join(found)}")
    return {name: image for name, image in found.items() if not wanted or name in wanted}
