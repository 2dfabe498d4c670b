"""`python -m deploy.launcher`: the only process with access to the Docker socket, limited to the engines of a catalogue.

The catalogue is the gateway's own configuration, on a path that the gateway cannot write to.
"""

import argparse
import os
import re
import sys
import tomllib
from os import EX_CONFIG
from pathlib import Path
from typing import Any

from aiohttp import web

from deploy.core.errors import DeployError
from deploy.drivers.docker import instance_of
from deploy.engine.spec import EngineSpec
from deploy.launcher.policy import EngineCatalogue
from deploy.launcher.proxy import application


def read(path: Path, user: str) -> EngineCatalogue:
    """The docker engines of a configuration, for chat and for embeddings. Raises DeployError, OSError, ValueError."""
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", user):
        raise ValueError(f"--user {user}: UID:GID, not root's")
    tables = tomllib.loads(path.read_text("utf-8"))
    state = Path(tables["gateway"]["state"])
    if not state.is_absolute():
        raise ValueError("gateway.state: must be an absolute path, the same on the host and in the gateway")
    engines: list[EngineSpec] = []
    for name, table in tables["engines"].items():
        if table.get("driver") == "docker":
            artefact = (path.parent / table["artefact"]).resolve()
            given: dict[str, Any] = {**table, "artefact": artefact, "args": tuple(table.get("args", ()))}
            engines += [
                EngineSpec(name=name, kind="chat", **given),
                EngineSpec(name=name, kind="embeddings", **given),
            ]
    return EngineCatalogue(tuple(engines), instance_of(state), state.resolve(), user)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deploy.launcher", description=__doc__)
    parser.add_argument("--catalogue", type=Path, required=True, help="the gateway's configuration")
    parser.add_argument("--listen", type=Path, required=True, help="the socket that the gateway is given")
    parser.add_argument("--docker", type=Path, default=Path("/var/run/docker.sock"))
    parser.add_argument(
        "--user", default="10001:10001", help="UID:GID of every engine (default: %(default)s)"
    )
    given = parser.parse_args(argv)
    try:
        catalogue = read(given.catalogue, given.user)
    except (DeployError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        print(f"launcher: {given.catalogue}: {error}", file=sys.stderr)
        return EX_CONFIG
    given.listen.unlink(missing_ok=True)
    os.umask(0o007)  # the socket is for its group, that of the gateway
    names = sorted({spec.name for spec in catalogue.engines})
    print(f"launcher: {given.listen} for {', '.join(names)}", file=sys.stderr, flush=True)
    web.run_app(application(catalogue, given.docker), path=str(given.listen), print=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
