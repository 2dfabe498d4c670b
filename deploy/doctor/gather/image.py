"""An image's facts: what Docker says of it, and what a container of it says of itself.

The container is started once for each digest, without a network and without the model, and its
answer is kept in the state folder: a digest never changes what is inside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from deploy.doctor.evidence import Engine, Image, Inside
from deploy.doctor.gather import asking
from deploy.doctor.gather.host import release
from gates import strict

PROBE_SECONDS: Final = 180.0
"""torch in a cold image takes its time."""
_VLLM: Final = Path(__file__).with_name("inside.py")
_LLAMA: Final = "echo release $CUDA_VERSION; cd /app; ./llama-server --version 2>&1; ./llama-server -m none.gguf 2>&1; true"
Ask = Callable[..., str | None]


def image(engine: Engine, *, cache: Path | None, probe: bool, ask: Ask = asking.ask) -> Image | None:
    """None for an engine without an image."""
    if engine.driver != "docker" or not engine.image:
        return None
    if ask(("docker", "version", "--format", "{{.Server.Version}}")) is None:
        return Image(inside=_kept(cache, engine.image))
    told = ask(("docker", "image", "inspect", engine.image))
    if told is None:
        return Image(present=False, inside=_kept(cache, engine.image))
    held = json.loads(told)[0]
    inside = _kept(cache, engine.image)
    if inside is None and probe:
        inside = _probe(engine, ask)
        _keep(cache, engine.image, inside)
    return Image(
        present=True,
        digests=tuple(held.get("RepoDigests") or ()),
        architecture=held.get("Architecture"),
        size=held.get("Size"),
        inside=inside,
    )


# ------------------------------------------------------------------------------------------- probe


def _probe(engine: Engine, ask: Ask) -> Inside | None:
    if engine.dialect == "llama-server":
        return _llama(engine.image or "", ask)
    told = ask((*_run("python3", engine.image or ""), "-c", _VLLM.read_text("utf-8")), PROBE_SECONDS)
    return parse_inside(told or "")


def _run(entrypoint: str, name: str) -> Sequence[str]:
    return ("docker", "run", "--rm", "--network", "none", "--gpus", "all", "--entrypoint", entrypoint, name)


def parse_inside(told: str) -> Inside | None:
    """The last line that a container printed, as facts; None if it is none."""
    lines = [line for line in told.splitlines() if line.startswith("{")]
    if not lines:
        return None
    try:
        found: dict[str, Any] = {
            key: value for key, value in json.loads(lines[-1]).items() if value is not None
        }
        for tool in ("nvcc", "ptxas"):
            if tool in found:
                found[tool] = release(found[tool]) or ""
        return strict.read(Inside, found)
    except ValueError:
        return None


def _llama(name: str, ask: Ask) -> Inside | None:
    """llama-server's version, and the architectures that it lists before it looks for a model."""
    told = ask((*_run("sh", name), "-c", _LLAMA), PROBE_SECONDS)
    return None if told is None else parse_llama(told)


def parse_llama(told: str) -> Inside:
    """Its version, and its system line, where CUDA says "ARCHS = 750,...,1210"."""
    version = re.search(r"version: (\S+(?: \([0-9a-f]+\))?)", told)
    archs = re.search(r"ARCHS = ([\d,]+)", told)
    return Inside(
        cuda=release(told),
        llama=version[1] if version else "",
        ggml_archs=tuple(archs[1].split(",")) if archs else None,
    )


# ------------------------------------------------------------------------------------------- cache


def _file(cache: Path | None, name: str) -> Path | None:
    digest = name.partition("@sha256:")[2]
    return cache / "doctor" / f"{digest}.json" if cache and re.fullmatch(r"[0-9a-f]{64}", digest) else None


def _kept(cache: Path | None, name: str) -> Inside | None:
    path = _file(cache, name)
    text = asking.text_of(path) if path else None
    return parse_inside(text) if text else None


def _keep(cache: Path | None, name: str, inside: Inside | None) -> None:
    path = _file(cache, name)
    if path is not None and inside is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        known = {key: getattr(inside, key) for key in inside.__slots__ if getattr(inside, key) is not None}
        for tool in ("nvcc", "ptxas"):
            if known.get(tool):
                known[tool] = f"release {known[tool]}"  # as it is read again
        path.write_text(json.dumps(known) + "\n", encoding="utf-8")
