"""Replies that never end, each as fast as it can be sent: what they cost a gateway, and how they end.

    python -m tests.reliability.endless        # the engine alone: prints its port

The engine is a process of its own, and so is the gateway, whose memory is what the kernel says was the most
that was resident while the reply came.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.promotion.process import ROOT, Gateway, serving, written
from tests.scale import PATIENCE
from tests.script import DONE, chunk, event, finish, role, text, thought, usage

MOST_MIB = 64
"""By how much a gateway may grow over what it holds at rest, with all of these replies one after the other."""
STREAM_BYTES = 16 << 20
"""The gateway's `max_stream_bytes` here. The shipped one, twice as much, costs time and no memory."""
SECONDS = 10 * PATIENCE
"""The model's deadlines: longer than any test waits, so that no reply is bounded by time alone."""

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
CHUNKED = SSE + b"transfer-encoding: chunked\r\n"
UNTIL_CLOSE = SSE + b"\r\n"
TOOLS = [{"type": "function", "function": {"name": "web_search", "parameters": {"type": "object"}}}]


@dataclass(frozen=True)
class Endless:
    """What is sent once, and what is then repeated; `%d` in it counts. `code`: how it must end."""

    begin: bytes
    again: bytes
    code: str = "upstream_too_large"
    stream: bool = True


def said(*begin: bytes, again: bytes, **more: Any) -> Endless:
    """A stream that lasts until the connection closes."""
    return Endless(UNTIL_CLOSE + role() + b"".join(begin), again, **more)


def fragment(arguments: str, name: str | None = None, index: int = 0) -> bytes:
    """A piece of a native call."""
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "function": function}]})


def other_choice() -> bytes:
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
    return event({"choices": [choice]}).replace(b'"index": 0', b'"index": %d')


HERMES = '<tool_call>{"name": "web_search", "arguments": {"q": "'
KINDS: dict[str, Endless] = {
    "text, a word a delta": said(again=text("word ")),
    "text of wide characters": said(again=text("x" * 1000 + "\U0001f600")),
    "text to a caller who does not stream": said(again=text("word "), stream=False),
    "thoughts in their field": said(again=thought("hmm ")),
    "a thought without an end, behind text": said(text("Hi. "), text("<think>"), again=text("hmm ")),
    "arguments of a native call": said(fragment('{"q": "', "web_search"), again=fragment("word ")),
    "native calls": said(again=fragment("{}", "web_search"), code="upstream_too_many_calls"),
    "lines that begin with a tool's name": said(again=text("web_search()x\n")),
    "a hermes call as text": said(text(HERMES), again=text("word ")),
    "other choices": said(again=other_choice(), code="upstream_malformed"),
    "a `data:` line": said(b"data: ", again=b"x" * 4096, code="upstream_event_too_long"),
    "`data:` lines without a blank one": said(again=b"data: word\n", code="upstream_event_too_long"),
    "comments": said(again=b": ping\n\n"),
    "empty events": said(again=b"data:\n\n"),
    "usage frames": said(again=usage(1)),
    "empty deltas": said(again=text("")),
    "what comes after the end": said(text("Hi."), finish(), again=usage(1), code="[DONE]"),
    "one header": Endless(CHUNKED + b"x: ", b"word" * 1024),
    "one trailer": Endless(CHUNKED + b"\r\n0\r\nx: ", b"word" * 1024),
    "chunks of one byte with extensions": Endless(CHUNKED + b"\r\n", b"1;x=%b\r\n:\r\n" % (b"y" * 64)),
    "a whole reply in JSON": Endless(JSON + b'{"choices":[{"message":{"content":"', b"word" * 1024, stream=False),
    "the body of an error": Endless(JSON.replace(b"200 OK", b"500 No"), b"word" * 1024),
}  # fmt: skip


# ------------------------------------------------------------------------------------- the engine


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request after the other: a readiness probe gets its reply, a kind's name that kind's."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = (
                int(head.split(b"content-length: ")[1].split(b"\r\n")[0]) if b"content-length" in head else 0
            )
            body = json.loads(await reader.readexactly(length)) if length else {}
            asked = body["messages"][-1]["content"] if "messages" in body else ""
            if head.startswith(b"post") and asked in KINDS:
                return await _flood(writer, KINDS[asked])
            writer.write(_short(head, bool(body.get("messages"))))
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.transport.abort()


def _short(head: bytes, chats: bool) -> bytes:
    if not chats:
        known = head.startswith(b"get /v1/models")
        data = b'{"object":"list","data":[{"id":"endless"}]}' if known else b"{}"
        status = b"200 OK" if known else b"404 No"
        return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
            status, len(data), data,
        )  # fmt: skip
    data = role() + text("Hello") + finish() + DONE
    return SSE + b"content-length: %d\r\n\r\n%b" % (len(data), data)


async def _flood(writer: asyncio.StreamWriter, kind: Endless) -> None:
    """Until the other side has had enough."""
    writer.write(kind.begin)
    block, numbers = kind.again * max(65_536 // len(kind.again), 1), 0
    while True:
        if b"%d" in kind.again:
            count = block.count(b"%d")
            writer.write(block % tuple(range(numbers, numbers + count)))
            numbers += count
        else:
            writer.write(block)
        await writer.drain()


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# ------------------------------------------------------------------------------------- the trial


@dataclass(frozen=True)
class Place:
    """A gateway in a process of its own, over the engine in another. `rest`: what it held when it was ready."""

    gateway: Gateway
    rest: float

    @property
    def peak(self) -> float:
        """The most that the gateway's process held since `forget_peak`, in MiB (VmHWM)."""
        return _peak(self.gateway)

    def forget_peak(self) -> None:
        """From now on (proc_pid_clear_refs(5))."""
        Path(f"/proc/{self.gateway.process.pid}/clear_refs").write_text("5")


def _peak(gateway: Gateway) -> float:
    lines = Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmHWM"].split()[0]) / 1024


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Both of them, ready."""
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.reliability.endless", cwd=ROOT, stdout=subprocess.PIPE
    )
    assert engine.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(await engine.stdout.readline())}"
        deadlines = {"timeouts.first_token": SECONDS, "timeouts.idle": SECONDS, "timeouts.total": SECONDS}
        tables = {
            "gateway": {
                "listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(folder / "state"),
                "max_stream_bytes": STREAM_BYTES,
            },
            "engines": {"endless": {"dialect": "openai", "driver": "url", "url": url}},
            "models": {"annie": {"live": "endless", **deadlines}},
        }  # fmt: skip
        async with serving(written(folder, tables)) as gateway:
            yield Place(gateway, _peak(gateway))
    finally:
        engine.terminate()
        await engine.wait()


async def attempt(at: Place, name: str) -> dict[str, Any]:
    """One request for a reply of this kind: how it ended, and what it cost."""
    await served(at)  # so that no faults in a row shun the engine
    kind = KINDS[name]
    body = {
        "model": "annie", "stream": kind.stream, "tools": TOOLS, "messages": [{"role": "user", "content": name}]
    }  # fmt: skip
    at.forget_peak()
    start = time.perf_counter()
    tail, size = b"", 0
    async with at.gateway.client.post(f"{at.gateway.url}/v1/chat/completions", json=body) as response:
        async for data in response.content.iter_any():
            size += len(data)
            tail = (tail + data)[-4096:]
        status = response.status
    seconds = time.perf_counter() - start
    return {
        "kind": name,
        "status": status,
        "ending": _ending(tail),
        "to_the_caller": size,
        "above_rest_mib": round(at.peak - at.rest, 1),
        "seconds": round(seconds, 2),
    }


def _ending(tail: bytes) -> str:
    """The error's code, or how else the reply ended."""
    if tail.endswith(DONE):
        return "[DONE]"
    last = tail.removesuffix(b"\n\n").rpartition(b"\n\n")[2].removeprefix(b"data: ")
    try:
        return str(json.loads(last)["error"]["code"])
    except (ValueError, KeyError):
        return "cut off"


async def served(at: Place) -> None:
    """An honest reply comes through; if the engine is shunned, once a probe has seen it stream."""
    body = {"model": "annie", "stream": True, "messages": [{"role": "user", "content": "Hello!"}]}
    async with asyncio.timeout(PATIENCE):
        while True:
            async with at.gateway.client.post(f"{at.gateway.url}/v1/chat/completions", json=body) as response:
                if response.status == 200 and (await response.read()).endswith(DONE):
                    return
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(_main())
