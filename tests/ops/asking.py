"""Asking over HTTP until something answers."""

import asyncio
from collections.abc import Callable

import aiohttp
import pytest

QUESTION = {"model": "annie", "messages": [{"role": "user", "content": "What is the capital of France?"}]}


async def until(client: aiohttp.ClientSession, url: str, said: Callable[[], str]) -> None:
    """Until it answers 200."""
    try:
        async with asyncio.timeout(90):
            while not await answers(client, url):
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(said()[-3000:])


async def answers(client: aiohttp.ClientSession, url: str) -> bool:
    """Whether it answers 200 now."""
    try:
        async with client.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False
