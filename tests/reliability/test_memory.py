"""What callers can make a gateway hold: its resident memory, in a process of its own."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.reliability.wire import post
from tests.scale import PATIENCE

pytestmark = pytest.mark.reliability

ROOT = Path(__file__).parents[2]
SECONDS = 1.0
CONNECTIONS = 8
MIB = 1 << 20
MOST = 3 * MIB
"""Each connection may add so much: budget of `app.http.connection` (some 0.7 MiB), a body of 1 MiB, and slack."""

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked"
FLOODS: dict[str, tuple[str, bytes, bytes]] = {
    # the listener, what comes first, and what comes again and again
    "pipelined requests": ("public", b"", GET * 2000),
    "pipelined requests to the operators": ("admin", b"", GET * 2000),
    "pipelined requests that wait to be asked for their bodies": ("public", b"", post({}, "Expect: 100-continue") * 500),
    "pipelined bodies": ("public", b"", post({"user": "x" * 4000}) * 20),
    "requests behind one whose body does not come": ("public", post(b"", "Content-Length: 9"), GET * 2000),
    "line ends": ("public", b"", b"\r\n" * 40_000),
    "a head": ("public", b"GET / HTTP/1.1\r\nx: ", b"y" * 100_000),
    "chunks of one byte": ("public", post(b"", CHUNKED), b"1\r\nx\r\n" * 10_000),
    "extensions of chunks": ("public", post(b"", CHUNKED) + b"1;", b"x" * 100_000),
    "trailers": ("public", post(b"0\r\n", CHUNKED), b"a: b\r\n" * 10_000),
    "a body behind its refusal": ("public", post(b"{", f"Content-Length: {1 << 40}"), b"y" * 100_000),
    "a body that nobody asked for": ("public", GET[:-2] + b"Content-Length: %d\r\n\r\n" % (1 << 40), b"y" * 100_000),
}  # fmt: skip


def resident(process: subprocess.Popen[bytes]) -> int:
    """Bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, int]]]:
    """`manners serve` without keys and without an engine; its ports."""
    folder, ports = tmp_path_factory.mktemp("gateway"), {"public": free_port(), "admin": free_port()}
    config = folder / "manners.toml"
    config.write_text(
        f'[gateway]\nlisten = "127.0.0.1:{ports["public"]}"\nadmin = "127.0.0.1:{ports["admin"]}"\n'
        f'state = "{folder}/state"\n[engines.e]\ndialect = "openai"\ndriver = "url"\n'
        f'url = "http://127.0.0.1:9"\n[models.annie]\nlive = "e"\n'
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MANNERS_")}
    command = [sys.executable, "-m", "app", "serve", "--config", str(config)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=clean, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None and b"Public" in process.stdout.readline()
        until(lambda: healthy(ports["public"]) and healthy(ports["admin"]))
        yield process, ports
    finally:
        process.terminate()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


def healthy(port: int) -> bool:
    """Whether a good caller is served."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        sock.sendall(GET[:-2] + b"Connection: close\r\n\r\n")
        return sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
    return False


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("name", FLOODS)
def test_a_caller_who_only_sends_costs_a_bounded_amount(
    gateway: tuple[subprocess.Popen[bytes], dict[str, int]], name: str
) -> None:
    """It reads nothing. A good caller is served meanwhile."""
    process, ports = gateway
    listener, first, again = FLOODS[name]
    before, most, deadline = resident(process), 0, time.monotonic() + SECONDS
    with contextlib.ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection(("127.0.0.1", ports[listener])))
            for _ in range(CONNECTIONS)
        ]
        for sock in socks:
            sock.sendall(first)
            sock.setblocking(False)
        while time.monotonic() < deadline:
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.send(again)
            most = max(most, resident(process))
            time.sleep(0.001)
        assert healthy(ports["public"]) and healthy(ports["admin"])
    assert most - before < CONNECTIONS * MOST, f"{(most - before) / MIB:.0f} MiB"


def test_a_thousand_callers_who_wait_cost_little(
    gateway: tuple[subprocess.Popen[bytes], dict[str, int]],
) -> None:
    """Each has sent a head that is not complete; the one too many is told so."""
    process, ports = gateway
    before = resident(process)
    with contextlib.ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection(("127.0.0.1", ports["public"]))) for _ in range(1024)
        ]
        for sock in socks:
            sock.sendall(GET[:-2])
        with socket.create_connection(("127.0.0.1", ports["public"]), PATIENCE) as one_more:
            assert one_more.recv(65_536).startswith(b"HTTP/1.1 503 ")
        assert healthy(ports["admin"])
        assert resident(process) - before < 64 * MIB
    until(lambda: healthy(ports["public"]))
