"""Build the nano models from nothing: `python -m quantizer.experiments.nano build`.

learn   generate conversations, train the tokenizer, the base model (stranger) and annie, and score annie; needs a GPU
        to finish in minutes
ship    make the sealed folders in models/ from the output of `learn`
nvfp4   make annie-nano in NVFP4: a folder for vLLM and a GGUF file with the same bits
score   score every GGUF file in models/ on held-out cases, through a real llama.cpp server
everyday  train annie-nano's folder in models/ further on everyday dialogues, and put the weights there; GPU, 3 minutes
build   all of these, `everyday` after `ship`
suite   write the cases of the gates' suite annie-nano from held-out dialogues
wall    check that no case of that suite is in the training data of the models; exit code 1 if one is
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from quantizer.experiments.nano.recipe import NANO, TINY, NanoRecipe


def learn(recipe: NanoRecipe, learned: Path, each: int) -> None:
    from quantizer.experiments.nano.learn import learn as run

    run(recipe, learned, each)


def everyday(recipe: NanoRecipe, models: Path, learned: Path, each: int) -> None:
    from quantizer.experiments.nano.learn import learn_everyday
    from quantizer.experiments.nano.ship import ship_everyday

    learn_everyday(recipe, models / "annie-nano-hf", learned, each)
    ship_everyday(learned, models)


def ship(recipe: NanoRecipe, learned: Path, models: Path) -> None:
    from quantizer.experiments.nano.ship import ship as run

    for artefact in run(recipe, learned, models):
        print(artefact.name, artefact.format, artefact.root)


def nvfp4(models: Path) -> None:
    from quantizer.experiments.nano.ship import quantize

    for artefact in quantize(models):
        print(artefact.name, artefact.format, artefact.root)


def score(recipe: NanoRecipe, models: Path, each: int) -> None:
    from quantizer.experiments.nano.cases import cases, everyday_cases
    from quantizer.experiments.nano.serving import score_file

    asked = [*cases(recipe.data_seed + 2, each), *everyday_cases()]
    for path in sorted(models.glob("*/*.gguf")):
        print(path.name)
        for name, (kept, of) in score_file(path, asked)[0].items():
            print(f"  {name:20} {kept:4}/{of}")


def suite(folder: Path) -> None:
    from quantizer.experiments.nano.suite import texts

    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


def wall(recipe: NanoRecipe) -> bool:
    from gates.suite.contamination import overlaps
    from gates.suite.load import load_suite
    from quantizer.experiments.nano.suite import learned_conversations

    cases = load_suite("annie-nano")
    found = overlaps(cases, learned_conversations(recipe))
    print(*found, f"{len(found)} overlaps with {cases.name} {cases.digest}", sep="\n")
    return not found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m quantizer.experiments.nano",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "command", choices=("learn", "ship", "nvfp4", "score", "build", "everyday", "suite", "wall")
    )
    parser.add_argument("--learned", type=Path, default=Path(".work/nano"), help="weights in between")
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--suite", type=Path, default=Path("gates/suites"))
    parser.add_argument("--each", type=int, default=40, help="held-out lessons of each category to score")
    parser.add_argument("--tiny", action="store_true", help="the same path in seconds, for a test")
    given = parser.parse_args()
    recipe, every = TINY if given.tiny else NANO, given.command == "build"
    if every or given.command == "learn":
        learn(recipe, given.learned, given.each)
    if every or given.command == "ship":
        ship(recipe, given.learned, given.models)
    if every or given.command == "everyday":
        everyday(recipe, given.models, given.learned, given.each)
    if given.command == "nvfp4" or (every and not given.tiny):
        nvfp4(given.models)
    if every or given.command == "score":
        score(recipe, given.models, given.each)
    if given.command == "suite":
        suite(given.suite)
    if given.command == "wall" and not wall(recipe):
        sys.exit(1)


if __name__ == "__main__":
    main()
