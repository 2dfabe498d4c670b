"""Run a real llama.cpp server for one GGUF file in a child process, and score the file over HTTP on held-out cases.

For scoring and tests only; the product's engines are in `deploy`, which `quantizer` may not import.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from quantizer.experiments.nano.cases import HeldOutCase, ModelReply, Score, scored
from quantizer.experiments.nano.conversation import ExpectedToolCall

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
    """Yield the server's base address, such as http://127.0.0.1:40001. drafts: by the file's own MTP head.

    One thread: a second one gains a nano model little, and on a busy machine both spin while one of them waits
    for a core (eight short replies on two shared cores: 0.1 s with one thread, 1 to 18 s with two).
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
        child.join(10)
        if child.is_alive():
            child.kill()


def post(base: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST JSON and return the JSON reply; a status other than 200 raises RuntimeError with the body's text."""
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


SLOTS = 4


def request(case: HeldOutCase, max_tokens: int = 200) -> dict[str, Any]:
    """The chat request of a case: greedy, with thinking explicitly on or off."""
    body: dict[str, Any] = {
        "messages": case.messages,
        "temperature": 0,
        "max_tokens": max_tokens,
        "chat_template_kwargs": {"enable_thinking": case.thinking},
    }
    if case.tools:
        body |= {"tools": case.tools, "parallel_tool_calls": True}
    return body


def reply_of(response: dict[str, Any]) -> ModelReply:
    """A server's response as a reply. Arguments that are not JSON stay strings and count as wrong."""
    choice = response["choices"][0]
    message = choice["message"]
    calls = tuple(
        ExpectedToolCall(call["function"]["name"], _arguments(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    )
    thought = message.get("reasoning_content") or ""
    return ModelReply(message.get("content") or "", thought, calls, choice["finish_reason"] != "length")


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def answers(path: Path, asked: list[HeldOutCase]) -> list[ModelReply]:
    """The file's reply to each case, in order. Only hermes cases, because the file has the hermes template."""
    with serving(path, SLOTS) as base, ThreadPoolExecutor(SLOTS) as pool:
        return list(pool.map(lambda case: reply_of(post(base, "/v1/chat/completions", request(case))), asked))


def score_file(path: Path, asked: list[HeldOutCase]) -> Score:
    """The score of the hermes cases."""
    asked = [case for case in asked if case.style == "hermes"]
    return scored(asked, answers(path, asked))
