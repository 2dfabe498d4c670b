"""The commands that ask the gateway's operators' API: `promote`, `rollback`, `status`, `audit`, `key` and so on.

`VERBS` holds each command: its flags, its request, and how the answer is shown. The parser of every command reads the
table, so this module imports little; what a command works with is imported when it runs.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from app.access.roles import ROLE_NAMES, Role

if TYPE_CHECKING:
    from app.cli.admin_client import AdminClient

Said = dict[str, Any]
Ask = Callable[[Any, argparse.Namespace], Said]
Flag = tuple[tuple[str, ...], Mapping[str, Any]]
"""Its names, and what `add_argument` takes."""


@dataclass(frozen=True)
class Verb:
    """One command. `show` prints the answer; None: the answer is an operation, which is followed to its end.

    offline: where no gateway runs, `ask` gets the state folder, which has the client's methods for keys and operators.
    """

    about: str
    ask: Ask
    show: Callable[[Said], None] | None
    flags: tuple[Flag, ...] = ()
    offline: bool = False


def run(args: argparse.Namespace) -> int:
    """Run one command; its exit code."""
    from app.cli.admin_client import run_client

    return run_client(lambda: _run(VERBS[args.verb], args), args)


def _run(verb: Verb, args: argparse.Namespace) -> int:
    from app.cli.admin_client import client_for
    from app.cli.state_folder import state_folder

    with state_folder(args.config) if verb.offline and not args.admin else nullcontext() as folder:
        client: Any = folder or client_for(args)
        said = verb.ask(client, args)
        if verb.show is None:
            return _follow(client, said, args)
    print(json.dumps(said, indent=1)) if args.json else verb.show(said)
    return 0 if said.get("chain", {}).get("ok", True) else 1


def _follow(client: "AdminClient", begun: Said, args: argparse.Namespace) -> int:
    """Show a plan, a started operation, or its progress until the end; the exit code."""
    from app.cli.operation_view import OperationProgress, show_plan

    if args.dry_run or args.no_follow:
        show = show_plan if args.dry_run else lambda operation: print(operation["id"])
        print(json.dumps(begun, indent=1)) if args.json else show(begun)
        return 0
    shown, ended = None if args.json else OperationProgress(begun), begun
    for name, data in client.follow(begun["id"]):
        if name == "done":
            ended = data
        elif shown:
            shown.step(data)
    print(json.dumps(ended, indent=1)) if shown is None else shown.end(ended)
    return 0 if ended["phase"] == "succeeded" else 1


# Requests to the admin API.


def _promote(client: "AdminClient", args: argparse.Namespace) -> Said:
    report = (
        client.call("POST", "reports", content=args.report.read_bytes())["digest"] if args.report else None
    )
    engine = args.engine if len(args.engine) > 1 else args.engine[0]
    body = {"model": args.model, "engine": engine, "report": report}
    return client.start("promote", body, dry_run=args.dry_run)


def _rollback(client: "AdminClient", args: argparse.Namespace) -> Said:
    return client.start("rollback", {"model": args.model}, dry_run=args.dry_run)


def _drain(client: "AdminClient", args: argparse.Namespace) -> Said:
    return client.call("POST", f"engines/{quote(args.engine, safe='')}/{args.verb}", json={})


def _revoke(client: "AdminClient", args: argparse.Namespace) -> Said:
    engines = client.call("GET", "engines")["engines"]
    known = {engine["name"]: str(engine["digest"]) for engine in engines}
    if args.what in known or args.what in known.values():
        thing, digest = "engine", known.get(args.what, args.what)
    elif args.what.startswith("sha256:"):
        thing, digest = "report", args.what
    else:
        thing, digest = "report", _statement_digest(Path(args.what))
    said = client.call("POST", "revoke", json={"thing": thing, "id": digest, "reason": args.reason})
    return {**said, "thing": thing, "id": digest}


def _statement_digest(report: Path) -> str:
    """The digest of what a report states, which another signature does not change."""
    from app.cli.admin_client import AdminClientError
    from gates.contracts.errors import ReportError
    from gates.report.dsse import parse

    try:
        return f"sha256:{hashlib.sha256(parse(report.read_bytes()).payload).hexdigest()}"
    except ReportError as error:
        raise AdminClientError(f"{report}: {error}") from None


def _override(client: "AdminClient", args: argparse.Namespace) -> Said:
    names = ("model", "engine", "reason", "hours")
    body = {name: getattr(args, name) for name in names}
    return client.call("POST", "overrides", json={**body, "waives": args.waive})


def _limits(args: argparse.Namespace) -> dict[str, int | None]:
    """The limits that were given; 0 means none."""
    given = {limit: getattr(args, limit) for limit in LIMITS}
    return {limit: value or None for limit, value in given.items() if value is not None}


# Output of the commands.


def _view(name: str) -> Callable[[Said], None]:
    """A function of `app.cli.operation_view`."""

    def show(said: Said) -> None:
        getattr(import_module("app.cli.operation_view"), name)(said)

    return show


def _line(text: str) -> Callable[[Said], None]:
    """One line, with values of the answer in it."""
    return lambda said: print(text.format_map(said))


def _show_drained(said: Said) -> None:
    what = f"gets no new requests; {said['open']} are open" if said["drained"] else "gets requests again"
    print(f"{said['engine']} {what}")


def _show_reloaded(said: Said) -> None:
    print(f"reloaded; changed: {', '.join(said['changed']) or 'nothing in the configuration'}")


def _show_limits(said: Said) -> None:
    limits = ["–" if value is None else f"{value:,}" for value in said["limits"].values()]
    print(f"{said['name']}: {', '.join(map(' '.join, zip(said['limits'], limits, strict=True)))}")


def _show_secret(said: Said) -> None:
    """The secret alone on stdout."""
    if until := said.get("old_secret_until"):
        print(f"The old secret works until {until}.", file=sys.stderr)
    print(f"The secret of {said['name']}; it is not shown again:", file=sys.stderr)
    print(said.get("key") or said["token"])


# Values of flags.


def duration(text: str) -> int:
    """A time such as 90s, 30m, 24h or 7d, in seconds. Raises ValueError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    if not number.isdecimal() or not number.isascii() or (seconds := int(number) * UNITS[unit]) > 90 * 86_400:
        raise ValueError(text)
    return seconds


def _limit(text: str) -> int:
    count = int(text.replace("_", ""))
    if not 0 <= count <= 10**15:
        raise ValueError(text)
    return count


# The commands.

LIMITS: Final = {
    "rpm": "requests a minute",
    "tpm": "tokens a minute, prompt and completion",
    "concurrency": "requests open at once",
    "daily_budget": "tokens a day (UTC)",
    "budget": "tokens in all",
}
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def flag(*names: str, **options: Any) -> Flag:
    """As `add_argument` takes it."""
    return names, options


def _limit_flags(about: str) -> Iterator[Flag]:
    for limit, said in LIMITS.items():
        yield flag(
            f"--{limit.replace('_', '-')}", dest=limit, type=_limit, metavar="N", help=f"{about} {said}"
        )


_MODEL = flag("model", metavar="MODEL", help="the public model")
_REPLICA = (flag("engine", metavar="ENGINE", help="the replica"),)
_REASON = flag("--reason", required=True, help="why, for the audit")
_STARTED = (
    flag("--dry-run", action="store_true", help="only show the plan"),
    flag("--no-follow", action="store_true", help="start it without waiting for its end"),
)
_NAME = flag("name", metavar="NAME", help="letters, digits and _.-")
CLIENT = (
    flag("--config", type=Path, metavar="FILE", help="the gateway's TOML (default: the embedded default)"),
    flag("--admin", metavar="URL", help="the admin listener (default: the configuration's)"),
    flag("--json", action="store_true", help="print JSON on stdout"),
)
GROUPS: Final = {
    "override": "let an engine serve in spite of named refusals, for hours",
    "key": "callers' keys, with limits and budgets",
    "operator": "operators, with roles",
}
"""Commands whose name is the first of two words, and their help."""
VERBS: Final[Mapping[str, Verb]] = {
    "promote": Verb(
        "let a gated engine serve a model", _promote, None,
        (
            _MODEL,
            flag("engine", metavar="ENGINE", nargs="+", help="the engine that will serve it; several are replicas"),
            flag("--report", type=Path, metavar="FILE", help="report.json of its gate run (without it: by an override)"),
            *_STARTED,
        ),
    ),
    "rollback": Verb("roll back to the previous engine, at once", _rollback, None, (_MODEL, *_STARTED)),
    "status": Verb(
        "which engine serves which model, and operations in progress",
        lambda client, args: client.call("GET", "status"), _view("show_status"),
    ),
    "drain": Verb("drain a replica: send it no new requests", _drain, _show_drained, _REPLICA),
    "undrain": Verb("end the drain of a replica", _drain, _show_drained, _REPLICA),
    "audit": Verb(
        "who changed what, and whether the event chain is intact",
        lambda client, args: client.call("GET", "audit", params={"limit": args.last, "newest": 1}), _view("show_audit"),
        (flag("--last", type=int, default=20, metavar="N", help="the newest events (default: %(default)s)"),),
    ),
    "reload": Verb(
        "read configuration, keys and operators again, without a restart",
        lambda client, args: client.call("POST", "reload"), _show_reloaded,
    ),
    "revoke": Verb(
        "end an engine or a report as a ground for promotions, for good", _revoke, _line("the {thing} {id:.19}… is revoked"),
        (flag("what", metavar="ENGINE|REPORT", help="an engine's name, or a report: its file or its digest"), _REASON),
    ),
    "override add": Verb(
        "waive refusals of an engine for a model", _override, _line("override {id}: {engine} may serve {model} until {expires}"),
        (
            _MODEL,
            flag("engine", metavar="ENGINE", help="the engine that may serve it"),
            flag("--waive", action="append", required=True, metavar="CODE",
                  help="a refusal, as `manners promote --dry-run` names it; may be repeated"),
            _REASON,
            flag("--hours", type=float, default=24.0, metavar="H", help="at most 24 (default: %(default)s)"),
        ),
    ),
    "override list": Verb(
        "the overrides that are active now",
        lambda client, args: client.call("GET", "overrides"), _view("show_overrides"),
    ),
    "override withdraw": Verb(
        "end an override",
        lambda client, args: client.call("DELETE", f"overrides/{args.id}"), _line("override {id} is withdrawn"),
        (flag("id", type=int, metavar="ID", help="as `manners override list` shows it"),),
    ),
    "key add": Verb(
        "make a key; its secret is printed once",
        lambda store, args: store.add("keys", {"name": args.name, **_limits(args)}), _show_secret,
        (_NAME, *_limit_flags("at most N")), offline=True,
    ),
    "key limit": Verb(
        "change limits of a key; what it has used stays",
        lambda store, args: store.limit(args.name, _limits(args)), _show_limits,
        (_NAME, *_limit_flags("at most N (0: no limit)")), offline=True,
    ),
    "key rotate": Verb(
        "give a key a new secret; limits and what it has used stay",
        lambda store, args: store.rotate(args.name, args.overlap), _show_secret,
        (
            _NAME,
            flag("--overlap", type=duration, default=86_400, metavar="TIME",
                  help="how long the old secret still works: 30m, 24h, 7d; 0: not at all (default: 24h)"),
        ),
        offline=True,
    ),
    "key revoke": Verb(
        "end a key, at once",
        lambda store, args: store.revoke("keys", args.name), _line("{name} is revoked"), (_NAME,), offline=True,
    ),
    "key list": Verb(
        "all keys, without their secrets",
        lambda store, args: {"keys": store.listed("keys")}, _view("show_keys"), offline=True,
    ),
    "operator add": Verb(
        "make an operator; its secret is printed once",
        lambda store, args: store.add("operators", {"name": args.name, "role": args.role}), _show_secret,
        (
            _NAME,
            flag("--role", choices=ROLE_NAMES, default=str(Role.WATCH),
                  help="watch: read; promote: also change who serves; administer: everything (default: %(default)s)"),
        ),
        offline=True,
    ),
    "operator revoke": Verb(
        "end an operator, at once",
        lambda store, args: store.revoke("operators", args.name), _line("{name} is revoked"), (_NAME,), offline=True,
    ),
    "operator list": Verb(
        "all operators, without their secrets",
        lambda store, args: {"operators": store.listed("operators")}, _view("show_operators"), offline=True,
    ),
}  # fmt: skip
