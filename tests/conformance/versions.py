"""The build that an engine reports."""

from importlib import metadata

import httpx2

from deploy.engine.dialects import DIALECTS
from gates.contracts.dialect import Dialect


async def version(client: httpx2.AsyncClient, url: str, dialect: Dialect) -> str:
    """Of llama.cpp in the wheel, whose server does not know its own build, the version of the wheel."""
    stated = DIALECTS[dialect].version
    if stated is None:
        return "unknown"
    path, key = stated
    said = (await client.get(url + path)).raise_for_status().json()[key]
    return str(said).replace("b0-unknown", f"xllamacpp {metadata.version('xllamacpp')}")
