"""What the operators' commands show in a terminal: operations, models, the audit, keys."""

from dataclasses import fields
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from app.cli.terminal import show_rows
from app.registry.values import KeyLimits

LIMITS = tuple(limit.name for limit in fields(KeyLimits))
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
        self._console.print(f"{_headline(begun)}  [dim]{begun['id']}[/]")

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


def _headline(operation: dict[str, Any]) -> str:
    where = f"{_names(operation['incumbents'])} → [bold]{_names(operation['engines'])}[/]"
    strategy = operation["strategy"].replace("_", "/")
    return f"{operation['kind']} [bold]{escape(operation['model'])}[/]: {where}, {strategy}"


def show_plan(plan: dict[str, Any]) -> None:
    """Show which engines would start and stop, and how much memory would be left."""
    console = Console(highlight=False)
    console.print(f"{_headline(plan)}; nothing is changed yet")
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


def show_overrides(said: dict[str, Any]) -> None:
    """Show one line for each override."""
    columns = ("id", "model", "engine", "waives", "by", "expires", "reason")
    rows = [{**one, "waives": ", ".join(one["waives"])} for one in said["overrides"]]
    show_rows(columns, [[str(row[name]) for name in columns] for row in rows])


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


def show_keys(said: dict[str, Any]) -> None:
    """Show one line for each key."""
    titles = ("key", *LIMITS, "used today", "in all", "since", "revoked")
    show_rows(titles, [_key_row(one) for one in said["keys"]])


def show_operators(said: dict[str, Any]) -> None:
    """Show one line for each operator."""
    rows = [
        [one["name"], one["role"], _day(one["created"]), _day(one["revoked"])] for one in said["operators"]
    ]
    show_rows(("operator", "role", "since", "revoked"), rows)


def _key_row(key: dict[str, Any]) -> list[str]:
    limits = [_number(key["limits"][limit]) for limit in LIMITS]
    used = [_number(key["used"][name]) for name in ("today", "total")]
    since = _day(key["created"]) or key["source"]
    return [key["name"], *limits, *used, since, _day(key["revoked"])]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _day(at: str | None) -> str:
    return at[:10] if at else ""
