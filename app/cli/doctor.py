"""`manners doctor`: host, images, models and configuration, every check with its evidence and its fix.

The checks are in `deploy.doctor`. This module adds the facts that only `app` has: whether the configuration loads, and
its keys.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from os import EX_NOINPUT
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from app.cli.exit_codes import CommandError
from app.cli.terminal import console
from app.config.config import EMBEDDED_DEFAULT, ConfigError, load
from app.promotion.repository import FILE
from app.registry.errors import RegistryError
from app.registry.reader import RegistryReader
from deploy.doctor.collectors import configuration, host, image, model
from deploy.doctor.evidence import ConfigFacts, Evidence, parse, render
from deploy.doctor.examine import examine, silent
from deploy.doctor.result import EXIT_CODES, Diagnosis, worst
from deploy.drivers.docker_client import Docker

SHORT_KEY = 16
DEFAULTS = frozenset(
    {"changeme", "change-me", "secret", "password", "test", "annie", "sk-1234", "sk-test", "admin"}
)


def run(args: argparse.Namespace) -> int:
    """Collect or read the facts, run the checks and print the results; the exit code of the worst."""
    try:
        evidence = parse(args.evidence.read_text("utf-8")) if args.evidence else gather(args)
        if args.save:
            args.save.write_text(render(evidence), encoding="utf-8")
    except ValueError as error:
        raise CommandError(f"{args.evidence}: {error}", EX_NOINPUT) from None
    findings = examine(evidence)
    if args.json:
        print(as_json(findings, silent(findings)))
    else:
        show(evidence, findings, silent(findings), problems=args.problems)
    return EXIT_CODES[worst(findings)]


def as_json(findings: Sequence[Diagnosis], unasked: Sequence[str]) -> str:
    checks = [asdict(finding) for finding in findings]
    told = {"state": worst(findings), "checks": checks, "not_applicable": list(unasked)}
    return json.dumps(told, indent=1, ensure_ascii=False)


# ------------------------------------------------------------------------------------------- facts


def gather(args: argparse.Namespace) -> Evidence:
    """Collect all facts about this machine and this configuration."""
    path = args.config or EMBEDDED_DEFAULT
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    tables = configuration.tables(path)
    engines = configuration.engines(tables, path.parent)
    config_facts = _config_facts(path, tables)
    with closing(Docker()) as docker:
        version, images = asyncio.run(image.images(engines, docker))
    folders = {name: Path(spec.artefact) for name, spec in engines.items() if spec.artefact}
    return Evidence(
        host=replace(host.host(), docker=version),
        engines=engines,
        images=images,
        models={name: model.model(folder, hashes=args.hashes) for name, folder in folders.items()},
        setting=config_facts,
    )


def _config_facts(path: Path, tables: Any) -> ConfigFacts:
    """Facts about the configuration and the files around it."""
    facts: dict[str, Any] = {"file": str(path), "together": configuration.together(tables)}
    try:
        config = load(path)
    except ConfigError as error:
        return ConfigFacts(error=str(error).removeprefix(f"{path}: "), **facts)
    state = config.state_dir
    return ConfigFacts(
        listen=str(config.listen),
        admin=str(config.admin),
        keys=len(config.secrets.api_keys) + _stored_keys(state),
        weak=weak(config.secrets.api_keys),
        state=str(state),
        filesystem=configuration.filesystem(state),
        **facts,
    )


def _stored_keys(state: Path) -> int:
    """Callers' keys in the state folder that are not revoked; 0 without a registry that can be read."""
    try:
        with RegistryReader.at(state / FILE) as reader:
            return sum(key.revoked is None for key in reader.api_keys())
    except RegistryError:
        return 0


def weak(keys: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with callers' keys; never contains a key."""
    found = []
    if any(key.lower() in DEFAULTS for key in keys):
        found.append("one key is a default that everybody knows")
    if any(len(key) < SHORT_KEY for key in keys):
        found.append(f"one key is shorter than {SHORT_KEY} characters")
    return tuple(found)


# -------------------------------------------------------------------------------------------- show

STATES = {
    "fail": ("[bold red]✗[/]", "red", "wrong"),
    "unknown": ("[magenta]?[/]", "magenta", "not known"),
    "warn": ("[yellow]![/]", "yellow", "to mind"),
    "ok": ("[green]✓[/]", "green", "ok"),
}
"""The mark of each state, its style, and what its findings are called when they are counted."""


def show(
    evidence: Evidence, findings: Sequence[Diagnosis], unasked: Sequence[str], *, problems: bool = False
) -> None:
    """Print the results in groups, each fault with its fix below it."""
    out = console()
    if evidence.about:
        out.print(f"[dim]{escape(evidence.about)}[/]")
    for title, belongs in _groups(evidence):
        if group := [f for f in findings if belongs(f) and not (problems and f.state == "ok")]:
            out.print(Rule(f"[bold]{escape(title)}[/]", align="left", style="dim"))
            out.print(_grid(group))
            out.print()
    counts = {state: sum(f.state == state for f in findings) for state in STATES}
    said = [f"[{STATES[state][1]}]{count} {STATES[state][2]}[/]" for state, count in counts.items() if count]
    rest = f" [dim]· {len(unasked)} checks have nothing to look at here (--json lists them)[/]"
    out.print(", ".join(said) + (rest if unasked else ""))


def _groups(evidence: Evidence) -> Iterator[tuple[str, Callable[[Diagnosis], bool]]]:
    """The groups' titles, and which findings belong to each: the host, each engine, the configuration."""
    host = evidence.host
    free, total = host.memory_available, host.memory_total
    memory = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free" if free and total else None
    gpu = next((gpu.name for gpu in host.gpus or ()), None)
    yield (
        " · ".join(filter(None, ("host", host.architecture, gpu, memory))),
        lambda f: f.id.startswith("host."),
    )
    for name, spec in evidence.engines.items():
        yield f"{name} · {spec.dialect} · {spec.driver}", lambda f, name=name: f.engine == name  # type: ignore[misc]
    yield f"configuration · {evidence.setting.file}", lambda f: f.id.startswith("config.")


def _grid(findings: Sequence[Diagnosis]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=1)
    grid.add_column(no_wrap=True, min_width=24)
    grid.add_column(overflow="fold", ratio=1)
    for finding in findings:
        mark, style, _ = STATES[finding.state]
        said = escape(finding.evidence)
        grid.add_row(mark, escape(finding.id), said if finding.state == "ok" else f"[{style}]{said}[/]")
        if finding.fix:
            grid.add_row("", "", f"[cyan]→ {escape(finding.fix)}[/]")
    return grid
