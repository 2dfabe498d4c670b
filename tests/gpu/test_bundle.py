"""What a bundle for a GPU host without a network holds, and that a damaged one is not unpacked."""

import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gpu import bundle
from tests.gpu.bundle import (
    BundleError,
    code_files,
    fits,
    models_named,
    pack,
    pack_wheels,
    split_large,
    write_sums,
)
from tests.gpu.wheels import OF_THE_HOST, WheelHost, as_requirements, read_lock, wheels_for, with_needs

ROOT = Path(__file__).parents[2]
LOCKS = {file.stem: file.read_text("utf-8") for file in (ROOT / "requirements").glob("*.txt")}
LOCK = """\
# written by a tool
top[extra]==1.0 ; python_full_version >= '3.12' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via -r some.in
middle==2.0 \\
    --hash=sha256:cc
    # via top
Low_Level==3.0 ; sys_platform == 'win32' \\
    --hash=sha256:dd
    # via
    #   middle
    #   other
"""
HERE = WheelHost(f"{sys.version_info[0]}.{sys.version_info[1]}", platform.machine())


# ------------------------------------------------------------------------------------------------ wheels


def test_a_lock_is_read_with_hashes_markers_and_what_each_entry_is_there_for() -> None:
    top, middle, low = read_lock(LOCK)
    assert (top.name, top.hashes) == ("top", ("sha256:aa", "sha256:bb"))
    assert middle.needed_by == {"top"} and low.needed_by == {"middle", "other"}
    assert [one.for_host(WheelHost()) for one in (top, middle, low)] == [True, True, False]
    assert not top.for_host(WheelHost("3.11"))


def test_what_a_named_package_needs_comes_along() -> None:
    assert [one.name for one in with_needs(read_lock(LOCK), ["middle"])] == ["middle", "low-level"]


def test_pip_is_told_versions_and_hashes_and_no_marker() -> None:
    assert as_requirements(read_lock(LOCK)).splitlines()[0] == "top==1.0 --hash=sha256:aa --hash=sha256:bb"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_host_is_brought_what_it_has_not_got_itself(machine: str) -> None:
    names = {one.name for one in wheels_for(LOCKS, WheelHost(machine=machine), OF_THE_HOST)}
    assert {
        "fastapi",
        "xllamacpp",
        "transformers",
        "nvidia-modelopt",
        "torchao",
        "gguf",
        "hypothesis",
    } <= names
    assert {"pytest-xdist", "execnet", "iniconfig", "openai", "jiter", "sniffio"} <= names
    assert not names & {"pywin32", "httpx2-jsfetch", "colorama", "torch", "triton", "numpy", "mypy", "ruff"}
    assert ("atheris" in names) == (machine == "x86_64")


def test_what_is_left_out_is_a_matter_of_the_host() -> None:
    names = {one.name for one in wheels_for(LOCKS, WheelHost(), [*OF_THE_HOST, "transformers", "token*"])}
    assert not names & {"transformers", "tokenizers"}


def test_locks_that_differ_are_refused() -> None:
    other = {**LOCKS, "quantizer": LOCKS["quantizer"] + "\nmsgspec==0.1 \\\n    --hash=sha256:ee\n"}
    with pytest.raises(ValueError, match="the locks differ: msgspec"):
        wheels_for(other, WheelHost(), OF_THE_HOST)


def test_each_platform_that_the_host_can_load_is_named() -> None:
    tags = WheelHost(glibc=28).platforms
    assert tags[0] == "manylinux_2_28_x86_64" and "manylinux_2_34_x86_64" not in tags
    assert {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"} <= set(tags)


@pytest.mark.parametrize("wheel, right", [
    ("a-1-py3-none-any.whl", True),
    ("a-1-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", True),
    ("a-1-cp39-abi3-manylinux_2_31_x86_64.whl", True),
    ("a-1-cp311-cp311-manylinux_2_27_x86_64.whl", False),
    ("a-1-cp312-cp312-manylinux_2_40_x86_64.whl", False),
    ("a-1-cp312-cp312-manylinux_2_28_aarch64.whl", False),
    ("a-1-cp312-cp312-win_amd64.whl", False),
])  # fmt: skip
def test_whether_a_wheel_can_be_installed_there(wheel: str, right: bool) -> None:
    assert fits(wheel, WheelHost()) is right


def test_wheels_for_another_host_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a-1-cp312-cp312-manylinux_2_28_aarch64.whl").touch()
    with pytest.raises(BundleError, match="no wheel for CPython 3.12 on x86_64"):
        pack_wheels(tmp_path / "x.tar", tmp_path, WheelHost())


def test_wheels_may_come_as_the_parts_of_a_tar(tmp_path: Path) -> None:
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"1" * 9000)
    pack_wheels(tmp_path / "whole.tar", tmp_path, WheelHost())
    whole, parts = (tmp_path / "whole.tar").read_bytes(), tmp_path / "parts"
    parts.mkdir()
    for number, at in enumerate(range(0, len(whole), 4096)):
        (parts / f"p{number:02d}").write_bytes(whole[at : at + 4096])
    pack_wheels(tmp_path / "again.tar", parts, WheelHost())
    assert (tmp_path / "again.tar").read_bytes() == whole
    (parts / "p00").unlink()
    with pytest.raises(BundleError, match="neither wheels nor the parts"):
        pack_wheels(tmp_path / "again.tar", parts, WheelHost())


# -------------------------------------------------------------------------------------------------- code


def test_the_models_that_parts_name_go_along_and_no_others() -> None:
    texts = [
        '"models/annie-nano-hf/x.jinja"',
        'MODELS / "stranger-nano-q4_k_m" / "stranger-nano-q4_k_m.gguf"',
    ]
    assert models_named(texts) == ["annie-nano-hf", "stranger-nano-q4_k_m"]


def test_the_code_is_what_git_tracks_of_the_floors_the_tests_and_those_models() -> None:
    tracked = ["app/a.py", "docs/api.md", "docs/study/README.md", "models/__init__.py", "models/x/f", "models/xy/f",
               "application.py", "Makefile"]  # fmt: skip
    assert code_files(tracked, ["x"]) == [
        "app/a.py",
        "docs/study/README.md",
        "models/__init__.py",
        "models/x/f",
        "Makefile",
    ]


def test_the_real_code_has_what_the_parts_of_a_session_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[str] = []
    monkeypatch.setattr(bundle, "pack", lambda archive, folder, names, how: packed.extend(names))
    bundle.make_code(tmp_path / "code.tar.xz")
    models = {name.split("/")[1] for name in packed if name.startswith("models/")} - {"__init__.py"}
    assert models == {"annie-nano-hf", "annie-nano-nvfp4-hf", "annie-nano-q4_k_m", "annie-nano-thin-ptq",
                      "stranger-nano-q4_k_m"}  # fmt: skip
    assert {"tests/gpu/unpack.sh", "pyproject.toml", "deploy/profiles/variants/gpu-9b.toml"} <= set(packed)


# ----------------------------------------------------------------------------------- parts, and unpacking


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A small bundle, in parts of some bytes: a package, a repository of one module, and a vLLM of one file."""
    source, out = tmp_path / "source", tmp_path / "bundle"
    for name, text in {
        "site/brought/__init__.py": "",
        "code/tests/gpu/x.py": "1",
        "whl/transformers.py": "",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, "utf-8")
    (source / "site/noise").write_bytes(os.urandom(5000))
    out.mkdir()
    pack(out / "site.tar.xz", source / "site", ["brought/__init__.py", "noise"], "w:xz")
    pack(out / "code.tar.xz", source / "code", ["tests/gpu/x.py"], "w:xz")
    facts = {"python": HERE.python, "machine": HERE.machine, "commit": "0", "imports": "json"}
    (out / "bundle.env").write_text("".join(f"{key}='{value}'\n" for key, value in facts.items()), "utf-8")
    (out / "unpack.sh").write_text(bundle.UNPACK.read_text("utf-8"), "utf-8")
    split_large(out, 0.001)
    write_sums(out)
    return out


def unpack(made: Path, folder: Path, *names: str) -> SimpleNamespace:
    done = subprocess.run(["bash", str(made / "unpack.sh"), str(folder), *names], capture_output=True, text=True,
                          env={**os.environ, "PYTHON": sys.executable}, check=False)  # fmt: skip
    return SimpleNamespace(code=done.returncode, out=done.stdout, said=done.stderr + done.stdout)


def test_what_was_split_is_joined(made: Path, tmp_path: Path) -> None:
    parts = sorted(path.name for path in made.glob("site.tar.xz*"))
    assert len(parts) >= 5 and parts[0] == "site.tar.xz.000" and (made / "code.tar.xz").exists()
    done = unpack(made, tmp_path / "to")
    assert done.code == 0, done.said
    assert (tmp_path / "to/site/noise").read_bytes() == (tmp_path / "source/site/noise").read_bytes()
    assert (tmp_path / "to/code/tests/gpu/x.py").exists()
    assert f"PYTHONPATH='{tmp_path}/to/site' '{sys.executable}' -m tests.gpu --out" in done.out


def test_archives_can_be_unpacked_one_after_the_other(made: Path, tmp_path: Path) -> None:
    assert unpack(made, tmp_path / "to", "code").code == 0
    assert not (tmp_path / "to/site").exists()
    assert unpack(made, tmp_path / "to", "site").code == 0
    assert (tmp_path / "to/site/noise").exists() and (tmp_path / "to/code/tests/gpu/x.py").exists()
    assert "no vllm in this bundle" in unpack(made, tmp_path / "to", "vllm").said


@pytest.mark.parametrize("harm", ["changed", "cut", "missing", "swapped"])
def test_nothing_of_a_damaged_bundle_is_unpacked(made: Path, tmp_path: Path, harm: str) -> None:
    part, other = made / "site.tar.xz.001", made / "site.tar.xz.002"
    held = part.read_bytes()
    if harm == "changed":
        part.write_bytes(bytes([held[0] ^ 1]) + held[1:])
    elif harm == "cut":
        part.write_bytes(held[:-1])
    elif harm == "missing":
        part.unlink()
    else:
        part.write_bytes(other.read_bytes())
        other.write_bytes(held)
    done = unpack(made, tmp_path / "to")
    assert done.code == 1 and "nothing was unpacked" in done.said and "site.tar.xz.001" in done.said
    assert not list((tmp_path / "to").iterdir())
    assert unpack(made, tmp_path / "to", "code").code == 0, "what is whole can be unpacked"


def test_another_python_than_the_bundle_is_for_is_refused(made: Path, tmp_path: Path) -> None:
    facts = made / "bundle.env"
    facts.write_text(facts.read_text("utf-8").replace(HERE.python, "3.9"), "utf-8")
    done = unpack(made, tmp_path / "to")
    assert done.code == 1 and f"made for Python 3.9 {HERE.machine}" in done.said


def test_what_cannot_be_imported_is_named(made: Path, tmp_path: Path) -> None:
    facts = made / "bundle.env"
    facts.write_text(facts.read_text("utf-8").replace("'json'", "'brought not_there'"), "utf-8")
    done = unpack(made, tmp_path / "to")
    assert done.code == 1 and "not to be imported: not_there" in done.said and "brought (" not in done.said
    assert "-m tests.gpu --out" in done.out, "some parts may do without"


def wheel(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as made:
        made.writestr(f"{name}.py", text)
        made.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        made.writestr(
            f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{name}-1.dist-info/RECORD", "")


@pytest.mark.slow  # pip, twice
def test_vllm_lies_in_a_folder_of_its_own_and_only_its_interpreter_finds_it(
    made: Path, tmp_path: Path
) -> None:
    wheel(tmp_path / "v", "vllm", "__version__ = '0.0'")
    wheel(tmp_path / "v", "transformers", "")
    wheel(tmp_path / "f", "flashinfer", "")
    pack_wheels(made / "vllm.tar", tmp_path / "v", HERE)
    pack_wheels(made / "flashinfer.tar", tmp_path / "f", HERE)
    write_sums(made)
    done, to = unpack(made, tmp_path / "to"), tmp_path / "to"
    assert done.code == 0, done.said
    assert "vllm 0.0" in done.out and f"--vllm-path '{to}/vsite'" in done.out

    def asked(code: str, **env: str) -> str:
        words = [str(to / "code/.venv-gpu/bin/python"), "-c", code]
        return subprocess.run(
            words, env=env, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert asked("import vllm; print(vllm.__file__)") == f"{to}/vsite/vllm.py"
    find = "from importlib.util import find_spec; print(*(find_spec(n) is not None for n in ('vllm', 'flashinfer')))"
    assert asked(find) == "True False"
    assert asked(find, MORE_PATH=".venv-gpu/flashinfer") == "True True"
    assert asked(find, MORE_PATH=f"{to}/code/.venv-gpu/flashinfer", PYTHONPATH="/none") == "False True"
    assert asked("import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))") == "None"


@pytest.mark.slow  # pip
def test_a_vllm_that_cannot_be_imported_is_said_and_its_interpreter_made(made: Path, tmp_path: Path) -> None:
    wheel(tmp_path / "v", "vllm", "import torch_of_the_host")
    wheel(tmp_path / "v", "transformers", "")
    pack_wheels(made / "vllm.tar", tmp_path / "v", HERE)
    write_sums(made)
    done = unpack(made, tmp_path / "to")
    assert done.code == 1 and "vLLM cannot be imported" in done.out and "torch_of_the_host" in done.out
    assert "-m tests.gpu --out" in done.out and (tmp_path / "to/code/.venv-gpu/bin/python").exists()
