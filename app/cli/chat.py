"""`manners chat`: talk to a model in the terminal, with its time to first token per turn."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from os import EX_UNAVAILABLE
from typing import Any

import httpx2
from rich.console import Console
from rich.text import Text as RichText

from app.config import running
from gates.reply.chunks import parse_payload
from gates.reply.events import Broken, CallArguments, CallStart, Event, Text, Thought
from gates.reply.sse import SSEDecoder

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_SECONDS = 150.0
"""For connecting, and between two reads; the gateway's own limit for a whole reply is 120 by default."""


class ChatError(Exception):
    """The gateway did not answer, or answered with an error; the message is one line."""


def run(args: argparse.Namespace) -> int:
    """Send one message, or hold a conversation until end of input; the exit code."""
    message, think = args.message, args.think
    url = args.url or (runs.public if (runs := running.find()) else DEFAULT_URL)
    console = Console(highlight=False)
    history: list[dict[str, Any]] = []
    try:
        model = args.model or _first_model(url)
        if message is not None:
            _turn(console, url, model, history, message, think)
            return 0
        console.print(f"Talking to [bold]{model}[/] at {url}. End with Ctrl-D.", style="dim")
        while True:
            _turn(console, url, model, history, console.input("[bold cyan]you[/]   "), think)
    except ChatError as error:
        print(f"manners chat: {error}", file=sys.stderr)
        return EX_UNAVAILABLE
    except (EOFError, KeyboardInterrupt):
        console.print()
        return 0


def _turn(
    console: Console, url: str, model: str, history: list[dict[str, Any]], message: str, think: bool
) -> None:
    """Send one message, show the reply as it comes, and remember both."""
    history.append({"role": "user", "content": message})
    body = {"model": model, "messages": history, "stream": True}
    if think:
        body["chat_template_kwargs"] = {"enable_thinking": True}
    start, first, said, in_thought = time.perf_counter(), None, [], False
    console.print(f"[bold green]{model}[/] ", end="")
    for event in _events(url, body):
        if first is None and isinstance(event, Text | CallStart):
            first = time.perf_counter() - start
        if isinstance(event, Thought):
            in_thought = True
            console.print(RichText(event.text, style="dim italic"), end="")
        elif isinstance(event, Text):
            if in_thought:
                in_thought = False
                console.print()
            said.append(event.text)
            console.print(RichText(event.text), end="")
        elif isinstance(event, CallStart | CallArguments):
            part = event.name if isinstance(event, CallStart) else event.fragment
            console.print(RichText(part, style="yellow"), end="")
    history.append({"role": "assistant", "content": "".join(said)})
    total = time.perf_counter() - start
    shown = "no visible reply" if first is None else f"first token {first * 1000:.0f} ms"
    console.print(f"\n[dim]      {shown}, {total:.2f} s in all[/]")


def _first_model(url: str) -> str:
    """The first model in the gateway's list. Raises ChatError."""
    try:
        reply = httpx2.get(
            f"{url.rstrip('/')}/v1/models", headers=_headers(), timeout=TIMEOUT_SECONDS, trust_env=False
        )
        if not reply.is_success:
            raise ChatError(_message(reply.content) or f"the gateway answered {reply.status_code}")
        return str(reply.json()["data"][0]["id"])
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ChatError(f"no gateway at {url}: {error}; start one with `manners serve`") from None
    except (ValueError, LookupError, TypeError):
        raise ChatError(f"{url} has no list of models: name one with --model") from None


def _events(url: str, body: dict[str, Any]) -> Iterator[Event]:
    """The events of a streamed reply. Raises ChatError."""
    completions = f"{url.rstrip('/')}/v1/chat/completions"
    decoder = SSEDecoder()
    try:
        with (
            httpx2.Client(timeout=TIMEOUT_SECONDS, trust_env=False) as client,
            client.stream("POST", completions, json=body, headers=_headers()) as reply,
        ):
            if not reply.is_success:
                raise ChatError(_message(reply.read()) or f"the gateway answered {reply.status_code}")
            for data in reply.iter_bytes():
                for event in (event for payload in decoder.feed(data) for event in parse_payload(payload)):
                    if isinstance(event, Broken):
                        raise ChatError(event.message)
                    yield event
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ChatError(f"no gateway at {url}: {error}; start one with `manners serve`") from None


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return ""


def _headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {os.environ.get('MANNERS_API_KEYS', 'none').split(',')[0]}"}
