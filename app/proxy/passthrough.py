"""Replies without text (embeddings): the engine's whole reply is passed on, under the public model's name."""

import time

from app.api.surface import PassThroughSurface
from app.proxy.context import RequestContext
from app.proxy.deadlines import Deadlines
from app.proxy.exchange import status_error
from app.proxy.reply_writer import send_whole
from app.proxy.response_writer import Send
from app.upstream.connection import BodyReader


async def pass_through(context: RequestContext, deadlines: Deadlines, send: Send) -> None:
    """Ask the engine and hand its reply on; it is due within the first token's time.

    Raises what the engine did wrong.
    """
    surface, route = context.surface, context.route
    assert isinstance(surface, PassThroughSurface)
    context.overhead = time.perf_counter() - context.start - context.queued
    path = surface.path_on(route.dialect)
    url = route.url + path
    async with deadlines.attempt(), route.upstream.ask(url, context.body, context.trace.headers) as reply:
        if reply.status != 200:
            raise await status_error(reply, path)
        whole = BodyReader()
        reply.set_body_consumer(whole)
        body, context.usage = surface.hand_on(await whole.done, context.head.model)
        if route.kind == "embeddings":  # of one that should stream, a vector proves nothing
            route.record_success(0.0)
        deadlines.over()
        await send_whole(body, context, deadlines, send)
        context.delivered(0)
