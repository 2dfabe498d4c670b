"""Prints operations, plans, models, the audit and lists in a terminal, for the operators' commands."""

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from app.cli.terminal import Column, show_list

Said = dict[str, Any]
"""An answer of the operators' API."""
FAULT_EVENTS = ("failed", "refused", "breached")
"""Events that introduce a fault; later events of the operation repeat it."""


def line(text: str) -> Callable[[Said], None]:
    """Prints a line with values of the answer in it."""
    return lambda said: print(text.format_map(said))


def table(rows: str, columns: Mapping[str, Column]) -> Callable[[Said], None]:
    """Prints a table of the rows that stand below a key of the answer."""
    return lambda said: show_list(said[rows], columns)


def show_reloaded(said: Said) -> None:
    """Show what a reload has changed."""
    print(f"reloaded; changed: {', '.join(said['changed']) or 'nothing in the configuration'}")


def show_secret(said: Said) -> None:
    """Print the secret, which alone is on stdout."""
    if until := said.get("old_secret_until"):
        print(f"The old secret works until {until}.", file=sys.stderr)
    print(f"The secret of {said['name']}; it is not shown again:", file=sys.stderr)
    print(said.get("key") or said["token"])


def show_progress(begun: Said, events: Iterable[Said]) -> Said:
    """Print each phase when it begins, with the seconds since the start, each fault and the result; the ended operation."""
    phase, start, event = "queued", datetime.fromisoformat(begun["created"]), begun
    print(f"{_headline(begun)}  {begun['id']}")
    for event in events:
        if "done" in event:
            break
        if event["event"] in FAULT_EVENTS and (fault := event.get("fault")):
            print(f"{'✗':>10}  {fault['code']}: {fault['message']}")
        if event["phase"] != phase:
            phase = event["phase"]
            seconds = (datetime.fromisoformat(event["at"]) - start).total_seconds()
            print(f"{seconds:8.2f} s  {phase.replace('_', ' ')}")
    if error := event.get("error"):
        print(f"{event['phase'].replace('_', ' ')}: {error['code']}: {error['message']}")
    else:
        print(f"{event['model']} is served by {', '.join(event['engines'])}")
    return event


def _headline(operation: Said) -> str:
    where = f"{', '.join(operation['incumbents'])} → {', '.join(operation['engines'])}"
    return f"{operation['kind']} {operation['model']}: {where}, {operation['strategy'].replace('_', '/')}"


def show_plan(plan: Said) -> None:
    """Show which engines would start and stop."""
    print(f"{_headline(plan)}; nothing is changed yet")
    weights = ", ".join(f"{weight} %" for weight in plan["shift_weights"])
    for title, value in {
        **{title: ", ".join(plan[title]) for title in ("starts", "stops", "stays")},
        "shifted": weights and f"{weights} of the conversations before the switch, {plan['shift_seconds']:g} s each",
        "watched for": f"{plan['bake_seconds']:.0f} s after the switch",
        "phases": " → ".join(plan["phases"]),
    }.items():  # fmt: skip
        print(f"  {title:<12}{value or 'nothing'}")


def show_status(said: Said) -> None:
    """Show one line for each model."""
    state = "draining" if said["draining"] else "ready" if said["ready"] else "not ready"
    print(f"{state}, {said['in_flight']} in flight")
    models = [{"name": name, **model} for name, model in said["models"].items()]
    show_list(models, {"model": "name", "live": "replicas", "fallback": "fallback", "previous": "previous",
                       "override until": "override.expires", "under way": _under_way})  # fmt: skip
    for model in models:
        if not model.get("gated"):
            engines = ", ".join(model["replicas"])
            print(f"{model['name']}: {engines} serves ungated: no passing report has let it in")


def _under_way(model: Said) -> str:
    if not (operation := model.get("operation")):
        return ""
    share = f", {weight} % of the conversations" if (weight := operation.get("weight")) else ""
    return f"{operation['kind']} of {operation['engine']}: {operation['phase']}{share}"


def show_audit(said: Said) -> None:
    """Show one line for each event, the newest last, and whether the chain verifies."""
    show_list(said["events"], {"seq": "seq", "at (UTC)": lambda event: event["at"][:19], "who": "actor",
                               "what": "verb", "of": "subject", "why": _why})  # fmt: skip
    chain, head = said["chain"], said["head"]
    print(f"the chain holds: {head['seq']} events, head {head['hash'][:23]}…" if chain["ok"]
          else f"THE CHAIN IS BROKEN at {chain.get('seq')}: {chain.get('why')}")  # fmt: skip


def _why(event: Said) -> str:
    """The event's refusal or fault, else its reason, else the effect that was completed."""
    detail = event["detail"]
    fault = detail.get("fault") if detail.get("event") in FAULT_EVENTS else detail
    if fault and "code" in fault:
        return ": ".join(str(fault[part]) for part in ("code", "message") if fault.get(part))
    effect = str(detail.get("effect") or "").split("/")
    return str(detail.get("reason") or "") or (f"{effect[2]} done" if len(effect) > 2 else "")
