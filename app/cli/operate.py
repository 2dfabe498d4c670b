"""`manners promote`, `rollback`, `status`, `override`, `revoke` and the like: their flags. What they do is in `app.cli.operating`.

This module is imported whenever `manners` starts, and the other one, with its HTTP client, only for these commands.
"""

import argparse
from pathlib import Path
from typing import Any


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    promote = _verb(commands, "promote", "let a gated engine serve a model")
    promote.add_argument("model", metavar="MODEL", help="the public model")
    promote.add_argument(
        "engine", metavar="ENGINE", nargs="+", help="the engine that will serve it; several are replicas"
    )
    promote.add_argument(
        "--report", type=Path, metavar="FILE", help="report.json of its gate run (without it: by an override)"
    )
    rollback = _verb(commands, "rollback", "roll back to the previous engine, at once")
    rollback.add_argument("model", metavar="MODEL", help="the public model")
    for command in (promote, rollback):
        command.add_argument("--dry-run", action="store_true", help="only show the plan")
        command.add_argument("--no-follow", action="store_true", help="start it without waiting for its end")
    _verb(commands, "status", "which engine serves which model, and operations in progress")
    for name, about in (
        ("drain", "drain a replica: send it no new requests"),
        ("undrain", "end the drain of a replica"),
    ):
        _verb(commands, name, about).add_argument("engine", metavar="ENGINE", help="the replica")
    _verb(commands, "audit", "who changed what, and whether the event chain is intact").add_argument(
        "--last", type=int, default=20, metavar="N", help="the newest events (default: %(default)s)"
    )
    _verb(commands, "reload", "read configuration, keys and operators again, without a restart")
    revoke = _verb(commands, "revoke", "end an engine or a report as a ground for promotions, for good")
    revoke.add_argument(
        "what", metavar="ENGINE|REPORT", help="an engine's name, or a report: its file or its digest"
    )
    revoke.add_argument("--reason", required=True, help="why, for the audit")

    override = commands.add_parser(
        "override", help="let an engine serve in spite of named refusals, for hours"
    )
    verbs = override.add_subparsers(metavar="VERB", required=True, parser_class=type(override))
    grant = _verb(verbs, "add", "waive refusals of an engine for a model", "override_add")
    grant.add_argument("model", metavar="MODEL", help="the public model")
    grant.add_argument("engine", metavar="ENGINE", help="the engine that may serve it")
    grant.add_argument("--waive", action="append", required=True, metavar="CODE",
                       help="a refusal, as `manners promote --dry-run` names it; may be repeated")  # fmt: skip
    grant.add_argument("--reason", required=True, help="why, for the audit")
    grant.add_argument(
        "--hours", type=float, default=24.0, metavar="H", help="at most 24 (default: %(default)s)"
    )
    _verb(verbs, "list", "the overrides that are active now", "override_list")
    withdraw = _verb(verbs, "withdraw", "end an override", "override_withdraw")
    withdraw.add_argument("id", type=int, metavar="ID", help="as `manners override list` shows it")


def _verb(
    commands: "argparse._SubParsersAction[Any]", name: str, about: str, verb: str = ""
) -> argparse.ArgumentParser:
    """Add a command. `verb` is its name in `app.cli.operating`, if another."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=about)
    add_common_flags(command)
    command.set_defaults(run=run, verb=verb or name)
    return command


def add_common_flags(command: argparse.ArgumentParser) -> None:
    """Flags of every client of the admin API."""
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="the gateway's TOML (default: the embedded default)"
    )
    command.add_argument("--admin", metavar="URL", help="the admin listener (default: the configuration's)")
    command.add_argument("--json", action="store_true", help="print JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Run one command with a client of the admin API; its exit code."""
    from app.cli import operating

    return operating.run(args)
