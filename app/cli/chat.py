"""`manners chat`: talk to a model in the terminal, with its time to first token per turn."""

import argparse
import os
import time
from typing import Any

from rich.console import Console

from app.cli.gateway_client import GatewayClient, GatewayError
from app.config import running
from gates.reply.chunks import parse_payload
from gates.reply.events import Broken, CallArguments, CallStart, Text


def run(args: argparse.Namespace) -> int:
    """Send one message, or hold a conversation until end of input; the exit code."""
    url = args.url or (runs.public if (runs := running.find()) else "http://127.0.0.1:8080")
    token = os.environ.get("MANNERS_API_KEYS", "none").split(",")[0]
    client, console = GatewayClient(url, token, "/v1/"), Console(highlight=False, markup=False, emoji=False)
    body: dict[str, Any] = {"model": args.model or _first_model(client, url), "messages": [], "stream": True}
    if args.message is not None:
        _turn(console, client, body, args.message)
        return 0
    console.print(f"Talking to {body['model']} at {url}. End with Ctrl-D.", style="dim")
    try:
        while True:
            _turn(console, client, body, console.input("you   "))
    except (EOFError, KeyboardInterrupt):
        console.print()
        return 0


def _turn(console: Console, client: GatewayClient, body: dict[str, Any], message: str) -> None:
    """Send one message, show the visible reply as it comes, and remember both."""
    body["messages"].append({"role": "user", "content": message})
    start, first, said = time.perf_counter(), None, ""
    console.print(body["model"], style="bold green", end=" ")
    payloads = client.payloads("POST", "chat/completions", json=body)
    for event in (event for payload in payloads for event in parse_payload(payload)):
        if isinstance(event, Broken):
            raise GatewayError(event.message)
        if first is None and isinstance(event, Text | CallStart):
            first = time.perf_counter() - start
        if isinstance(event, Text):
            said += event.text
            console.print(event.text, end="")
        elif isinstance(event, CallStart | CallArguments):
            part = event.name if isinstance(event, CallStart) else event.fragment
            console.print(part, style="yellow", end="")
    body["messages"].append({"role": "assistant", "content": said})
    total = time.perf_counter() - start
    shown = "no visible reply" if first is None else f"first token {first * 1000:.0f} ms"
    console.print(f"\n      {shown}, {total:.2f} s in all", style="dim")


def _first_model(client: GatewayClient, url: str) -> str:
    """The first model in the gateway's list. Raises GatewayError."""
    try:
        return str(client.call("GET", "models")["data"][0]["id"])
    except (LookupError, TypeError):
        raise GatewayError(f"{url} has no list of models: name one with --model") from None
