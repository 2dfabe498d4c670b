"""A gateway that does nothing, as most people would write it first: StreamingResponse over aiohttp.

    python -m tests.bench.passthrough PORT ENGINE_PORT

It knows no keys, limits, metrics, logs, cancellation or slow readers.
"""

import sys
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse


def app(engine: str) -> FastAPI:
    """Passes chats on to the engine's port."""
    url = f"http://127.0.0.1:{engine}/v1/chat/completions"
    app = FastAPI()
    sessions: list[aiohttp.ClientSession] = []

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        if not sessions:
            connector = aiohttp.TCPConnector(limit=0)
            sessions.append(aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout()))
        headers = {"content-type": "application/json"}
        reply = await sessions[0].post(url, data=await request.body(), headers=headers)

        async def body() -> AsyncIterator[bytes]:
            try:
                async for data in reply.content.iter_any():
                    yield data
            finally:
                reply.release()

        return StreamingResponse(body(), reply.status, media_type="text/event-stream")

    return app


def main(port: str, engine: str) -> None:
    """Serve until SIGTERM, with uvicorn's settings of `manners serve` where they cost anything."""
    uvicorn.run(
        app(engine),
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
