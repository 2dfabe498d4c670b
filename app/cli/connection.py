"""How the operators' commands reach the operators' API: over HTTP, or without a gateway over the state folder's registry."""

import argparse
import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx2

from app.access.keys import read_admin_token
from app.access.records import ADMIN
from app.cli.gateway_client import GatewayClient
from app.config import running
from app.config.config import Config, ConfigError, load
from app.promotion.repository import FILE
from app.registry.errors import RegistryLocked
from app.registry.registry import Registry

T = TypeVar("T")


@contextmanager
def connected(args: argparse.Namespace, offline: bool) -> Iterator[GatewayClient]:
    """A client of the configured gateway; of the state folder where that is enough, and no gateway runs.

    Raises ConfigError, RegistryError.
    """
    config = load(args.config)
    if offline and not args.admin:
        try:
            config.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            registry = Registry(config.state_dir / FILE)
        except RegistryLocked:
            pass  # a gateway runs on it
        except OSError as error:
            raise ConfigError(f"gateway.state: {config.state_dir}: {error.strerror}") from None
        else:
            with registry:
                yield GatewayClient("http://localhost", "", transport=_InProcess(registry, config))
            return
    yield _over_http(config, args)


def _over_http(config: Config, args: argparse.Namespace) -> GatewayClient:
    """Raises ConfigError: no token is known."""
    runs = None if args.config else running.find()
    try:
        token = read_admin_token(config.secrets.admin_token, Path(runs.state) if runs else config.state_dir)
    except OSError as error:
        raise ConfigError(f"gateway.state: admin.token: {error.strerror}") from None
    if token is None:
        raise ConfigError(
            "no admin token: set MANNERS_ADMIN_TOKEN, or run this where the gateway has made one"
        )
    return GatewayClient(args.admin or (runs.admin if runs else f"http://{config.admin}"), token)


class _InProcess(httpx2.BaseTransport):
    """The API of keys and operators over a registry that no gateway uses, in the name of `admin`: nobody else can
    write the state folder. Its errors are raised here as they are.
    """

    def __init__(self, registry: Registry, config: Config) -> None:
        from fastapi import Depends, FastAPI, Request

        from app.access.service import AccessService
        from app.admin.access import access_router

        async def do(work: Callable[[Registry], T]) -> T:
            return work(registry)

        async def as_admin(request: Request) -> None:
            request.state.caller, request.state.request_id = ADMIN, ""

        access = AccessService(config, "", do)
        asyncio.run(access.refresh())
        app = FastAPI(dependencies=[Depends(as_admin)])
        app.include_router(access_router(access))
        self._app = httpx2.ASGITransport(app)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        async def send() -> httpx2.Response:
            reply = await self._app.handle_async_request(request)
            return httpx2.Response(reply.status_code, headers=reply.headers, content=await reply.aread())

        return asyncio.run(send())
