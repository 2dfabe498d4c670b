"""A model of the real size, a random Qwen3.5-9B, through the whole quantizer:

    python -m quantizer.bench.real_size --out FILE.json [--steps NAME,…] [--shape tiny|9b] [--place DIR]

Each step runs in a process of its own, most of them by the command that a user would type. `modelopt` does the work of `ptq`
with ModelOpt. The results are written after each step, so that an interrupted run keeps them.

  device   what torch took from the GPU (`max_memory_reserved`)
  host     the process's largest resident memory (VmHWM), mapped parts of files included
"""

import argparse
import contextlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GIB: Final = 2**30
CAP: Final = 48.0
"""GiB that training may take from the GPU."""
CONVERSATIONS: Final = 512
SERVER: Final = "vllm-0.24"
LEAST: Final = 20.0
"""Seconds that must be left for a step to begin."""
TRAINED: Final = "--set train.optimizer=adamw_8bit --set train.recompute=true --set train.max_steps=4"
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "9b": {},
    "tiny": {
        "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    },
}  # fmt: skip
"""What differs from `Qwen3_5TextConfig()`. The tokenizer has 2,048 tokens; the 9B keeps its real vocabulary."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step. command: of `manners quantize`, with names of folders in braces; without one, a function of this module.
    makes: the folder that it writes. drops: folders that are removed before it begins. cap: GiB of the GPU."""

    name: str
    command: str = ""
    makes: str = ""
    drops: tuple[str, ...] = ()
    cap: float | None = None


PATH_STEPS: Final = (
    PathStep("make", makes="bf16"),
    PathStep("ptq", "ptq --recipe default --source {bf16} --data {data} --out {nvfp4} --json --force", "nvfp4"),
    PathStep("modelopt", makes="theirs"),
    PathStep("verify", "verify {nvfp4} --json", drops=("theirs",)),
    PathStep("verify_source", "verify {nvfp4} --source {bf16} --json"),
    PathStep("surgery", f"surgery {{nvfp4}} --for {SERVER} --out {{wrapped}} --json", "wrapped"),
    PathStep("gguf", "gguf {bf16} --type q4_k_m --out {gguf} --force", "gguf"),
    PathStep("awq", "ptq --recipe awq_lite --source {bf16} --data {data} --out {awq} --json --force", "awq"),
    PathStep("risk", "risk --base {bf16} --source {bf16} --json"),
    PathStep("delta", "ptq --recipe delta --base {bf16} --source {bf16} --data {data} --out {delta} --json --force",
             "delta", ("awq",)),
    PathStep("qat", f"qat --source {{bf16}} --data {{data}} --out {{qat}} --json --force {TRAINED}", "qat",
         ("theirs", "nvfp4", "wrapped", "gguf"), CAP),
    PathStep("qad", f"qad --source {{bf16}} --data {{data}} --out {{qad}} --json --force {TRAINED}", "qad", ("qat",), CAP),
)  # fmt: skip
"""In the order of their importance, as far as one needs another. With --force: a plan's guess must not end a measurement."""
# --------------------------------------------------------------------------------- a step, in its own process


def run_part(part: PathStep, place: Path, shape: str, scratch: Path) -> dict[str, Any]:
    """Run a step in this process. Returns what it took, and what the command printed about itself."""
    import torch

    from quantizer.core.cost import default_device

    cuda = torch.cuda.is_available()
    if cuda and part.cap:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, part.cap * GIB / total))
    began = time.perf_counter()
    figures = (
        _command(part, place, scratch)
        if part.command
        else globals()[f"_{part.name}"](place, shape, default_device())
    )
    if cuda:
        torch.cuda.synchronize()
    found = {"name": part.name, "seconds": round(time.perf_counter() - began, 1)}
    if cuda:
        found |= {
            "device_reserved_gib": round(torch.cuda.max_memory_reserved() / GIB, 2),
            "device_allocated_gib": round(torch.cuda.max_memory_allocated() / GIB, 2),
        }
    return found | {"host_gib": round(peak_host() / GIB, 2)} | figures


def peak_host() -> int:
    """The largest resident memory of this process so far, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def folder_of(name: str, place: Path, scratch: Path) -> Path:
    """Where a step's folder is made. What trains keeps checkpoints beside its folder, five times as large as that."""
    return (scratch if name in ("qat", "qad") else place) / name


def _command(part: PathStep, place: Path, scratch: Path) -> dict[str, Any]:
    from quantizer.cli import main

    names = ("bf16", "nvfp4", "wrapped", "gguf", "awq", "delta", "qat", "qad")
    folders = {name: folder_of(name, place, scratch) for name in names}
    argv = ["quantize", *(word.format(**folders, data=place / "rows.jsonl") for word in part.command.split())]
    parser = argparse.ArgumentParser(prog="manners")
    main.add(parser.add_subparsers(dest="command"))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main.run(parser.parse_args(argv))
    figures: dict[str, Any] = {"exit": code, "command": " ".join(["manners", *argv])}
    with contextlib.suppress(ValueError):
        said = json.loads(out.getvalue())
        figures |= {key: said[key] for key in ("seconds", "check", "sound", "train") if key in said}
        figures["parts"] = figures.pop("seconds", {})
    if part.makes:
        figures["bytes"] = size_of(folder_of(part.makes, place, scratch))
    return figures


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _make(place: Path, shape: str, device: str) -> dict[str, Any]:
    from quantizer.bench.random_folder import write_random
    from quantizer.nano import conversations

    count = write_random(place / "bf16", SHAPES[shape], device)
    conversations.write(place / "rows.jsonl", CONVERSATIONS if shape != "tiny" else 4)
    return {"parameters": count, "bytes": size_of(place / "bf16")}


def _modelopt(place: Path, shape: str, device: str) -> dict[str, Any]:
    """ModelOpt's own calibration and export: the same layers, the same batches."""
    from modelopt.torch.export import export_hf_checkpoint
    from transformers import AutoModelForCausalLM

    from quantizer.checkpoint.source import open_source
    from quantizer.core.batch import hidden_states
    from quantizer.core.cost import Cost
    from quantizer.layers.attach import make_plan
    from quantizer.ptq import modelopt
    from quantizer.ptq.quantize import QuantizationJob, _data
    from quantizer.recipes.recipe import load_recipe

    recipe, source, cost = load_recipe("modelopt_default", []), place / "bf16", Cost(device)
    mtq = modelopt.open_modelopt(recipe, device)
    job = QuantizationJob(recipe, open_source(source), _data(recipe, source, place / "rows.jsonl"), device)
    with cost.part("load"):
        options: dict[str, Any] = {"device_map": device} if device != "cpu" else {}
        model = AutoModelForCausalLM.from_pretrained(source, dtype="bfloat16", **options).eval()
    wanted = modelopt.config(mtq, recipe, make_plan(model, recipe.layers))
    with cost.part("calibrate"), contextlib.redirect_stdout(sys.stderr):
        mtq.quantize(model, wanted, lambda m: [hidden_states(m, batch.to(device)) for batch in job.batches()])
    with cost.part("export"), contextlib.redirect_stdout(sys.stderr):
        export_hf_checkpoint(model, export_dir=place / "theirs")
    return {"parts": cost.facts()["seconds"], "bytes": size_of(place / "theirs")}


# ----------------------------------------------------------------------------------------------- all of them


def row(one: dict[str, Any]) -> str:
    if "failed" in one:
        return f"| {one['name']} | {one['failed']} | | | | |"
    parts = ", ".join(f"{name} {seconds:g}" for name, seconds in one.get("parts", {}).items())
    written = f"{one['bytes'] / 1e9:.1f}" if "bytes" in one else ""
    reserved = one.get("device_reserved_gib", "")
    return f"| {one['name']} | {one['seconds']:g} | {parts} | {reserved} | {one['host_gib']:g} | {written} |"


def run_all(
    names: Sequence[str],
    shape: str,
    place: Path,
    out: Path | None,
    seconds: float,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Run steps, each in its own process, and write the results after each. seconds: for all of them. scratch: where what
    trains is made; by default `place`."""
    until, scratch = time.monotonic() + seconds, scratch or place
    for folder in (place, scratch):
        folder.mkdir(parents=True, exist_ok=True)
    found = _machine(shape)
    for part in PATH_STEPS:
        if part.name not in names:
            continue
        left = until - time.monotonic()
        one = {"name": part.name, "failed": f"not begun: {left:.0f} s left"}
        if left > LEAST:
            for name in (*part.drops, part.makes):
                if name:
                    shutil.rmtree(folder_of(name, place, scratch), ignore_errors=True)
            one = _alone(part, shape, place, left, scratch)
        found["steps"].append(one)
        print(row(one), flush=True)
        if out:
            out = out.with_suffix(".json")
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def _machine(shape: str) -> dict[str, Any]:
    """Asked in a child, so that this process holds no memory of a GPU."""
    code = (
        "import json, torch; from quantizer.core import cost; "
        "print(json.dumps([cost.device_name(torch.device(cost.default_device())), cost.tools('nvidia-modelopt')]))"
    )
    device, tools = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    return {"shape": shape, "device": device, "cpus": os.cpu_count(), "machine": platform.machine(),
            "tools": tools, "steps": []}  # fmt: skip


def _alone(part: PathStep, shape: str, place: Path, seconds: float, scratch: Path) -> dict[str, Any]:
    """A step in a process of its own; what went wrong, if it did."""
    figures = _figures(place, part.name)
    figures.unlink(missing_ok=True)
    command = [sys.executable, "-m", "quantizer.bench.real_size", "--shape", shape,
               "--place", str(place), "--scratch", str(scratch), "--part", part.name]  # fmt: skip
    alone = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if part.cap else {}
    try:
        code = subprocess.run(command, env=os.environ | alone, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        return {"name": part.name, "failed": f"not done in {seconds:.0f} s"}
    if not figures.exists():
        return {"name": part.name, "failed": f"exit code {code}"}
    found: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    return found if not found.get("exit") else found | {"failed": f"exit code {found['exit']}"}


def one_part(name: str, shape: str, place: Path, scratch: Path) -> int:
    """The child's side: run a step and leave its result."""
    part = next(part for part in PATH_STEPS if part.name == name)
    found = run_part(part, place, shape, scratch)
    _figures(place, name).write_text(json.dumps(found), encoding="utf-8")
    return 0


def _figures(place: Path, name: str) -> Path:
    """Where a step's child leaves its result. Each step has its own: two runs may use the same folders."""
    return place / f".{name}.json"


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for, as far as it fits the budget, and print a row for each step."""
    names = [part.name for part in PATH_STEPS]
    parser = argparse.ArgumentParser(
        prog="python -m quantizer.bench.real_size",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--steps", default=",".join(names), help="separated by commas (%(default)s)")
    option("--shape", default="9b", choices=sorted(SHAPES), help="of the model (%(default)s)")
    option("--place", type=Path, default=Path("/tmp/real-size"), help="where folders are made (%(default)s)")
    option("--scratch", type=Path, help="where qat and qad are made, with 45 GB of checkpoints (--place)")
    option("--out", type=Path, metavar="FILE.json", help="the results")
    option("--part", help=argparse.SUPPRESS)
    option("--budget", type=float, default=1200.0, metavar="SECONDS", help="for all (%(default)s)")
    given = parser.parse_args(arguments)
    if given.part:
        return one_part(given.part, given.shape, given.place, given.scratch or given.place)
    asked = given.steps.split(",")
    if unknown := sorted(set(asked) - set(names)):
        parser.error(f"--steps: there is no {unknown[0]}; known: {', '.join(names)}")
    done = run_all(asked, given.shape, given.place, given.out, given.budget, given.scratch)
    return int(any("failed" in one for one in done["steps"]))


if __name__ == "__main__":
    sys.exit(main())
