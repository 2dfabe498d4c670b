"""`python -m tests.gpu.bundle --out DIR`: what a GPU host without a network needs for `python -m tests.gpu`, in a folder.

Made on a machine with a network, of the files here that git does not ignore and of the versions in the locks; `bash unpack.sh DIR` unpacks it on the host:

  site.tar.xz      packages for the host's Python, without what comes with its PyTorch (--leave)
  code.tar.xz      the repository as far as the parts of a session need it, and the models that they name
  vllm.tar         wheels of a vLLM (--vllm DIR: a folder of wheels, or of the parts of a tar of wheels)
  flashinfer.tar   FlashInfer for the variants of that name (--flashinfer)

With --part-mib, what is larger is split, and unpack.sh joins it. SHA256SUMS lists every file, and no archive that differs is unpacked.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

from tests.gpu.wheels import (
    OF_THE_HOST,
    LockedPackage,
    WheelHost,
    as_requirements,
    read_lock,
    wheels_for,
)

ROOT: Final = Path(__file__).parents[2]
UNPACK: Final = Path(__file__).with_name("unpack.sh")
SUMS: Final = "SHA256SUMS"
FACTS: Final = "bundle.env"
MIB: Final = 2**20
CODE: Final = ("app", "deploy", "gates", "quantizer", "tests", "pyproject.toml", "README.md", "Makefile", "requirements",
               "docs/study/README.md", "models/__init__.py")  # fmt: skip
NAMES_MODELS: Final = (
    "tests/gpu",
    "tests/chain",
    "deploy/profiles/variants",
    "quantizer/experiments/bench",
    "quantizer/experiments/study",
)
"""Where the parts of a session name models that this repository ships."""
UNUSED: Final = ("bin", "pulp/solverdir")
"""Of the packages: start scripts that name this machine's Python, and solvers for seven platforms."""
FLASHINFER: Final = ("flashinfer-python", "nvidia-cudnn-frontend")
IMPORTS: Final = ("aiohttp", "cryptography", "fastapi", "gguf", "httptools", "hypothesis", "modelopt", "msgspec", "numpy", "pytest", "re2",
                  "safetensors", "tokenizers", "torch", "torchao", "transformers", "triton", "uvloop", "xllamacpp")  # fmt: skip
"""What unpack.sh tries: compiled packages, and those of the host."""


class BundleError(Exception):
    """A bundle cannot be made. The text says why."""


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    given = _parser().parse_args(arguments)
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    host = WheelHost(given.python, given.platform, given.glibc)
    try:
        for name in given.only or ARCHIVES:
            _begin_anew(out, name)
            _make(name, out, host, given)
        _describe(out, host)
        split_large(out, given.part_mib)
        write_sums(out)
    except (BundleError, ValueError) as why:
        print(f"tests.gpu.bundle: {why}", file=sys.stderr)
        return 1
    for line in (out / SUMS).read_text("utf-8").splitlines():
        file = out / line.split("  ", 1)[1]
        print(f"{file.stat().st_size / MIB:8.1f} MiB  {file}")
    return 0


ARCHIVES: Final = ("site", "code", "vllm", "flashinfer")


def _make(name: str, out: Path, host: WheelHost, given: argparse.Namespace) -> None:
    if name == "site":
        make_site(out / "site.tar.xz", host, given.leave)
    elif name == "code":
        make_code(out / "code.tar.xz")
    elif name == "vllm" and given.vllm:
        pack_wheels(out / "vllm.tar", given.vllm, host)
    elif name == "flashinfer" and given.flashinfer:
        with tempfile.TemporaryDirectory() as place:
            lock = read_lock((ROOT / "requirements/vllm-gpu.txt").read_text("utf-8"))
            _pip("download", [one for one in lock if one.name in FLASHINFER], host, "--dest", place)
            pack_wheels(out / "flashinfer.tar", Path(place), host)


# ------------------------------------------------------------------------------------------------- archives


def make_site(archive: Path, host: WheelHost, leave: Sequence[str]) -> None:
    """The host's packages, in one folder."""
    locks = {file.stem: file.read_text("utf-8") for file in (ROOT / "requirements").glob("*.txt")}
    with tempfile.TemporaryDirectory() as place:
        site = Path(place, "site")
        _pip("install", wheels_for(locks, host, leave), host, "--no-compile", "--target", str(site))
        for name in UNUSED:
            shutil.rmtree(site / name, ignore_errors=True)
        _strip(site, host)
        pack(archive, site, (file.relative_to(site).as_posix() for file in site.rglob("*")), "w:xz")


def make_code(archive: Path) -> None:
    """The files that git tracks, or would, as they lie here: a new file must not be missing where it cannot be fetched."""
    tracked = _git(
        "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *CODE, "models"
    ).split("\0")
    models = models_named((ROOT / name).read_text("utf-8") for name in tracked
                          if name.startswith(NAMES_MODELS) and name.endswith((".py", ".toml")))  # fmt: skip
    pack(archive, ROOT, code_files(tracked, models), "w:xz")


def code_files(tracked: Iterable[str], models: Iterable[str]) -> list[str]:
    """Of these files, those that go along."""
    wanted = (*CODE, *(f"models/{name}" for name in models))
    return [
        name for name in tracked if name and any(name == one or name.startswith(f"{one}/") for one in wanted)
    ]


def models_named(texts: Iterable[str]) -> list[str]:
    """The folders of `models/` that stand in these texts."""
    there = sorted(path.name for path in (ROOT / "models").iterdir() if path.is_dir())
    words = {word for text in texts for word in re.findall(r"[\w-]+", text)}
    return [name for name in there if name in words]


def pack_wheels(archive: Path, folder: Path, host: WheelHost) -> None:
    """A tar of the wheels in a folder, or of those in the tar whose parts lie there. Raises BundleError."""
    wheels = sorted(folder.glob("*.whl"))
    if wheels:
        refuse_foreign((file.name for file in wheels), host)
        pack(archive, folder, [file.name for file in wheels], "w")
        return
    with archive.open("wb") as joined:
        for file in sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else ():
            with file.open("rb") as part:
                shutil.copyfileobj(part, joined)
    try:
        with tarfile.open(archive) as tar:
            names = tar.getnames()
    except tarfile.TarError as why:
        raise BundleError(f"{folder} holds neither wheels nor the parts of a tar of them: {why}") from None
    refuse_foreign(names, host)


def refuse_foreign(names: Iterable[str], host: WheelHost) -> None:
    """Raises BundleError: one of these is no wheel that the host can install."""
    for name in names:
        if not name.endswith(".whl") or not fits(name, host):
            raise BundleError(
                f"{name} is no wheel for CPython {host.python} on {host.machine} with glibc 2.{host.glibc}"
            )


def fits(wheel: str, host: WheelHost) -> bool:
    """Whether a wheel of this name can be installed on the host."""
    from packaging.tags import compatible_tags, cpython_tags
    from packaging.utils import parse_wheel_filename

    version = tuple(map(int, host.python.split(".")))
    able = {*cpython_tags(version, platforms=host.platforms),
            *compatible_tags(version, f"cp{host.python.replace('.', '')}", host.platforms)}  # fmt: skip
    return not parse_wheel_filename(wheel)[3].isdisjoint(able)


def pack(archive: Path, folder: Path, names: Iterable[str], mode: Literal["w:xz", "w"]) -> None:
    """The named files of a folder, the same bytes each time."""
    with tarfile.open(archive, mode) as tar:
        for name in sorted(names):
            if (folder / name).is_file():
                tar.add(folder / name, name, filter=_plain)


def _plain(one: tarfile.TarInfo) -> tarfile.TarInfo:
    one.uid = one.gid = one.mtime = 0
    one.uname = one.gname = ""
    one.mode = 0o755 if one.mode & 0o100 else 0o644
    return one


# --------------------------------------------------------------------------------------------- parts and sums


def split_large(out: Path, mib: float | None) -> None:
    """Replace every archive that is larger by its parts, NAME.000 and so on."""
    for file in sorted(out.glob("*.tar*")) if mib else ():
        size = round(MIB * (mib or 0))
        if file.stat().st_size <= size:
            continue
        with file.open("rb") as whole:
            for number in range(-(-file.stat().st_size // size)):
                file.with_name(f"{file.name}.{number:03d}").write_bytes(whole.read(size))
        file.unlink()


def write_sums(out: Path) -> None:
    """The sha256 of every file, as sha256sum reads it."""
    files = sorted(file for file in out.iterdir() if file.is_file() and file.name != SUMS)
    lines = []
    for file in files:
        with file.open("rb") as opened:
            lines.append(f"{hashlib.file_digest(opened, 'sha256').hexdigest()}  {file.name}\n")
    (out / SUMS).write_text("".join(lines), "utf-8")


def _begin_anew(out: Path, name: str) -> None:
    """Remove what an earlier run made of this archive."""
    for file in out.glob(f"{name}.tar*"):
        file.unlink()


def _describe(out: Path, host: WheelHost) -> None:
    """unpack.sh, and what it reads."""
    shutil.copy(UNPACK, out / UNPACK.name)
    commit = _git("rev-parse", "HEAD").strip() + (" with changes" if _git("status", "--porcelain") else "")
    facts = {"python": host.python, "machine": host.machine, "commit": commit, "imports": " ".join(IMPORTS)}
    (out / FACTS).write_text(
        "".join(f"{key}={shlex.quote(value)}\n" for key, value in facts.items()), "utf-8"
    )


# ------------------------------------------------------------------------------------------------- commands


def _pip(command: str, packages: Sequence[LockedPackage], host: WheelHost, *options: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write(as_requirements(packages))
        listed.flush()
        words = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", "--no-deps",
                 "--require-hashes", *host.pip_options, *options, "--requirement", listed.name]  # fmt: skip
        if subprocess.run(words, check=False).returncode:
            raise BundleError(
                f"pip could not {command} what the locks name; --leave NAME leaves a package out"
            )


def _strip(site: Path, host: WheelHost) -> None:
    """Take the symbols out of compiled modules: a third of their size. Only where binutils are for that processor."""
    if not shutil.which("strip") or os.uname().machine != host.machine:
        print("not stripped: no strip for that processor here", file=sys.stderr)
        return
    for file in site.rglob("*.so*"):
        subprocess.run(["strip", "--strip-unneeded", str(file)], check=False)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.bundle", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    option = parser.add_argument
    option("--out", type=Path, required=True, metavar="DIR")
    option("--python", default="3.12", metavar="VERSION", help="the host's CPython (default: %(default)s)")
    option(
        "--platform",
        choices=("x86_64", "aarch64"),
        default="x86_64",
        help="its processor (default: %(default)s)",
    )
    option(
        "--glibc",
        type=lambda text: int(text.removeprefix("2.")),
        default=39,
        metavar="2.N",
        help="its C library (default: 2.%(default)s)",
    )
    option("--leave", nargs="+", default=OF_THE_HOST, metavar="NAME",
           help="packages and patterns of packages that the host has itself (default: %(default)s)")  # fmt: skip
    option("--vllm", type=Path, metavar="DIR", help="wheels of a vLLM, or the parts of a tar of them")
    option("--flashinfer", action="store_true", help="with FlashInfer as requirements/vllm-gpu.txt names it")
    option("--part-mib", type=float, metavar="N", help="split what is larger")
    option(
        "--only",
        nargs="+",
        choices=ARCHIVES,
        metavar="NAME",
        help="make these anew: %(choices)s (default: all)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
