"""The image of these tests: a root file system of this machine's Python and llama.cpp's wheel.

No registry is asked: what is needed is copied from here, each library where `ldd` finds it, into a tar
that the daemon imports. It is small beside vLLM's, and its server is the real one.
"""

import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HOME = "/opt/engine"
SERVER = f"{HOME}/llama-server"
OURS = ("deploy", "gates", "tests")
FLAGS = "deploy/engine/llama_flags.toml"
_IMPORTED = """
import json, linecache, locale, shutil, sys, traceback, {modules}
print(json.dumps([m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)]))
"""
"""Tells every file that a program's start reads; what it imports later it must name here."""


def build(api: Any, repository: str) -> str:
    """Import the image with llama.cpp's server and return its id, `sha256:…`; its tag is `repository`:latest."""
    wheel = Path(str(find_spec("xllamacpp").origin)).parent  # type: ignore[union-attr]
    files = {
        **with_python("tests.docker.server, xllamacpp", more=wheel.glob("*.so")),
        **{f"{HOME}/xllamacpp/{path.name}": path for path in wheel.glob("*.*") if path.is_file()},
        SERVER: ROOT / "tests" / "docker" / "server.py",
        f"{HOME}/{FLAGS}": ROOT / FLAGS,
    }
    return import_image(api, repository, files, [str(executable()), SERVER])


def import_image(api: Any, repository: str, files: Mapping[str, Path], entrypoint: Sequence[str]) -> str:
    """Import an image of these files by their paths in it, and return its id; its tag is `repository`:latest."""
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            temporary = tarfile.TarInfo("tmp")  # runc gives a tmpfs the mode of what it is mounted on
            temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(temporary)
            for where, path in sorted(files.items()):
                _add(tar, path, where)
        python = Path(sys.base_prefix)
        changes = [
            f"ENTRYPOINT {json.dumps(list(entrypoint))}",
            f"WORKDIR {HOME}",
            f"ENV PYTHONHOME={python} PYTHONPATH={HOME} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1",
            "EXPOSE 8080",
        ]
        api.import_image_from_data(buffer.getvalue(), repository=repository, tag="latest", changes=changes)
    return str(api.inspect_image(f"{repository}:latest")["Id"])


def executable() -> Path:
    """This machine's Python, not the environment's link to it."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def with_python(modules: str, more: Iterable[Path] = ()) -> dict[str, Path]:
    """Path in the image, and file here: Python, what it reads to import these modules, and the libraries behind it all."""
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    command = [sys.executable, "-c", _IMPORTED.format(modules=modules)]
    said = subprocess.run(command, capture_output=True, cwd=ROOT, check=True, timeout=60).stdout
    loaded = {Path(name).resolve() for name in json.loads(said)}
    read = {path for path in loaded if path.is_relative_to(standard)} | {
        *(standard / "encodings").glob("*.py")
    }
    binaries = [executable(), *more, *(path for path in read if path.suffix == ".so")]
    ours = [path for path in loaded if any(path.is_relative_to(ROOT / floor) for floor in OURS)]
    return {
        **{str(path): path for path in (*read, executable())},
        **{where: Path(where) for where in libraries(binaries)},
        **{f"{HOME}/{path.relative_to(ROOT)}": path for path in ours},
    }


def libraries(binaries: Iterable[Path]) -> set[str]:
    """The shared libraries that these are linked with, and the loader, by the paths they are looked for at."""
    found: set[str] = set()
    for binary in binaries:
        said = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, timeout=30).stdout
        found |= {path for path in re.findall(r"(/[^\s:]+) \(0x", said) if Path(path).is_file()}
    return found


def _add(tar: tarfile.TarFile, path: Path, where: str) -> None:
    """One file, with a link's content instead of the link, readable by everybody."""
    data = path.read_bytes()
    entry = tarfile.TarInfo(where.lstrip("/"))
    entry.size, entry.mode = len(data), 0o755
    tar.addfile(entry, io.BytesIO(data))
