"""The commands that ask the gateway's operators' API: `promote`, `rollback`, `status`, `audit`, `key` and so on.

`VERBS` holds each command: its flags, its request, and how the answer is shown. The parser of every command reads the
table, so this module imports little; what a command works with is imported when it runs.
"""

import argparse
import hashlib
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from app.access.roles import ROLE_NAMES, Role

if TYPE_CHECKING:
    from app.cli.gateway_client import GatewayClient

Said = dict[str, Any]
Body = Callable[["GatewayClient", argparse.Namespace], Said]
Flag = tuple[tuple[str, ...], Mapping[str, Any]]
"""Its names, and what `add_argument` takes."""


@dataclass(frozen=True)
class Verb:
    """One command of the operators.

    request: method and path of the API; a name in braces is a flag's.
    show: a function that prints the answer: of this module, or named, of `app.cli.operation_view`; a line with values of
    the answer in it; or the columns of a table, whose rows stand below the path's name. None: the answer is an operation,
    which is followed to its end.
    body: what is sent: the names of flags, or a function that makes it.
    offline: where no gateway runs, the command answers the request itself, with the registry of the state folder.
    """

    about: str
    request: str
    show: Callable[[Said], None] | str | Mapping[str, str] | None
    flags: tuple[Flag, ...] = ()
    body: tuple[str, ...] | Body = ()
    offline: bool = False


def run(args: argparse.Namespace) -> int:
    """Run one command; its exit code."""
    from app.cli import operation_view
    from app.cli.gateway_client import RequestRejected, connected
    from app.cli.terminal import show_list

    verb = VERBS[args.verb]
    try:
        with connected(args, verb.offline) as client:
            said = _ask(client, verb, args)
            if verb.show is None:
                return _follow(client, said, args)
    except RequestRejected as error:
        if args.json:
            print(json.dumps({"error": {part: error.error.get(part) for part in ("code", "message")}}))
        raise
    if args.json:
        print(json.dumps(said, indent=1))
    elif isinstance(verb.show, Mapping):
        show_list(said[verb.request.rpartition(" ")[2]], verb.show)
    elif isinstance(verb.show, str) and not hasattr(operation_view, verb.show):
        print(verb.show.format_map(said))
    else:
        show = verb.show if callable(verb.show) else getattr(operation_view, verb.show)
        show(said)
    return 0 if said.get("chain", {}).get("ok", True) else 1


def _ask(client: "GatewayClient", verb: Verb, args: argparse.Namespace) -> Said:
    method, _, path = verb.request.partition(" ")
    path = path.format_map({name: quote(str(value), safe="") for name, value in vars(args).items()})
    if method in ("GET", "DELETE"):
        return client.call(method, path)
    names = verb.body
    body = names(client, args) if callable(names) else {name: getattr(args, name) for name in names}
    started = {"Idempotency-Key": str(uuid.uuid4())} if verb.show is None else {}
    return client.call(method, path, json=body, headers=started)


def _follow(client: "GatewayClient", begun: Said, args: argparse.Namespace) -> int:
    """Show a plan, or the progress of a started operation until its end; the exit code."""
    from app.cli.operation_view import show_plan, show_progress

    if args.dry_run:
        print(json.dumps(begun, indent=1)) if args.json else show_plan(begun)
        return 0
    events = client.follow(begun["id"])
    if args.json:
        *_, ended = events
        print(json.dumps(ended, indent=1))
    else:
        ended = show_progress(begun, events)
    return 0 if ended["phase"] == "succeeded" else 1


# Bodies of requests.


def _promotion(client: "GatewayClient", args: argparse.Namespace) -> Said:
    report = args.report and client.call("POST", "reports", content=args.report.read_bytes())["digest"]
    engine = args.engine if len(args.engine) > 1 else args.engine[0]
    return {"model": args.model, "engine": engine, "report": report}


def _revocation(client: "GatewayClient", args: argparse.Namespace) -> Said:
    engines = client.call("GET", "engines")["engines"]
    known = {engine["name"]: str(engine["digest"]) for engine in engines}
    if args.what in known or args.what in known.values():
        thing, digest = "engine", known.get(args.what, args.what)
    else:
        thing, digest = "report", args.what
        if not digest.startswith("sha256:"):
            digest = _statement_digest(Path(args.what))
    return {"thing": thing, "id": digest, "reason": args.reason}


def _statement_digest(report: Path) -> str:
    """The digest of what a report states, which another signature does not change. Raises OSError, ReportError."""
    from gates.report.dsse import parse

    return f"sha256:{hashlib.sha256(parse(report.read_bytes()).payload).hexdigest()}"


def _limits(client: "GatewayClient", args: argparse.Namespace) -> Said:
    """The limits that were given; 0 means none."""
    given = {limit: getattr(args, limit) for limit in LIMITS}
    return {limit: value or None for limit, value in given.items() if value is not None}


# Output of the commands.


def _show_reloaded(said: Said) -> None:
    print(f"reloaded; changed: {', '.join(said['changed']) or 'nothing in the configuration'}")


def _show_limits(said: Said) -> None:
    print(f"{said['name']}: {', '.join(f'{name} {value}' for name, value in said['limits'].items())}")


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
_REASON = flag("--reason", required=True, help="why, for the audit")
_STARTED = (flag("--dry-run", action="store_const", const=1, default=0, help="only show the plan"),)
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
        "let a gated engine serve a model", "POST promote?dry_run={dry_run}", None,
        (
            _MODEL,
            flag("engine", metavar="ENGINE", nargs="+", help="the engine that will serve it; several are replicas"),
            flag("--report", type=Path, metavar="FILE", help="report.json of its gate run (without it: by an override)"),
            *_STARTED,
        ),
        _promotion,
    ),
    "rollback": Verb(
        "roll back to the previous engine, at once", "POST rollback?dry_run={dry_run}", None,
        (_MODEL, *_STARTED), ("model",),
    ),
    "status": Verb("which engine serves which model, and operations in progress", "GET status", "show_status"),
    "audit": Verb(
        "who changed what, and whether the event chain is intact", "GET audit?limit={last}&newest=1", "show_audit",
        (flag("--last", type=int, default=20, metavar="N", help="the newest events (default: %(default)s)"),),
    ),
    "reload": Verb("read configuration, keys and operators again, without a restart", "POST reload", _show_reloaded),
    "revoke": Verb(
        "end an engine or a report as a ground for promotions, for good", "POST revoke", "the {thing} {id:.19}… is revoked",
        (flag("what", metavar="ENGINE|REPORT", help="an engine's name, or a report: its file or its digest"), _REASON),
        _revocation,
    ),
    "override add": Verb(
        "waive refusals of an engine for a model", "POST overrides", "override {id}: {engine} may serve {model} until {expires}",
        (
            _MODEL,
            flag("engine", metavar="ENGINE", help="the engine that may serve it"),
            flag("--waive", dest="waives", action="append", required=True, metavar="CODE",
                  help="a refusal, as `manners promote --dry-run` names it; may be repeated"),
            _REASON,
            flag("--hours", type=float, default=24.0, metavar="H", help="at most 24 (default: %(default)s)"),
        ),
        ("model", "engine", "waives", "reason", "hours"),
    ),
    "override list": Verb(
        "the overrides that are active now", "GET overrides",
        {name: name for name in ("id", "model", "engine", "waives", "by", "expires", "reason")},
    ),
    "override withdraw": Verb(
        "end an override", "DELETE overrides/{id}", "override {id} is withdrawn",
        (flag("id", type=int, metavar="ID", help="as `manners override list` shows it"),),
    ),
    "key add": Verb(
        "make a key; its secret is printed once", "POST keys", _show_secret, (_NAME, *_limit_flags("at most N")),
        lambda client, args: {"name": args.name, **_limits(client, args)}, offline=True,
    ),
    "key limit": Verb(
        "change limits of a key; what it has used stays", "PATCH keys/{name}", _show_limits,
        (_NAME, *_limit_flags("at most N (0: no limit)")), _limits, offline=True,
    ),
    "key rotate": Verb(
        "give a key a new secret; limits and what it has used stay", "POST keys/{name}/rotate", _show_secret,
        (
            _NAME,
            flag("--overlap", dest="overlap_seconds", type=duration, default=86_400, metavar="TIME",
                  help="how long the old secret still works: 30m, 24h, 7d; 0: not at all (default: 24h)"),
        ),
        ("overlap_seconds",), offline=True,
    ),
    "key revoke": Verb("end a key, at once", "DELETE keys/{name}", "{name} is revoked", (_NAME,), offline=True),
    "key list": Verb(
        "all keys, without their secrets", "GET keys",
        {"key": "name", **{limit: f"limits.{limit}" for limit in LIMITS}, "used today": "used.today", "in all": "used.total",
         "from": "source", "since": "created", "revoked": "revoked"},
        offline=True,
    ),
    "operator add": Verb(
        "make an operator; its secret is printed once", "POST operators", _show_secret,
        (
            _NAME,
            flag("--role", choices=ROLE_NAMES, default=str(Role.WATCH),
                  help="watch: read; promote: also change who serves; administer: everything (default: %(default)s)"),
        ),
        ("name", "role"), offline=True,
    ),
    "operator revoke": Verb(
        "end an operator, at once", "DELETE operators/{name}", "{name} is revoked", (_NAME,), offline=True,
    ),
    "operator list": Verb(
        "all operators, without their secrets", "GET operators",
        {"operator": "name", "role": "role", "since": "created", "revoked": "revoked"}, offline=True,
    ),
}  # fmt: skip
