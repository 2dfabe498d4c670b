"""`manners engine`: list, check, start, stop and pin engines as they are configured, without a gateway around them.

`check` is the conformance suite of `app.conformance`, sent through a gateway in this process. A container that `up`
has started keeps running, and the gateway of the same state folder adopts it. An engine of the drivers embedded and
process is a child of the process that starts it: `up` runs until it is interrupted.
"""

import argparse
import asyncio
import json
import sys
from contextlib import suppress
from os import EX_NOINPUT, EX_TEMPFAIL
from pathlib import Path

from app.cli.exit_codes import CommandError
from app.cli.terminal import show_list
from app.config.config import EMBEDDED_DEFAULT, Config, load, read_tables
from app.conformance import suite
from app.conformance.suite import rated
from deploy.doctor.collectors import configuration
from deploy.drivers.docker_client import shared
from deploy.drivers.factory import FoundContainer, make_engine, put_down, running
from deploy.engine.log import log_path
from deploy.engine.probe import served_model, wait_until_streams
from deploy.engine.spec import EngineSpec, spec_digest
from deploy.images import pins as locks
from deploy.memory.guard import Guard
from deploy.memory.lease import Lease, lease_path

UNREACHABLE = 2
"""The exit code for an engine that does not stream."""
REACH_SECONDS = 10.0
"""How long `check` waits until the engine streams its first token."""


def run(args: argparse.Namespace) -> int:
    """Run one verb; its exit code."""
    if args.verb == "check":
        return asyncio.run(_check(args))
    if args.verb == "pin":
        return asyncio.run(_pin(args))
    config = load(args.config)
    if args.verb == "list":
        return _list(config, args.json)
    verbs = {"up": _up, "down": _down, "logs": _logs}
    return asyncio.run(verbs[args.verb](args, config, config.engine(args.engine)))


def _list(config: Config, as_json: bool) -> int:
    listed = [
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
    access = EngineSpec(name="engine", dialect=args.dialect, driver="url", url=args.url, **files).access
    try:
        access.check()
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
    heard = [one["heard"] for one in found]
    if args.json:
        print(json.dumps({**facts, "rows": found}, indent=1, ensure_ascii=False))
    else:
        print(", ".join(fact for fact in facts.values() if fact))
        show_list(found, {"row": "name", "passed": "heard", "why": "why"})
        print(
            f"{len(found)} rows: {', '.join(f'{heard.count(mark)} {mark}' for mark in ('yes', 'gap', 'no'))}"
        )
    return 1 if "no" in heard else 0


async def _up(args: argparse.Namespace, config: Config, spec: EngineSpec) -> int:
    guard, digest = Guard(), spec_digest(spec)
    engine = make_engine(spec, state_dir=config.state_dir)
    async with Lease(lease_path(config.state_dir)).held(f"manners engine up {spec.name}"):
        runs = any(one.spec == digest and one.running for one in await _containers(config, spec))
        if not runs and (short := guard.admit(spec)) is not None:
            raise CommandError(f"{spec.name} {short.why}", EX_TEMPFAIL)
        with guard.watching(engine):
            state = await engine.start()
    facts = {"engine": spec.name, "url": state.url, "pid": state.pid, "build": state.abilities.build}
    said = json.dumps({**facts, "spec": digest}) if args.json else f"{spec.name} streams at {state.url}"
    print(said, flush=True)
    if spec.driver in ("embedded", "process"):
        print("the engine is a child of this command and ends with it: Ctrl-C", file=sys.stderr, flush=True)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await engine.leave()
    return 0


async def _down(args: argparse.Namespace, config: Config, spec: EngineSpec) -> int:
    if spec.driver != "docker":
        raise CommandError(f"{spec.name} runs in no container: stop what has started it")
    ends = [await put_down(one, state_dir=config.state_dir) for one in await _containers(config, spec)]
    for end in ends or ["there is no container"]:
        print(f"{spec.name}: {end}")
    return 0


async def _logs(args: argparse.Namespace, config: Config, spec: EngineSpec) -> int:
    path = log_path(config.state_dir, spec.name)
    if found := await _containers(config, spec):
        data = await shared().logs(found[0].container)
    elif path.is_file():
        data = path.read_bytes()
    else:
        raise CommandError(f"{spec.name} has no log in {path.parent}", EX_NOINPUT)
    print(*data.decode("utf-8", "replace").splitlines()[-args.lines :], sep="\n")
    return 0


async def _containers(config: Config, spec: EngineSpec) -> list[FoundContainer]:
    """The engine's containers; none for another driver than docker."""
    found = await running((spec,), state_dir=config.state_dir)
    return [one for one in found if one.engine == spec.name]


async def _pin(args: argparse.Namespace) -> int:
    if args.compose and (args.engines or args.config):
        raise CommandError("--compose pins all that the file names: it takes no engine and no --config")
    source = args.config or EMBEDDED_DEFAULT
    named = locks.tags(args.compose) if args.compose else _images(source, args.engines)
    pins = {image: await locks.pin(image, shared(), pull=args.pull) for image in sorted(set(named.values()))}
    for name, image in named.items():
        print(f"{name}: {image} is {pins[image]}")
    if args.compose:
        lock = locks.write_compose_lock(args.compose, {name: pins[image] for name, image in named.items()})
        print(f"docker compose --env-file {lock} up")
    elif fresh := {image: pinned for image, pinned in pins.items() if image != pinned}:
        lock = locks.lock_path(source.parent)
        locks.write_lock(lock, locks.read_lock(lock) | fresh)
    return 0


def _images(source: Path, wanted: list[str]) -> dict[str, str]:
    """Engines and their images, from a file that need not load yet: unpinned images may be the reason."""
    engines = configuration.engines(read_tables(source), source.parent).items()
    found = {name: spec.image for name, spec in engines if spec.driver == "docker" and spec.image}
    if unknown := [name for name in wanted if name not in found]:
        raise CommandError(f"{unknown[0]}: is no engine with an image; there is: {', '.join(found)}")
    return {name: image for name, image in found.items() if not wanted or name in wanted}
