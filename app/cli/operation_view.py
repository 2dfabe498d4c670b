"""Prints operations, plans, models, the audit and lists in a terminal, for the operators' commands."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from app.cli.terminal import Column, show_list

FAULT_EVENTS = ("failed", "refused", "breached")
"""Events that introduce a fault; later events of the operation repeat it."""


def show_progress(begun: dict[str, Any], events: Iterable[dict[str, Any]]) -> dict[str, Any]:
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


def _headline(operation: dict[str, Any]) -> str:
    where = f"{', '.join(operation['incumbents'])} → {', '.join(operation['engines'])}"
    return f"{operation['kind']} {operation['model']}: {where}, {operation['strategy'].replace('_', '/')}"


def show_plan(plan: dict[str, Any]) -> None:
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


def show_status(said: dict[str, Any]) -> None:
    """Show one line for each model."""
    state = "draining" if said["draining"] else "ready" if said["ready"] else "not ready"
    print(f"{state}, {said['in_flight']} in flight")
    columns: dict[str, Column] = {"model": "name", "live": "replicas", "fallback": "fallback", "previous": "previous",
               "override until": "override.expires", "under way": _under_way}  # fmt: skip
    models = [{"name": name, **model} for name, model in said["models"].items()]
    show_list(models, columns)
    for model in models:
        if not model.get("gated"):
            engines = ", ".join(model["replicas"])
            print(f"{model['name']}: {engines} serves ungated: no passing report has let it in")


def _under_way(model: dict[str, Any]) -> str:
    if not (operation := model.get("operation")):
        return ""
    weight = operation.get("weight")
    share = f", {weight} % of the conversations" if weight else ""
    return f"{operation['kind']} of {operation['engine']}: {operation['phase']}{share}"


def show_audit(said: dict[str, Any]) -> None:
    """Show one line for each event, the newest last, and whether the chain verifies."""
    columns: dict[str, Column] = {"seq": "seq", "at (UTC)": lambda event: event["at"][:19], "who": "actor",
               "what": "verb", "of": "subject", "why": _why}  # fmt: skip
    show_list(said["events"], columns)
    chain = said["chain"]
    if chain["ok"]:
        print(f"the chain holds: {said['head']['seq']} events, head {said['head']['hash'][:23]}…")
    else:
        print(f"THE CHAIN IS BROKEN at {chain.get('seq')}: {chain.get('why')}")


def _why(event: dict[str, Any]) -> str:
    """The event's refusal or fault, else its reason, else the effect that was completed."""
    detail = event["detail"]
    fault = detail.get("fault") if detail.get("event") in FAULT_EVENTS else detail
    if fault and "code" in fault:
        return ": ".join(str(fault[part]) for part in ("code", "message") if fault.get(part))
    effect = str(detail.get("effect") or "").split("/")
    return str(detail.get("reason") or "") or (f"{effect[2]} done" if len(effect) > 2 else "")
