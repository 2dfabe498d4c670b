"""`manners doctor`: host, images, models and configuration, every check with its evidence and its fix.

The checks are in `deploy.doctor`. This module adds the facts that only `app` has: whether the configuration loads, and
its keys.
"""

import argparse
import asyncio
import json
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.cli.terminal import show_rows
from app.config.config import EMBEDDED_DEFAULT, ConfigError, load
from app.promotion.repository import FILE
from app.registry.errors import RegistryError
from app.registry.registry import RegistryReader
from app.registry.values import KnownKey
from deploy.doctor.collectors import configuration, host, image, model
from deploy.doctor.evidence import ConfigFacts, Evidence
from deploy.doctor.examine import examine, silent
from deploy.doctor.result import EXIT_CODES, worst
from deploy.drivers.docker_client import Docker

SHORT_KEY = 16
MARKS = {"fail": "✗", "unknown": "?", "warn": "!", "ok": "✓"}


def run(args: argparse.Namespace) -> int:
    """Collect the facts, run the checks, and print every result, a fault with its fix below it; the exit code of the worst."""
    findings = examine(gather(args.config or EMBEDDED_DEFAULT))
    state, unasked = worst(findings), silent(findings)
    if args.json:
        told = {"state": state, "checks": [asdict(one) for one in findings], "not_applicable": unasked}
        print(json.dumps(told, indent=1, ensure_ascii=False))
        return EXIT_CODES[state]
    rows = [
        (MARKS[one.state], one.engine or "host", one.id, one.evidence + (f"\n→ {one.fix}" if one.fix else ""))
        for one in findings
    ]
    show_rows(("", "of", "check", "evidence"), rows)
    states = [str(one.state) for one in findings]
    counts = ", ".join(f"{states.count(state)} {state}" for state in MARKS)
    print(f"{counts}; {len(unasked)} checks have nothing to look at here (--json lists them)")
    return EXIT_CODES[state]


def gather(path: Path) -> Evidence:
    """Collect all facts about this machine and this configuration. Raises OSError: there is no such file."""
    path.stat()
    tables = configuration.tables(path)
    engines = configuration.engines(tables, path.parent)
    with closing(Docker()) as docker:
        version, images = asyncio.run(image.images(engines, docker))
    return Evidence(
        host=replace(host.host(), docker=version),
        engines=engines,
        images=images,
        models={name: model.model(Path(spec.artefact)) for name, spec in engines.items() if spec.artefact},
        setting=_config_facts(path, tables),
    )


def _config_facts(path: Path, tables: Any) -> ConfigFacts:
    """Facts about the configuration and the files around it."""
    facts: dict[str, Any] = {"file": str(path), "together": configuration.together(tables)}
    try:
        config = load(path)
    except ConfigError as error:
        return ConfigFacts(error=str(error).removeprefix(f"{path}: "), **facts)
    state, keys = config.state_dir, len(config.secrets.api_keys)
    with suppress(RegistryError), RegistryReader(state / FILE) as reader:
        keys += sum(key.revoked is None for key in reader.all(KnownKey))
    is_weak = any(len(key) < SHORT_KEY for key in config.secrets.api_keys)
    return ConfigFacts(
        listen=str(config.listen),
        admin=str(config.admin),
        keys=keys,
        weak=(f"one key is shorter than {SHORT_KEY} characters",) if is_weak else (),
        state=str(state),
        filesystem=configuration.filesystem(state),
        **facts,
    )
