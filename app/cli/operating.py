"""The commands that ask the gateway's operators' API: `promote`, `rollback`, `status`, `audit`, `key` and so on.

`VERBS` holds each command: its flags, its request, and how the answer is shown. The parser of every command reads the
table, so this module imports little; what a command works with is imported when it runs.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from app.access.roles import ROLE_NAMES, Role
from app.cli import operation_view as view
from app.cli.operation_view import Said

if TYPE_CHECKING:
    from app.cli.gateway_client import GatewayClient

Body = Callable[["GatewayClient", argparse.Namespace], Said]
Flag = tuple[tuple[str, ...], Mapping[str, Any]]
"""Its names, and what `add_argument` takes."""


@dataclass(frozen=True)
class Verb:
    """One command of the operators.

    request: method and path of the API; a name in braces is a flag's.
    show: prints the answer. The answer of a command with the flag --dry-run is a plan, or an operation that is followed to
    its end.
    body: what is sent: the names of flags, or a function that makes it.
    """

    about: str
    request: str
    show: Callable[[Said], None]
    flags: tuple[Flag, ...] = ()
    body: tuple[str, ...] | Body = ()


def run(args: argparse.Namespace) -> int:
    """Run one command; its exit code."""
    from app.cli.gateway_client import GatewayError, connected

    verb, starts = VERBS[args.verb], getattr(args, "dry_run", None) == 0
    try:
        with connected(args, offline=args.verb.startswith(("key ", "operator "))) as client:
            said = _ask(client, verb, args)
            if starts:
                events = client.follow(said["id"])
                said = [*events][-1] if args.json else view.show_progress(said, events)
    except GatewayError as error:
        if args.json and error.told:
            print(json.dumps({"error": error.told}))
        raise
    if args.json:
        print(json.dumps(said, indent=1))
    elif not starts:
        verb.show(said)
    went_well = said["phase"] == "succeeded" if starts else said.get("chain", {}).get("ok", True)
    return 0 if went_well else 1


def _ask(client: "GatewayClient", verb: Verb, args: argparse.Namespace) -> Said:
    method, _, path = verb.request.partition(" ")
    path = path.format_map({name: quote(str(value), safe="") for name, value in vars(args).items()})
    if method in ("GET", "DELETE"):
        return client.call(method, path)
    if callable(verb.body):
        return client.call(method, path, json=verb.body(client, args))
    return client.call(method, path, json={name: vars(args)[name] for name in verb.body if name in args})


def _promotion(client: "GatewayClient", args: argparse.Namespace) -> Said:
    report = args.report and client.call("POST", "reports", content=args.report.read_bytes())["digest"]
    return {"model": args.model, "engine": args.engine, "report": report}


def _revocation(client: "GatewayClient", args: argparse.Namespace) -> Said:
    from gates.report.files import open_report

    engines = {engine["name"]: engine["digest"] for engine in client.call("GET", "engines")["engines"]}
    digest = engines.get(args.what, args.what)
    thing = "engine" if digest in engines.values() else "report"
    if not digest.startswith("sha256:"):
        digest = open_report(Path(digest).read_bytes(), trusted=None).statement_digest
    return {"thing": thing, "id": digest, "reason": args.reason}


def duration(text: str) -> int:
    """A time such as 90s, 30m, 24h or 7d, in seconds; at most 90 days. Raises ValueError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    if not number.isdecimal() or (seconds := int(number) * UNITS[unit]) > 90 * UNITS["d"]:
        raise ValueError(text)
    return seconds


def _limit(text: str) -> int | None:
    """A limit; 0 means none. Raises ValueError."""
    if not 0 <= (count := int(text)) <= 10**15:
        raise ValueError(text)
    return count or None


def flag(*names: str, **options: Any) -> Flag:
    """As `add_argument` takes it."""
    return names, options


LIMITS: Final = {
    "rpm": "requests a minute",
    "tpm": "tokens a minute, prompt and completion",
    "concurrency": "requests open at once",
    "daily_budget": "tokens a day (UTC)",
    "budget": "tokens in all",
}
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LIMITS = tuple(
    flag(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, type=_limit, metavar="N", help=f"at most N {of}; 0: no limit")
    for name, of in LIMITS.items()
)  # fmt: skip
_MODEL = flag("model", metavar="MODEL", help="the public model")
_REASON = flag("--reason", required=True, help="why, for the audit")
_DRY_RUN = flag("--dry-run", action="store_const", const=1, default=0, help="only show the plan")
_NAME = flag("name", metavar="NAME", help="letters, digits and _.-")
VERBS: Final[Mapping[str, Verb]] = {
    "promote": Verb("let a gated engine serve a model", "POST promote?dry_run={dry_run}", view.show_plan, (
        _MODEL,
        flag("engine", metavar="ENGINE", nargs="+", help="the engine that will serve it; several are replicas"),
        flag("--report", type=Path, metavar="FILE", help="report.json of its gate run (without it: by an override)"),
        _DRY_RUN,
    ), _promotion),
    "rollback": Verb("roll back to the previous engine, at once", "POST rollback?dry_run={dry_run}", view.show_plan,
        (_MODEL, _DRY_RUN), ("model",)),
    "status": Verb("which engine serves which model, and operations in progress", "GET status", view.show_status),
    "audit": Verb("who changed what, and whether the event chain is intact", "GET audit?limit={last}&newest=1", view.show_audit,
        (flag("--last", type=int, default=20, metavar="N", help="the newest events (default: %(default)s)"),)),
    "reload": Verb("read configuration, keys and operators again, without a restart", "POST reload", view.show_reloaded),
    "revoke": Verb("end an engine or a report as a ground for promotions, for good", "POST revoke",
        view.line("the {thing} {id:.19}… is revoked"),
        (flag("what", metavar="ENGINE|REPORT", help="an engine's name, or a report: its file or its digest"), _REASON),
        _revocation),
    "override add": Verb("waive refusals of an engine for a model", "POST overrides",
        view.line("override {id}: {engine} may serve {model} until {expires}"), (
        _MODEL,
        flag("engine", metavar="ENGINE", help="the engine that may serve it"),
        flag("--waive", dest="waives", action="append", required=True, metavar="CODE",
             help="a refusal, as `manners promote --dry-run` names it; may be repeated"),
        _REASON,
        flag("--hours", type=float, default=24.0, metavar="H", help="at most 24 (default: %(default)s)"),
    ), ("model", "engine", "waives", "reason", "hours")),
    "override list": Verb("the overrides that are active now", "GET overrides",
        view.table("overrides", {name: name for name in ("id", "model", "engine", "waives", "by", "expires", "reason")})),
    "override withdraw": Verb("end an override", "DELETE overrides/{id}", view.line("override {id} is withdrawn"),
        (flag("id", type=int, metavar="ID", help="as `manners override list` shows it"),)),
    "key add": Verb("make a key; its secret is printed once", "POST keys", view.show_secret, (_NAME, *_LIMITS), ("name", *LIMITS)),
    "key limit": Verb("change limits of a key; what it has used stays", "PATCH keys/{name}",
        view.line("{name}: " + ", ".join(f"{limit} {{limits[{limit}]}}" for limit in LIMITS)),
        (_NAME, *_LIMITS), tuple(LIMITS)),
    "key rotate": Verb("give a key a new secret; limits and what it has used stay", "POST keys/{name}/rotate", view.show_secret, (
        _NAME,
        flag("--overlap", dest="overlap_seconds", type=duration, default=86_400, metavar="TIME",
             help="how long the old secret still works: 30m, 24h, 7d; 0: not at all (default: 24h)"),
    ), ("overlap_seconds",)),
    "key revoke": Verb("end a key, at once", "DELETE keys/{name}", view.line("{name} is revoked"), (_NAME,)),
    "key list": Verb("all keys, without their secrets", "GET keys", view.table("keys", {
        "key": "name", **{limit: f"limits.{limit}" for limit in LIMITS}, "used today": "used.today", "in all": "used.total",
        "since": "created", "revoked": "revoked",
    })),
    "operator add": Verb("make an operator; its secret is printed once", "POST operators", view.show_secret, (
        _NAME,
        flag("--role", choices=ROLE_NAMES, default=str(Role.WATCH), help="read; also change who serves; everything (default: %(default)s)"),
    ), ("name", "role")),
    "operator revoke": Verb("end an operator, at once", "DELETE operators/{name}", view.line("{name} is revoked"), (_NAME,)),
    "operator list": Verb("all operators, without their secrets", "GET operators", view.table("operators", {
        "operator": "name", "role": "role", "since": "created", "revoked": "revoked",
    })),
}  # fmt: skip
