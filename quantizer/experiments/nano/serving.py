"""A real llama.cpp server for one GGUF file, in a child process, for the length of a `with`.

For scoring and tests only; the product's engines live in `deploy`, which `quantizer` may not import.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

START_SECONDS = 60.0


def _serve(path: str, slots: int, context: int, pipe: Connection) -> None:
    """The child: start the server on a free port, tell its address, live until the pipe closes."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.cpuparams.n_threads = 2
    params.use_jinja = True
    params.verbosity = 0
    server = xllamacpp.Server(params)
    pipe.send(server.listening_address)
    with suppress(EOFError):
        pipe.recv()


@contextmanager
def serving(path: Path, slots: int = 4, context: int = 2048) -> Iterator[str]:
    """Yields the server's base address, such as http://127.0.0.1:40001."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=_serve, args=(str(path), slots, context, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        if not ours.poll(START_SECONDS):
            raise TimeoutError(f"{path.name}: no server after {START_SECONDS} s")
        yield ours.recv()
    finally:
        ours.close()
        child.join(10)
        if child.is_alive():
            child.kill()


def post(base: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST JSON, get JSON; a status other than 200 raises with the body's text."""
    place = urlsplit(base)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {text[:300]}")
        reply: dict[str, Any] = json.loads(text)
        return reply
    finally:
        connection.close()
