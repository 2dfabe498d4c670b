"""How an operation, a plan, the status and the audit look in a terminal."""

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from app.conformance.show import show_rows

GOOD, BAD = "[green]✓[/]", "[red]✗[/]"
TROUBLE = ("failed", "refused", "breached")
"""Events of an operation that carry a fault of their own; later ones repeat it."""
GIB = 1024**3


class Progress:
    """One line a phase, with how long it took, printed when the next begins."""

    def __init__(self, begun: dict[str, Any]) -> None:
        self._console = Console(highlight=False)
        self._phase, self._mark = "", GOOD
        self._since = self._start = _time(begun["created"])
        where = f"{escape(begun['incumbent'])} → [bold]{escape(begun['engine'])}[/]"
        self._console.print(
            f"{begun['kind']} [bold]{escape(begun['model'])}[/]: {where}, {begun['strategy'].replace('_', '/')}"
            f"  [dim]{begun['id']}[/]"
        )

    def step(self, event: dict[str, Any]) -> None:
        """One event of the stream."""
        at, fault = _time(event["at"]), event.get("fault")
        if event["event"] not in TROUBLE:
            fault = None
        if fault:  # it is told with the phase that it led to
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
        """The operation, as it ended."""
        seconds = (self._since - self._start).total_seconds()
        phase, error = operation["phase"], operation.get("error")
        if error is None:
            self._console.print(f"{GOOD} [bold green]{phase}[/] in {seconds:.1f} s: "
                                f"{escape(operation['model'])} is served by {escape(operation['engine'])}")  # fmt: skip
            return
        self._console.print(
            f"{BAD} [bold red]{phase.replace('_', ' ')}[/] after {seconds:.1f} s: "
            f"{escape(error['code'])}: {escape(error['message'])}"
        )


def show_plan(plan: dict[str, Any]) -> None:
    """What would start, what would stop, and what the memory would be."""
    console = Console(highlight=False)
    console.print(f"{plan['kind']} [bold]{escape(plan['model'])}[/]: {escape(plan['incumbent'])} → "
                  f"[bold]{escape(plan['engine'])}[/], {plan['strategy'].replace('_', '/')}; nothing is changed yet")  # fmt: skip
    memory = plan["memory"]
    for title, value in (
        ("starts", ", ".join(plan["starts"])),
        ("stops", ", ".join(plan["stops"])),
        ("stays", ", ".join(plan["stays"])),
        ("watched for", f"{plan['bake_seconds']:.0f} s after the switch"),
        ("memory", f"{_gib(memory['available_bytes'])} available, {_gib(memory['needed_bytes'])} needed, "
                   f"{_gib(memory['after_bytes'])} left after, {_gib(memory['floor_bytes'])} is the floor"),
        ("phases", " → ".join(plan["phases"])),
    ):  # fmt: skip
        console.print(f"  [dim]{title:<12}[/]{escape(value or 'nothing')}")


def show_status(said: dict[str, Any]) -> None:
    """A line a model."""
    rows = []
    for name, model in said["models"].items():
        operation, override = model.get("operation"), model.get("override")
        going = f"{operation['kind']} of {operation['engine']}: {operation['phase']}" if operation else ""
        rows.append([name, model["live"] or "", ", ".join(model["fallback"]), model.get("previous") or "",
                     "until " + str(override.get("expires")) if override else "", going])  # fmt: skip
    state = "draining" if said["draining"] else "ready" if said["ready"] else "not ready"
    print(f"{state}, {said['in_flight']} in flight")
    show_rows(("model", "live", "fallback", "previous", "override", "under way"), rows)


def show_audit(said: dict[str, Any]) -> None:
    """A line an event, the newest last, and whether the chain holds."""
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


def _why(detail: dict[str, Any]) -> str:
    """A refusal or a fault where it came up, a reason that was given, or the effect that was over."""
    fault = detail.get("fault") if detail.get("event") in TROUBLE else detail if "code" in detail else None
    if fault:
        return ": ".join(str(fault[part]) for part in ("code", "message") if fault.get(part))
    effect = str(detail.get("effect") or "").split("/")
    return str(detail.get("reason") or "") or (f"{effect[2]} done" if len(effect) > 2 else "")


def _subject(name: str) -> str:
    return f"{name[:19]}…" if name.startswith("sha256:") else name


def _gib(value: float | None) -> str:
    return "unknown" if value is None else f"{value / GIB:.1f} GiB"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
