"""What an engine, with this build and these flags, can do: asked of it once, when it has come up.

Neither a version nor a dialect says it: a vLLM without `--tool-call-parser` refuses tools that may
be called, and gives the raw text of a call when they may not. So it is tried.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from deploy.spec import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """`parses_tools`: it takes tools; without, it takes them only with `tool_choice: none`."""

    parses_tools: bool = True


async def abilities(
    url: str, *, model: str, dialect: Dialect, deadline_s: float, headers: Mapping[str, str] | None = None
) -> Abilities:
    """Ask the engine at `url`. What it does not answer in time is taken for the usual."""
    if dialect != "vllm":
        return Abilities()
    function = {"name": "probe", "parameters": {"type": "object", "properties": {}}}
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "tools": [{"type": "function", "function": function}],
        "chat_template_kwargs": {"enable_thinking": False},
        "max_tokens": 1,
        "temperature": 0,
    }
    try:
        async with (
            asyncio.timeout(deadline_s),
            aiohttp.ClientSession(headers=headers, trust_env=False) as session,
            session.post(f"{url}/v1/chat/completions", json=body, allow_redirects=False) as reply,
        ):
            said = await reply.content.read(4096) if reply.status == 400 else b""
    except (TimeoutError, aiohttp.ClientError):
        return Abilities()
    return Abilities(parses_tools=b"--tool-call-parser" not in said)
