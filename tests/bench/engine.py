"""The scripted engine: an HTTP server that streams `script.TOKENS` the way vLLM does.

Paced streams advance together, one token each per tick of one 1 ms kernel timer, as sequences do
that a real engine decodes in one batch. The first token leaves with the role chunk, without a wait,
so that the time to it is the gateway's alone. Linux only (timerfd). Run as a process of its own:

    python -m tests.bench.engine PORT
"""

import asyncio
import ctypes
import itertools
import json
import os
import sys

import httptools
import uvloop

from tests.bench import script

STEP_SECONDS = 0.001
_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_TEXTS = [json.dumps(token).encode() for token in script.TOKENS]
_numbers = itertools.count(1)


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Stream:
    """The chunks of one reply, in vLLM's shape; `next()` gives them until it returns None."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._next = 0
        name = b'{"id":"chatcmpl-%032x","object":"chat.completion.chunk"' % next(_numbers)
        self._open = b"data: " + name + b',"created":1763600000,"model":"annie","choices":['

    def _choice(self, delta: bytes, finish: bytes = b"null") -> bytes:
        choice = b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b,"token_ids":null}' % (
            delta,
            finish,
        )
        return _chunked(self._open + choice + b"]}\n\n")

    def begin(self) -> bytes:
        """Head, role chunk and first token."""
        return _HEAD + self._choice(b'{"role":"assistant","content":""}') + (self.next() or b"")

    def next(self) -> bytes | None:
        """The next token, or after the last one the end of the reply, or None."""
        self._next += 1
        if self._next <= self._tokens:
            return self._choice(b'{"content":%b}' % _TEXTS[(self._next - 1) % len(_TEXTS)])
        return self._end() if self._next == self._tokens + 1 else None

    def _end(self) -> bytes:
        usage = b'{"prompt_tokens":24,"total_tokens":%d,"completion_tokens":%d}'
        count = usage % (24 + self._tokens, self._tokens)
        last = _chunked(self._open + b'],"usage":%b}\n\n' % count) + _chunked(b"data: [DONE]\n\n")
        return self._choice(b'{"content":""}', b'"stop"') + last + b"0\r\n\r\n"


def models() -> bytes:
    """`/v1/models` as vLLM answers it: some routers tell engines apart by `owned_by`."""
    card = {"id": script.MODEL, "object": "model", "created": 1763600000, "owned_by": "vllm"}
    return json.dumps({"object": "list", "data": [{**card, "max_model_len": 4096}]}).encode()


class Metronome:
    """Steps every paced stream once a tick, until it has ended or its connection has."""

    def __init__(self) -> None:
        self._playing: list[Connection] = []
        libc = ctypes.CDLL(None, use_errno=True)
        self._timer: int = libc.timerfd_create(1, os.O_NONBLOCK)  # 1: CLOCK_MONOTONIC
        period = int(STEP_SECONDS * 1e9)
        if self._timer < 0 or libc.timerfd_settime(
            self._timer, 0, (ctypes.c_long * 4)(0, period, 0, period), None
        ):
            raise OSError(ctypes.get_errno(), "timerfd")
        asyncio.get_running_loop().add_reader(self._timer, self._tick)

    def play(self, connection: "Connection") -> None:
        """Step this one too."""
        self._playing.append(connection)

    def _tick(self) -> None:
        os.read(self._timer, 8)
        # A late tick is one step, as a slow step of an engine is: tokens never come in bursts.
        self._playing = [connection for connection in self._playing if connection.step()]


class Connection(asyncio.Protocol):
    """One client connection; requests one after another."""

    def __init__(self, metronome: Metronome) -> None:
        self._metronome = metronome
        self._transport: asyncio.Transport | None = None
        self._stream: Stream | None = None
        self._body = b""
        self._path = b""
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path, self._body = url, b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        tokens, paced = script.read_order(self._body)
        if self._parser.get_method() != b"POST":
            self._whole(models())
        else:
            self._begin(Stream(tokens), paced)

    def _whole(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        if self._transport:
            self._transport.write(head % len(body) + body)

    def _begin(self, stream: Stream, paced: bool) -> None:
        self._stream = stream
        if self._transport:
            self._transport.write(stream.begin())
        if paced:
            self._metronome.play(self)
        else:
            self._run()

    def step(self) -> bool:
        """Write one chunk; False when there is nothing more to write."""
        chunk = self._stream.next() if self._stream and self._transport else None
        if chunk is not None and self._transport:
            self._transport.write(chunk)
        return chunk is not None

    def _run(self) -> None:
        if self.step():
            asyncio.get_running_loop().call_soon(self._run)  # each chunk its own write


async def serve(port: int) -> None:
    """Listen until the process ends."""
    metronome = Metronome()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(metronome), "127.0.0.1", port, backlog=512
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
