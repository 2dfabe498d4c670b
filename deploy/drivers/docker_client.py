"""The client of the Docker Engine: the SDK's blocking calls on two threads of their own, with one kind of error.

An unresponsive daemon blocks no request. Only `signal` may be called from any thread.
"""

import asyncio
import importlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from typing import Any, Final, TypeVar

from deploy.core.errors import DockerError

T = TypeVar("T")
Json = Mapping[str, Any]

CALL_SECONDS: Final = 30
PULL_SECONDS: Final = 3600
INSTALL: Final = "the docker driver needs Docker's SDK: pip install docker==7.2.0"


class Docker:
    """A client of a Docker Engine at `url`, or where DOCKER_HOST says. Every method raises DockerError."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._own = threading.local()
        self._clients: list[Any] = []
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        if self._pool is not None:
            self._pool.shutdown()
        for client in self._clients:
            client.close()
        self._own, self._clients, self._pool = threading.local(), [], None

    def _api(self) -> Any:
        """This thread's client."""
        if not hasattr(self._own, "api"):
            self._own.api = self._client(CALL_SECONDS)
            self._clients.append(self._own.api)
        return self._own.api

    def _client(self, timeout: int) -> Any:
        given = _sdk("docker.utils").kwargs_from_env()
        if self._url is not None:
            given["base_url"] = self._url
        return _sdk("docker").APIClient(**given, version="auto", timeout=timeout)

    def _ask(self, question: Callable[[Any], T]) -> T:
        """Run one SDK call on a worker thread, with errors of the SDK and its transport as DockerError."""
        errors, requests = _sdk("docker.errors"), _sdk("requests")
        try:
            return question(self._api())
        except errors.APIError as error:
            raise DockerError(str(error.explanation or error), status=error.status_code) from None
        except (errors.DockerException, requests.RequestException, OSError) as error:
            raise DockerError(f"the Docker Engine does not answer: {error}") from None

    async def _call(self, question: Callable[[Any], T]) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(2, thread_name_prefix="docker")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, question)

    async def _look(self, question: Callable[[Any], Json]) -> Json | None:
        """The same for something that may not exist; then None."""
        try:
            return await self._call(question)
        except DockerError as error:
            if error.status == 404:
                return None
            raise

    async def version(self) -> Json:
        """The daemon's version information; `Arch` is the machine's architecture."""
        return await self._call(lambda api: api.version())

    async def image(self, reference: str) -> Json | None:
        """An image that is on this host, or None."""
        return await self._look(lambda api: api.inspect_image(reference))

    async def pull(self, reference: str) -> None:
        """Fetch an image by NAME:TAG or NAME@sha256:…"""

        def pull(_: Any) -> None:
            with closing(self._client(PULL_SECONDS)) as api:
                for line in api.pull(reference, stream=True, decode=True):
                    if "error" in line:
                        raise DockerError(str(line["error"]))

        await self._call(pull)

    async def ensure_network(self, name: str) -> None:
        """Create the internal bridge network of this name, if it does not exist."""
        if await self._look(lambda api: api.inspect_network(name)) is not None:
            return
        labels = {"manners.network": name}
        try:
            await self._call(
                lambda api: api.create_network(
                    name, driver="bridge", internal=True, check_duplicate=True, labels=labels
                )
            )
        except DockerError as error:
            if error.status != 409:  # another process has created it
                raise

    async def create(self, name: str, body: Json) -> str:
        """Create a container; its id."""
        made = await self._call(lambda api: api.create_container_from_config(dict(body), name))
        return str(made["Id"])

    async def start(self, container: str) -> None:
        """Start a container; no effect if it runs."""
        await self._call(lambda api: api.start(container))

    async def inspect(self, container: str) -> Json | None:
        """A container by name or id, or None."""
        return await self._look(lambda api: api.inspect_container(container))

    async def found(self, labels: Mapping[str, str]) -> list[Json]:
        """All containers with these labels, running or not; each has `Id`, `State`, `Labels`."""
        wanted = {"label": [f"{key}={value}" for key, value in labels.items()]}
        listed = await self._call(lambda api: api.containers(all=True, filters=wanted))
        return list(listed)

    async def logs(self, container: str, *, until: float | None = None, since: float | None = None) -> bytes:
        """The last 4000 lines of a container's two output streams; times are Unix seconds."""
        bounds = {"until": until, "since": since}
        given = {key: value for key, value in bounds.items() if value is not None}
        return await self._call(
            lambda api: bytes(api.logs(container, stdout=True, stderr=True, tail=4000, **given))
        )

    async def remove(self, container: str) -> None:
        """Remove a container, by force if it runs; no effect if it is gone."""
        await self._look(lambda api: api.remove_container(container, force=True) or {})

    def signal(self, container: str, signal: str) -> None:
        """Send a signal and wait for the daemon's answer; no effect if the container does not run. From any thread."""
        try:
            self._ask(lambda api: api.kill(container, signal))
        except DockerError as error:
            if error.status not in (404, 409):
                raise

    async def signal_async(self, container: str, signal: str) -> None:
        """`signal` for the event loop."""
        await asyncio.to_thread(self.signal, container, signal)


@cache
def shared() -> Docker:
    """The client of the environment's Docker Engine, shared by the process."""
    return Docker()


def _sdk(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DockerError(INSTALL, missing=True) from None
