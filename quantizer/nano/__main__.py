"""The nano models, from nothing: `python -m quantizer.nano build`.

learn   conversations, tokenizer, the base (stranger), annie, a first score; wants a GPU (minutes)
ship    the sealed folders in models/ out of what `learn` wrote
score   held-out cases through a real llama.cpp server, for each GGUF file in models/
build   all three
"""

from __future__ import annotations

import argparse
from pathlib import Path

from quantizer.nano.recipe import NANO, TINY, Recipe


def learn(recipe: Recipe, learned: Path, each: int) -> None:
    from quantizer.nano.learn import learn as run

    run(recipe, learned, each)


def ship(recipe: Recipe, learned: Path, models: Path) -> None:
    from quantizer.nano.ship import ship as run

    for artefact in run(recipe, learned, models):
        print(artefact.name, artefact.format, artefact.root)


def score(recipe: Recipe, models: Path, each: int) -> None:
    from quantizer.nano.cases import cases
    from quantizer.nano.score_server import score_file

    asked = cases(recipe.data_seed + 2, each)
    for path in sorted(models.glob("*/*.gguf")):
        print(path.name)
        for name, (kept, of) in score_file(path, asked)[0].items():
            print(f"  {name:20} {kept:4}/{of}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m quantizer.nano",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("learn", "ship", "score", "build"))
    parser.add_argument("--learned", type=Path, default=Path(".work/nano"), help="weights in between")
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--each", type=int, default=40, help="held-out lessons of each category to score")
    parser.add_argument("--tiny", action="store_true", help="the same path in seconds, for a test")
    given = parser.parse_args()
    recipe, every = TINY if given.tiny else NANO, given.command == "build"
    if every or given.command == "learn":
        learn(recipe, given.learned, given.each)
    if every or given.command == "ship":
        ship(recipe, given.learned, given.models)
    if every or given.command == "score":
        score(recipe, given.models, given.each)


if __name__ == "__main__":
    main()
