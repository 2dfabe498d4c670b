"""What `manners promote`, `rollback`, `status` and `audit` do: thin clients of the admin API."""

import argparse
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from os import EX_CONFIG, EX_NOINPUT, EX_NOPERM, EX_UNAVAILABLE
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from app.access.keys import read_admin_token
from app.cli.admin_client import AdminClient, AdminClientError, RequestRejected
from app.cli.exit_codes import exit_code, fail
from app.cli.terminal import show_rows
from app.config.config import ConfigError, load
from app.errors.tree import MannersError
from app.registry.errors import RegistryError
from gates.contracts.errors import ReportError
from gates.report import dsse

CODES: Final[Mapping[type[Exception], int]] = {
    ConfigError: EX_CONFIG,
    AdminClientError: EX_UNAVAILABLE,
    RegistryError: EX_UNAVAILABLE,
    MannersError: 1,
    OSError: EX_NOINPUT,
}


def run(args: argparse.Namespace) -> int:
    """Run one command with a client of the admin API; its exit code."""
    return run_client(lambda: _run(client_for(args), args), args)


def run_client(work: Callable[[], int], args: argparse.Namespace) -> int:
    """The exit code of work that asks the gateway, or changes what it keeps."""

    def caught() -> int:
        try:
            return work()
        except RequestRejected as error:
            if args.json:
                print(json.dumps({"error": {"code": error.code, "message": error.message}}))
            return fail("manners", error, EX_NOPERM if error.status in (401, 403) else 1)

    return exit_code("manners", caught, CODES, words=_words)


def _words(error: Exception) -> str:
    if isinstance(error, MannersError):
        return f"{error.code}: {error.message}"
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


def _run(client: AdminClient, args: argparse.Namespace) -> int:
    if args.verb in STARTS:
        return _follow(client, STARTS[args.verb](client, args), args)
    ask, show = VERBS[args.verb]
    said = ask(client, args)
    print(json.dumps(said, indent=1)) if args.json else show(said)
    return 0 if said.get("chain", {}).get("ok", True) else 1


def client_for(args: argparse.Namespace) -> AdminClient:
    """A client of the configured gateway. Raises ConfigError: no token is known."""
    config = load(args.config)
    try:
        token = read_admin_token(config.secrets.admin_token, config.state_dir)
    except OSError as error:
        raise ConfigError(f"gateway.state: admin.token: {error.strerror}") from None
    if token is None:
        raise ConfigError(
            "no admin token: set MANNERS_ADMIN_TOKEN, or run this where the gateway has made one"
        )
    host = f"[{config.admin.host}]" if ":" in config.admin.host else config.admin.host
    return AdminClient(args.admin or f"http://{host}:{config.admin.port}", token)


def _promote(client: AdminClient, args: argparse.Namespace) -> dict[str, Any]:
    report = client.upload(args.report.read_bytes())["digest"] if args.report else None
    engine = args.engine if len(args.engine) > 1 else args.engine[0]
    return client.promote(args.model, engine, report, key=str(uuid.uuid4()), dry_run=args.dry_run)


def _rollback(client: AdminClient, args: argparse.Namespace) -> dict[str, Any]:
    return client.rollback(args.model, key=str(uuid.uuid4()), dry_run=args.dry_run)


def _follow(client: AdminClient, begun: dict[str, Any], args: argparse.Namespace) -> int:
    """Show a plan, a started operation, or its progress until the end; the exit code."""
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


def _revoke(client: AdminClient, args: argparse.Namespace) -> dict[str, Any]:
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
    try:
        return f"sha256:{hashlib.sha256(dsse.parse(report.read_bytes()).payload).hexdigest()}"
    except ReportError as error:
        raise AdminClientError(f"{report}: {error}") from None


def _override(client: AdminClient, args: argparse.Namespace) -> dict[str, Any]:
    names = ("model", "engine", "reason", "hours")
    body = {name: getattr(args, name) for name in names}
    return client.call("POST", "overrides", json={**body, "waives": args.waive})


Ask = Callable[[AdminClient, argparse.Namespace], dict[str, Any]]
STARTS: Final[Mapping[str, Ask]] = {"promote": _promote, "rollback": _rollback}
"""Verbs that start an operation."""


# ---------------------------------------------------------------------------------------------- show

GOOD, BAD = "[green]✓[/]", "[red]✗[/]"
FAULT_EVENTS = ("failed", "refused", "breached")
"""Events that introduce a fault; later events of the operation repeat it."""
GIB = 1024**3


class OperationProgress:
    """Prints one line for each phase with its duration, when the next phase begins."""

    def __init__(self, begun: dict[str, Any]) -> None:
        self._console = Console(highlight=False)
        self._phase, self._mark = "", GOOD
        self._since = self._start = _time(begun["created"])
        where = f"{_names(begun['incumbents'])} → [bold]{_names(begun['engines'])}[/]"
        self._console.print(
            f"{begun['kind']} [bold]{escape(begun['model'])}[/]: {where}, {begun['strategy'].replace('_', '/')}"
            f"  [dim]{begun['id']}[/]"
        )

    def step(self, event: dict[str, Any]) -> None:
        """Handle one event of the stream."""
        at, fault = _time(event["at"]), event.get("fault")
        if event["event"] not in FAULT_EVENTS:
            fault = None
        if fault:  # shown with the phase that it ended
            self._mark = BAD
        if event["phase"] != self._phase:
            self._close(at)
            self._phase, self._since = event["phase"], at
            self._mark = "[yellow]↶[/]" if self._phase == "rolling_back" else GOOD
        if fault:
            self._console.print(f"  {BAD} [red]{escape(fault['code'])}[/]: {escape(fault['message'])}")

    def _close(self, at: datetime) -> None:
        if self._phase not in ("", "queued"):
            seconds = (at - self._since).total_seconds()
            self._console.print(f"  {self._mark} {self._phase.replace('_', ' '):<13}{seconds:8.2f} s")

    def end(self, operation: dict[str, Any]) -> None:
        """Show the operation's result."""
        seconds = (self._since - self._start).total_seconds()
        phase, error = operation["phase"], operation.get("error")
        if error is None:
            self._console.print(f"{GOOD} [bold green]{phase}[/] in {seconds:.1f} s: "
                                f"{escape(operation['model'])} is served by {_names(operation['engines'])}")  # fmt: skip
            return
        self._console.print(
            f"{BAD} [bold red]{phase.replace('_', ' ')}[/] after {seconds:.1f} s: "
            f"{escape(error['code'])}: {escape(error['message'])}"
        )


def show_plan(plan: dict[str, Any]) -> None:
    """Show which engines would start and stop, and how much memory would be left."""
    console = Console(highlight=False)
    console.print(f"{plan['kind']} [bold]{escape(plan['model'])}[/]: {_names(plan['incumbents'])} → "
                  f"[bold]{_names(plan['engines'])}[/], {plan['strategy'].replace('_', '/')}; nothing is changed yet")  # fmt: skip
    memory = plan["memory"]
    for title, value in (
        ("starts", ", ".join(plan["starts"])),
        ("stops", ", ".join(plan["stops"])),
        ("stays", ", ".join(plan["stays"])),
        ("shifted", _shift(plan)),
        ("watched for", f"{plan['bake_seconds']:.0f} s after the switch"),
        ("memory", f"{_gib(memory['available_bytes'])} available, {_gib(memory['needed_bytes'])} needed, "
                   f"{_gib(memory['after_bytes'])} left after, {_gib(memory['floor_bytes'])} is the floor"),
        ("phases", " → ".join(plan["phases"])),
    ):  # fmt: skip
        console.print(f"  [dim]{title:<12}[/]{escape(value or 'nothing')}")


def _shift(plan: dict[str, Any]) -> str:
    weights = ", ".join(f"{weight} %" for weight in plan["shift_weights"])
    return (
        f"{weights} of the conversations before the switch, {plan['shift_seconds']:g} s each"
        if weights
        else ""
    )


def _phase(operation: dict[str, Any]) -> str:
    weight = operation.get("weight")
    return str(operation["phase"]) + (f", {weight} % of the conversations" if weight else "")


def show_status(said: dict[str, Any]) -> None:
    """Show one line for each model."""
    rows = []
    for name, model in said["models"].items():
        operation, override = model.get("operation"), model.get("override")
        going = f"{operation['kind']} of {operation['engine']}: {_phase(operation)}" if operation else ""
        rows.append([name, ", ".join(model["replicas"]), ", ".join(model["fallback"]), model.get("previous") or "",
                     "until " + str(override.get("expires")) if override else "", going])  # fmt: skip
    state = "draining" if said["draining"] else "ready" if said["ready"] else "not ready"
    print(f"{state}, {said['in_flight']} in flight")
    show_rows(("model", "live", "fallback", "previous", "override", "under way"), rows)
    for name, model in said["models"].items():
        if not model.get("gated"):
            print(f"{name}: {', '.join(model['replicas'])} serves ungated: no passing report has let it in")


def show_audit(said: dict[str, Any]) -> None:
    """Show one line for each event, the newest last, and whether the chain verifies."""
    rows = [
        [
            str(e["seq"]),
            e["at"][:19].replace("T", " "),
            e["actor"],
            e["verb"],
            _subject(e["subject"]),
            _why(e["detail"]),
        ]
        for e in said["events"]
    ]
    show_rows(("seq", "at (UTC)", "who", "what", "of", "why"), rows)
    chain = said["chain"]
    if chain["ok"]:
        print(f"the chain holds: {said['head']['seq']} events, head {said['head']['hash'][:23]}…")
    else:
        print(f"THE CHAIN IS BROKEN at {chain.get('seq')}: {chain.get('why')}")


def _show_drained(said: dict[str, Any]) -> None:
    what = f"gets no new requests; {said['open']} are open" if said["drained"] else "gets requests again"
    print(f"{said['engine']} {what}")


def _show_reloaded(said: dict[str, Any]) -> None:
    print(f"reloaded; changed: {', '.join(said['changed']) or 'nothing in the configuration'}")


def _show_overrides(said: dict[str, Any]) -> None:
    columns = ("id", "model", "engine", "waives", "by", "expires", "reason")
    rows = [{**one, "waives": ", ".join(one["waives"])} for one in said["overrides"]]
    show_rows(columns, [[str(row[name]) for name in columns] for row in rows])


def _show_override(said: dict[str, Any]) -> None:
    print(f"override {said['id']}: {said['engine']} may serve {said['model']} until {said['expires']}")


def _show_withdrawn(said: dict[str, Any]) -> None:
    print(f"override {said['id']} is withdrawn")


def _show_revoked(said: dict[str, Any]) -> None:
    print(f"the {said['thing']} {said['id'][:19]}… is revoked")


def _why(detail: dict[str, Any]) -> str:
    """The event's refusal or fault, else its reason, else the effect that was completed."""
    fault = (
        detail.get("fault") if detail.get("event") in FAULT_EVENTS else detail if "code" in detail else None
    )
    if fault:
        return ": ".join(str(fault[part]) for part in ("code", "message") if fault.get(part))
    effect = str(detail.get("effect") or "").split("/")
    return str(detail.get("reason") or "") or (f"{effect[2]} done" if len(effect) > 2 else "")


def _subject(name: str) -> str:
    return f"{name[:19]}…" if name.startswith("sha256:") else name


def _names(engines: list[str]) -> str:
    return escape(", ".join(engines))


def _gib(value: float | None) -> str:
    return "unknown" if value is None else f"{value / GIB:.1f} GiB"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


VERBS: Final[Mapping[str, tuple[Ask, Callable[[dict[str, Any]], None]]]] = {
    "status": (lambda client, args: client.status(), show_status),
    "audit": (
        lambda client, args: client.call("GET", "audit", params={"limit": args.last, "newest": 1}),
        show_audit,
    ),
    "reload": (lambda client, args: client.call("POST", "reload"), _show_reloaded),
    "drain": (lambda client, args: client.drain(args.engine), _show_drained),
    "undrain": (lambda client, args: client.drain(args.engine, "undrain"), _show_drained),
    "revoke": (_revoke, _show_revoked),
    "override_add": (_override, _show_override),
    "override_list": (lambda client, args: client.call("GET", "overrides"), _show_overrides),
    "override_withdraw": (
        lambda client, args: client.call("DELETE", f"overrides/{args.id}"),
        _show_withdrawn,
    ),
}
"""How to ask for a verb, and how to show the answer."""
