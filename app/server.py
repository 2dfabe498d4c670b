"""`manners serve`: two listeners, one event loop, and a graceful shutdown."""

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import uvicorn
import uvloop

from app.access.keys import admin_token
from app.config.config import Address, Config, ConfigError
from app.config.running import RunningGateway
from app.errors.tree import MannersError, Refused, StateUnavailable
from app.http.connection import DEFAULT_LIMITS, Connection, ConnectionLimits
from app.registry.errors import RegistryError
from app.telemetry import log as logs
from app.wiring import Gateway
from deploy.core.tasks import spawn

SWITCH_SECONDS = 0.0005
"""How long the event loop waits for a thread to release the interpreter. The default of 5 ms would be added to each read and
write while a thread parses a large request."""
TELL_SECONDS = 1.5  # seconds for callers to receive the error that ends their stream when the drain is over
ACCEPTS = 16  # connections of a listener that are accepted in one iteration of the event loop
SWEEP_TICKS = 10  # ticks (0.1 s) of uvicorn's server between looks at slow peers
SPARE_DESCRIPTORS = 512  # open files beside callers' connections: to engines, logs, the registry, listeners


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, so that both listeners are shut down in one place."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """libuv accepts one connection of a socket in an iteration, however many wait: each is watched `ACCEPTS` times."""
        assert sockets is not None
        await super().serve(
            [one if number == 0 else one.dup() for one in sockets for number in range(ACCEPTS)]
        )

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.sweep(now)
        return await super().on_tick(counter)


def bind(address: Address, key: str) -> socket.socket:
    """A listening socket. Raises ConfigError that says what to do."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # With its protocol named: asyncio sets TCP_NODELAY only then, and without it the second write of
    # a reply waits 40 ms for the first one's delayed ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen()  # two that start at once can both bind, but not both listen
    except OSError as error:
        listener.close()
        raise ConfigError(f"{key}: cannot listen on {address}: {error.strerror}; set another") from None
    listener.set_inheritable(False)
    return listener


def servers(gateway: Gateway, drain: float = 1) -> tuple[_Server, _Server]:
    """Of its public listener and of the operators'. `drain`: seconds that open replies of the first are given."""
    count = partial(gateway.metrics.count, "manners_unreadable_total")
    public = server(gateway.public, drain, gateway.limits, partial(count, "public"))
    return public, server(gateway.admin, 1, gateway.limits, partial(count, "admin"))


def server(
    app: object,
    drain: float = 1,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    count: Callable[[str], None] = lambda code: None,
) -> _Server:
    """One that listens on the sockets given to `serve(sockets=...)`. `count` is called with the code of what is no request."""
    return _Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]
            http=partial(Connection, limits=limits, count=count),  # type: ignore[arg-type]  # it is only called
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(drain) or 1,
        )
    )


async def serve(config: Config, read: Callable[[], Config] | None = None) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads the configuration again, by `read`. Raises ConfigError when it cannot start."""
    raise_descriptor_limit(2 * config.gateway.max_connections + SPARE_DESCRIPTORS)
    limit_malloc()
    sys.setswitchinterval(SWITCH_SECONDS)
    with bind(config.listen, "gateway.listen") as public, bind(config.admin, "gateway.admin") as admin:
        log = logs.configure(config.log.level)
        try:
            token, token_file = admin_token(config.secrets.admin_token, config.state_dir)
        except OSError as error:
            where = error.filename or config.state_dir / "admin.token"
            raise ConfigError(f"gateway.state: {where}: {error.strerror}") from None
        gateway = Gateway(config, token, log, read=read)
        try:
            await gateway.open()
            if not config.listen.is_loopback and not gateway.access.listed("key"):
                raise ConfigError(
                    "gateway.listen: without an API key only a loopback address is served: "
                    "manners key add NAME, or set MANNERS_API_KEYS or gateway.api_keys_file"
                )
            await _run(gateway, public, admin, token_file)
        except Refused as refused:
            raise ConfigError(f"gates.require: {refused.code}: {refused.message}") from None
        except (RegistryError, StateUnavailable) as error:
            raise ConfigError(f"gateway.state: {error}") from None
        finally:
            await gateway.stop()


def raise_descriptor_limit(wanted: int) -> None:
    """Let this process open so many files, as far as the hard limit goes: 1,024 is a common soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def limit_malloc() -> None:
    """Make glibc return the memory of large replies (mallopt(3)): one arena for all threads, a mapping for each large block."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library has no such call
        for parameter, value in ((-8, 1), (-3, 128 << 10)):  # M_ARENA_MAX, M_MMAP_THRESHOLD of malloc.h
            ctypes.CDLL(None).mallopt(parameter, value)


async def _run(
    gateway: Gateway, public: socket.socket, admin: socket.socket, token_file: Path | None
) -> None:
    """The whole life of the gateway, from its start to its last reply."""

    async def reload() -> None:
        with contextlib.suppress(MannersError):  # logged and counted
            await gateway.reloader.reload("SIGHUP")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: spawn(reload(), "reload"))
    await gateway.promotions.start()
    both = servers(gateway, gateway.config.gateway.drain_seconds)
    running = [
        spawn(one.serve(sockets=[sock]), "listener") for one, sock in zip(both, (public, admin), strict=True)
    ]
    here = RunningGateway(_url(public), _url(admin), os.getpid(), str(gateway.config.state_dir))
    greeter = spawn(_greet(gateway, here, token_file), "greeter")
    # The collector, off until here (`app.__main__`), never needs to scan these objects. No collection first: 2,500 of
    # 180,000 objects are garbage, and finding them takes 0.2 s of the event loop's time.
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()
    try:
        with here.announced():
            await _until_signal(gateway, running)
            await _drain(gateway)
    finally:
        greeter.cancel()
        for one in both:
            one.should_exit = True
        await asyncio.gather(*running)


async def _until_signal(gateway: Gateway, listeners: Iterable[asyncio.Task[None]]) -> None:
    """Wait for a signal. After the first SIGTERM the gateway serves for `lame_duck` seconds more, and is not ready.

    SIGINT, a second SIGTERM or a failed listener ends that at once, so that a service manager restarts the gateway.
    """
    asked, now = asyncio.Event(), asyncio.Event()

    def stop_now() -> None:
        asked.set()
        now.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: stop_now() if asked.is_set() else asked.set())
    loop.add_signal_handler(signal.SIGINT, stop_now)
    for listener in listeners:
        listener.add_done_callback(lambda _: stop_now())
    await asked.wait()
    gateway.proxy.leaving = True
    if not now.is_set() and (seconds := gateway.config.gateway.lame_duck):
        gateway.log.info("lame_duck", seconds=seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await now.wait()


async def _drain(gateway: Gateway) -> None:
    """Refuse new requests, wait for open ones, then end the rest with an error."""
    proxy, log = gateway.proxy, gateway.log
    proxy.leaving = proxy.draining = True
    for say, seconds in ((log.info, gateway.config.gateway.drain_seconds), (log.warning, TELL_SECONDS)):
        say("draining", count=proxy.in_flight)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while proxy.in_flight:
                    await asyncio.sleep(0.02)
                return
        proxy.cut_off()


async def _greet(gateway: Gateway, here: RunningGateway, token_file: Path | None) -> None:
    """Print the addresses at once; once an engine streams, a command to try it."""
    url = here.public
    print(f"Manners is starting. Public: {url}   Operators: {here.admin}", flush=True)
    if token_file:
        print(f"The operators' token is in {token_file}", flush=True)
    for name, model in gateway.config.models.items():
        if (live := gateway.pool.model_route(name).live) != model.live:
            print(f"{name} is served by {', '.join(live)}, which was promoted", flush=True)
    await gateway.pool.wait_ready()
    name, model = next(iter(gateway.config.models.items()))
    key = " -H 'Authorization: Bearer '$KEY" if gateway.access.callers else ""
    path, body = "chat/completions", '"stream":true,"messages":[{"role":"user","content":"Hello!"}]'
    if model.kind == "embeddings":
        path, body = "embeddings", '"input":"Hello!"'
    print(f"Ready: {url}/v1   Try it:\n", flush=True)
    print(f"  curl -N {url}/v1/{path}{key} -H 'Content-Type: application/json' \\")
    print(f'    -d \'{{"model":"{name}",{body}}}\'\n', flush=True)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


def run(config: Config, read: Callable[[], Config] | None = None) -> None:
    """`serve` on uvloop."""
    faulthandler.enable()  # where a library crashes the process, its stack is the last thing in the log
    signal.signal(signal.SIGHUP, lambda *_: None)  # until the gateway can reload: it never kills
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(serve(config, read))
        except KeyboardInterrupt:
            sys.exit(130)
