"""A stream's bytes, written without the server's own coroutine."""

import asyncio
from typing import Any

import pytest

from app.api.surface import ChatCompletions
from app.proxy.context import RequestContext
from app.proxy.reply_writer import STREAM_HEADERS, ReplyWriter
from app.server import bind, server
from tests.app.house import ANYWHERE
from tests.app.proxy.caller import Caller, deadlines


async def replies(app: Any, request: bytes) -> bytes:
    """All that the pinned server writes when an app answers two requests on one connection."""
    serving, listener = server(app), bind(ANYWHERE, "listen")
    task = asyncio.create_task(serving.serve(sockets=[listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(request)
    said = await reader.readuntil(b"0\r\n\r\n")
    writer.write(request.replace(b"keep-alive", b"close"))
    said += await reader.read()
    writer.close()
    serving.should_exit = True
    await task
    return said


@pytest.mark.parametrize("protocol", [b"1.1", b"1.0"])
async def test_the_same_bytes_go_out_as_by_the_servers_own_send(protocol: bytes) -> None:
    """When this fails, uvicorn has changed: see what its `send` does now."""
    bodies = ((b"first, ", False), (b"next, ", False), (b"last", True))

    async def short(scope: Any, receive: Any, send: Any) -> None:
        context = RequestContext(ChatCompletions(), {}, "id")
        context.start, context.stream = 0.0, True
        context.deadlines = deadlines()
        writer = ReplyWriter(context, send.__self__)
        for body, is_last in bodies:
            writer.write(body, is_last)

    async def long(scope: Any, receive: Any, send: Any) -> None:
        headers = [*STREAM_HEADERS, *RequestContext(ChatCompletions(), {}, "id").headers()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for body, is_last in bodies:
            await send({"type": "http.response.body", "body": body, "more_body": not is_last})

    request = b"GET / HTTP/%b\r\nhost: a\r\nconnection: keep-alive\r\n\r\n" % protocol
    said = await replies(short, request)
    assert b"first, " in said and said.endswith(b"last\r\n0\r\n\r\n")
    assert said == await replies(long, request)


async def test_the_end_waits_until_the_caller_has_read() -> None:
    """Until then the request holds its place; what a caller who has left cannot get is not written."""
    for leaves in (False, True):
        caller = Caller()
        caller.flow.pause_writing()
        caller.writer.write(b"last", True)
        delivered = asyncio.create_task(caller.writer.deliver())
        await asyncio.sleep(0)
        assert not caller.transport.out and not delivered.done()
        caller.writer._cycle.disconnected = leaves
        caller.flow.resume_writing()
        await delivered
        assert caller.transport.out.endswith(b"last\r\n0\r\n\r\n") is not leaves
