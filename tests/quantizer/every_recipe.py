"""Every shipped recipe by its command, and the check of what it made.

A test runs it in small on a CPU; `make test-gpu-recipes` runs it on a GPU with annie-nano and nothing changed in a
recipe, and writes recipes.json and recipes.md. What was proven before, with the same tools and data, is not run again.
"""

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from os import EX_UNAVAILABLE
from pathlib import Path
from typing import Any, Final

import torch

from app.__main__ import main as manners
from gates.artefact import artefact
from quantizer.cli.train import VERBS
from quantizer.core import cost
from quantizer.nano.conversations import write as write_conversations
from quantizer.recipes.recipe import Recipe, load_recipe, shipped_recipes
from tests.quantizer import folders, tiny

SMALL_TRAINING: Final = (
    "train.max_steps=2", "train.batch_tokens=1024", "train.micro_tokens=512", "train.save=9",
)  # fmt: skip
SMALL: Final = {
    "auto_mixed": ("auto.samples=1",),
    "autoround": ("rounding.steps=2", "rounding.tokens=64"),
}
PROVEN, REFUSED, FAILED = "proven", "no folder", "failed"


@dataclass(frozen=True, slots=True)
class Place:
    """Where recipes find their model and their conversations. hybrid: for the recipes that keep DeltaNet in BF16."""

    dense: Path
    hybrid: Path
    data: Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a recipe. reason: one line, unless it is proven. layers, sqnr_db, equal: of its NVFP4 folder: layers,
    signal to rounding noise, and of how many tokens the logits of the folder read back are the model's to the bit.
    loss: before and after training. peak_memory_bytes: of the GPU; on a CPU of the whole process so far."""

    recipe: str
    verdict: str
    reason: str
    source: str
    seconds: float
    peak_memory_bytes: int
    layers: int | None = None
    sqnr_db: float | None = None
    equal: tuple[int, int] | None = None
    loss: tuple[float, float] | None = None


def settle(folder: Path, small: bool, conversations: int) -> Place:
    """Make what recipes are given. small: models of 64 columns, else annie-nano, and the hybrid one all the same."""
    made = {build.__name__: folders.save(build, folder / build.__name__) for build in folders.BUILDS}
    dense = made[tiny.qwen3.__name__] if small else folders.NANO
    return Place(
        dense, made[tiny.qwen3_5.__name__], write_conversations(folder / "data.jsonl", conversations)
    )


def attempt(name: str, place: Place, out: Path, device: str, small: bool) -> Outcome:
    """One recipe, and `manners quantize verify` over what it made. Raises nothing: what is wrong is its verdict."""
    recipe = load_recipe(name)
    source = place.hybrid if recipe.layers.deltanet is False else place.dense
    given = ["--recipe", name, "--source", source, "--data", place.data, "--out", out, "--device", device]
    given += ["--base", source] if recipe.feedback and recipe.feedback.delta > 0 else []
    changes = (*(SMALL_TRAINING if recipe.train else ()), *SMALL.get(name, ())) if small else ()
    sets = [flag for change in changes for flag in ("--set", change)]
    spent = cost.Cost(device)
    with spent.part("all"):
        code, said, told = _command(verb(recipe), *map(str, given), *sets, "--json")
    seconds, memory = spent.seconds["all"], cost.peak_memory(spent.device)
    whole: dict[str, Any] = {"source": source.name, "seconds": round(seconds, 1), "peak_memory_bytes": memory}
    if code == EX_UNAVAILABLE and not out.exists():
        return Outcome(name, REFUSED, _last(told), **whole)
    fault = (
        f"exit code {code}: {_last(told)}" if code else _fault(name, out, source, json.loads(said)["root"])
    )
    if fault:
        return Outcome(name, FAILED, fault, **whole)
    return Outcome(name, PROVEN, "", **whole, **_numbers(json.loads(said)))


def verb(recipe: Recipe) -> str:
    """The command that takes it."""
    if recipe.train is None:
        return "ptq"
    losses = {name: (kinds, quantized) for name, (_, kinds, quantized) in VERBS.items()}
    return next(n for n, (k, q) in losses.items() if recipe.train.loss in k and recipe.train.quantized == q)


def _command(*words: str) -> tuple[int, str, str]:
    """`manners quantize` in this process: exit code, stdout, stderr."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = manners(["quantize", *words])
        except Exception as error:  # an error without a line of its own is a finding, and the others go on
            code = 1
            print(f"{type(error).__name__}: {error}".replace("\n", " "), file=sys.stderr)
    return code, out.getvalue(), err.getvalue()


def _fault(name: str, out: Path, source: Path, root: str) -> str:
    """What is wrong with a folder: sealed, sound by its own bytes, of the recipe's name, in the recipe's format."""
    made = artefact.load(out)
    if problems := artefact.verify(out):
        return f"the folder is not what it was sealed as: {problems[0]}"
    if made.root != root or made.provenance.recipe["name"] != name:
        return f"the folder is {made.root} by {made.provenance.recipe['name']}, not {root} by {name}"
    if made.format != "hf-nvfp4":
        return "" if (name, made.format) == ("sft", "hf-bf16") else f"the folder is {made.format}"
    code, said, told = _command("verify", str(out), "--source", str(source))
    return f"manners quantize verify: {_last(told or said)}" if code else ""


def _numbers(facts: dict[str, Any]) -> dict[str, Any]:
    check, train = facts.get("check"), facts.get("train")
    found: dict[str, Any] = {}
    if check:
        parity = check["parity"]
        found |= {"layers": check["layers"], "sqnr_db": check["sqnr_db"]}
        found["equal"] = (parity["equal"], parity["tokens"])
    return found | ({"loss": (train["loss_before"], train["loss_after"])} if train else {})


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["said nothing"])[-1].strip()


# ------------------------------------------------------------------------------------------ all of them


def everything(given: argparse.Namespace) -> list[Outcome]:
    """Every recipe that is wanted, one after another; the table is written after each."""
    about = {
        "device": cost.device_name(torch.device(given.device)),
        "small": given.small,
        "conversations": given.conversations,
        "tools": cost.tools("nvidia-modelopt", "auto-round"),
    }
    given.out.mkdir(parents=True, exist_ok=True)
    done = _before(given.out / "recipes.json", about)
    with tempfile.TemporaryDirectory(prefix="recipes-") as folder:
        place = settle(Path(folder), given.small, given.conversations)
        for name in given.only or shipped_recipes():
            if name in done and done[name].verdict != FAILED:
                continue
            _fresh()
            done[name] = attempt(name, place, Path(folder) / "made" / name, given.device, given.small)
            _write(given.out, about, done)
            print("\n".join(lines([done[name]])), flush=True)
    return list(done.values())


def _fresh() -> None:
    """Nothing that the recipe before has compiled or allocated counts for the next."""
    gc.collect()
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _before(path: Path, about: dict[str, Any]) -> dict[str, Outcome]:
    """What a run before found, if it was like this one."""
    if not path.exists():
        return {}
    told = json.loads(path.read_text("utf-8"))
    return {one["recipe"]: Outcome(**one) for one in told["recipes"]} if told["about"] == about else {}


def _write(folder: Path, about: dict[str, Any], done: dict[str, Outcome]) -> None:
    found = [done[name] for name in shipped_recipes() if name in done]
    told = {"about": about, "recipes": [asdict(one) for one in found]}
    (folder / "recipes.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    (folder / "recipes.md").write_text("\n".join(page(about, found)) + "\n", encoding="utf-8")


def page(about: dict[str, Any], found: Sequence[Outcome]) -> list[str]:
    """The table as Markdown, with what it is of."""
    tools = ", ".join(f"{name} {version}" for name, version in about["tools"].items())
    how = "in small: tiny models, a few steps" if about["small"] else "with nothing changed in a recipe"
    return [
        "# Every recipe, end to end",
        "",
        f"{about['device']}; {about['conversations']} conversations; {how}. {tools}.",
        "",
        "| recipe | source | verdict | seconds | peak memory, GiB | NVFP4 layers | SQNR, dB | logits equal to the bit | loss before, after |",
        "|---|---|---|---|---|---|---|---|---|",
        *lines(found),
    ]


def lines(found: Sequence[Outcome]) -> list[str]:
    """A row each."""
    told = []
    for one in found:
        cells = (
            one.recipe,
            one.source,
            f"{one.verdict}: {one.reason}".replace("|", "\\|") if one.reason else one.verdict,
            f"{one.seconds:.1f}",
            f"{one.peak_memory_bytes / 2**30:.2f}",
            "" if one.layers is None else str(one.layers),
            "" if one.sqnr_db is None else f"{one.sqnr_db:.1f}",
            f"{one.equal[0]} of {one.equal[1]}" if one.equal else "",
            f"{one.loss[0]:.4f}, {one.loss[1]:.4f}" if one.loss else "",
        )
        told.append(f"| {' | '.join(cells)} |")
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every recipe is proven or says in one line why it makes no folder."""
    parser = argparse.ArgumentParser(prog="every_recipe", description=__doc__)
    parser.add_argument("--device", default="cuda", help="as torch names it (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="for recipes.json and recipes.md"
    )
    parser.add_argument("--only", nargs="*", choices=shipped_recipes(), metavar="R", help="these recipes")
    parser.add_argument(
        "--small", action="store_true", help="tiny models and a few steps, as the test has them"
    )
    parser.add_argument("--conversations", type=int, default=1024, help="the data (default: %(default)s)")
    given = parser.parse_args(arguments)
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        print(f"every_recipe needs a CUDA GPU, and torch {torch.__version__} sees none here", file=sys.stderr)
        return EX_UNAVAILABLE
    found = everything(given)
    return int(any(one.verdict == FAILED for one in found))


if __name__ == "__main__":
    sys.exit(main())
