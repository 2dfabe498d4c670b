"""`manners engine`: what is configured, and whether an engine behaves; `engine_run` has what moves one.

The check is the conformance suite of `app.conformance`, asked through a gateway in this process.
"""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from os import EX_CONFIG, EX_USAGE
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from app.cli import engine_run
from deploy.engine.spec import Dialect

if TYPE_CHECKING:
    from app.config.config import Config

UNREACHED = 2
REACH_SECONDS = 10.0
"""How long an engine may take until it streams its first token here."""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """The command's flags."""
    engine = commands.add_parser("engine", help="see which engines there are, and whether one behaves")
    verbs = engine.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(engine))
    lists = verbs.add_parser("list", help="the engines of a configuration, and the models that use them")
    lists.add_argument("--config", type=Path, metavar="FILE", help="TOML; without it, the embedded default")
    check = verbs.add_parser("check", help="ask any engine what every engine must be heard to do")
    check.add_argument("url", metavar="URL", help="the engine's address, with or without /v1")
    check.add_argument(
        "--dialect", choices=get_args(Dialect), default="openai", help="(default: %(default)s)"
    )
    check.add_argument("--model", metavar="NAME", help="what to ask it for (default: the first it names)")
    for verb in (lists, check):
        verb.add_argument("--json", action="store_true", help="the same as JSON on stdout")
    engine_run.add(verbs)
    engine.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """One verb; its exit code."""
    from app.config.config import ConfigError, load
    from deploy.core.errors import DeployError, SpecError

    try:
        if args.verb == "list":
            return _list(load(args.config), args.json)
        return asyncio.run(engine_run.run(args) if args.verb in engine_run.VERBS else _check(args))
    except ConfigError as error:
        print(f"manners engine: {error}", file=sys.stderr)
        return EX_CONFIG
    except SpecError as error:
        print(f"manners engine: {error.field}: {error.why}", file=sys.stderr)
        return EX_USAGE
    except DeployError as error:
        return engine_run.failed(error)
    except TimeoutError:
        print("manners engine: the engine streamed once, and then no more", file=sys.stderr)
        return UNREACHED
    except KeyboardInterrupt:
        return 130


def _list(config: "Config", as_json: bool) -> int:
    from app.conformance.show import show_rows

    listed = [
        {
            "name": name,
            "dialect": spec.dialect,
            "driver": spec.driver,
            "kind": spec.kind,
            "serves": spec.url or (str(spec.artefact) if spec.artefact else None),
            "image": spec.image,
            "live_for": [m for m, model in config.models.items() if model.live == name],
            "fallback_for": [m for m, model in config.models.items() if name in model.fallback],
        }
        for name, spec in config.engines.items()
    ]
    if as_json:
        print(json.dumps({"engines": listed}, indent=1))
        return 0
    keys = ("name", "driver", "dialect", "kind", "live_for", "fallback_for", "serves")
    cells = [[one[key] for key in keys] for one in listed]
    show_rows(
        ("engine", "driver", "dialect", "kind", "live for", "fallback for", "serves"),
        [[", ".join(c) if isinstance(c, list) else str(c or "") for c in row] for row in cells],
    )
    return 0


async def _check(args: argparse.Namespace) -> int:
    from app.conformance import suite
    from app.conformance.known import judged
    from app.conformance.show import progress, show_heard
    from deploy.engine.probe import served_model, wait_until_streams
    from deploy.engine.spec import EngineSpec

    EngineSpec(name="engine", dialect=args.dialect, driver="url", url=args.url)  # refuses what is no address
    url = args.url.rstrip("/").removesuffix("/v1")
    model = args.model or await served_model(url, deadline_s=REACH_SECONDS)
    reached = await wait_until_streams(
        url, model=model or "engine", deadline_s=REACH_SECONDS, dialect=args.dialect
    )
    if not reached.ok:
        print(f"manners engine: {url} does not stream: {reached.for_operators}", file=sys.stderr)
        return UNREACHED
    found = []
    async with suite.bench(url, args.dialect, model=model) as it:
        facts = {"url": url, "dialect": args.dialect, "model": model, "build": it.build}
        with progress(len(suite.NAMES)) as advance:
            async for result in suite.results(it):
                found.append(judged(result, args.dialect))
                advance()
    if args.json:
        print(json.dumps({**facts, "rows": [asdict(one) for one in found]}, indent=1, ensure_ascii=False))
    else:
        show_heard(found, ", ".join(fact for fact in facts.values() if fact))
    return 1 if any(one.heard == "no" for one in found) else 0
