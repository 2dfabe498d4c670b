"""llama.cpp's server for one GGUF file, in a child process.

For tests of files that the quantizer wrote; the product's own engines are in `deploy`.
"""

from __future__ import annotations

import json
import multiprocessing
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.scale import PATIENCE

START_SECONDS = 60.0


def _serve(path: str, slots: int, context: int, threads: int, drafts: bool, pipe: Connection) -> None:
    """The child process: start the server on a free port, report its address, and exit when the pipe closes."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.cpuparams.n_threads = threads
    params.use_jinja = True
    params.verbosity = 0
    if drafts:
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_MTP]
    server = xllamacpp.Server(params)
    pipe.send(server.listening_address)
    with suppress(EOFError):
        pipe.recv()


@contextmanager
def serving(
    path: Path, slots: int = 4, context: int = 2048, threads: int = 1, drafts: bool = False
) -> Iterator[str]:
    """Yield the server's base address, such as http://127.0.0.1:40001. drafts: draft tokens with the file's MTP head.

    One thread by default: on a busy machine a second thread spins while the first one waits for a core.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(
        target=_serve, args=(str(path), slots, context, threads, drafts, theirs), daemon=True
    )
    child.start()
    theirs.close()
    try:
        if not ours.poll(START_SECONDS):
            raise TimeoutError(f"{path.name}: no server after {START_SECONDS} s")
        yield ours.recv()
    finally:
        ours.close()
        child.join(PATIENCE)
        if child.is_alive():
            child.kill()


def post(base: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST JSON and return the JSON reply. Raises RuntimeError with the body's text for a status other than 200."""
    request = urllib.request.Request(
        base + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            reply: dict[str, Any] = json.load(answer)
            return reply
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{path}: {error.code} {error.read(300)!r}") from None
