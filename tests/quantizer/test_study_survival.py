"""What survived is counted case by case, and the prediction finds what the cells were made of."""

from __future__ import annotations

import io
import json
import math
import random
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from quantizer.experiments.nano.recipe import ModelShape
from quantizer.experiments.study import ladder_page, results
from quantizer.experiments.study.grid import BASE
from quantizer.experiments.study.survival import (
    SurvivalCell,
    counts_of,
    fit,
    held_out_error,
    ratio_of,
    read_cells,
    weights_of,
)
from quantizer.experiments.study.thin import thin
from quantizer.verify import prediction
from quantizer.verify.prediction import Prediction

CASES = [{"id": f"c{i}", "group": "fact" if i < 4 else "call"} for i in range(10)]
SHAPE = ModelShape(hidden=128, layers=4, heads=4, kv_heads=2, head_dim=32, intermediate=384)


def cell(**missed: list[str]) -> dict[str, Any]:
    named = {name.removeprefix("c"): names for name, names in missed.items()}
    return {"missed": named, "seconds": 1.0, "ce": 0.3, "kl": 0.01, "scores": {}}


def record(seed: int, strength: str = "1e-5") -> dict[str, Any]:
    methods = {
        "bf16": cell(c0=["fact"], c9=["call"]),
        "default": cell(c0=["no leak"], c1=["fact"], c2=["no markdown"], c8=["call"]),
    }
    risk = [{"weights": 30, "delta_to_step": 0.1}, {"weights": 10, "delta_to_step": 0.3}]
    plain = cell() | {"ce": 0.5}
    base = {"lr": 0.0, "steps": 0, "methods": {"bf16": plain, "default": plain}}
    tuned = {"lr": 1e-5, "steps": 162, "moved": 0.04, "risk": risk, "methods": methods}
    return {
        "size": "1.3M", "seed": seed, "shape": asdict(SHAPE), "cases": CASES, "models": {BASE: base, strength: tuned},
    }  # fmt: skip


def write(folder: Path, **records: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, one in records.items():
        (folder / f"{name}.json").write_text(json.dumps(one))
    return folder


def pack(target: Path, **records: dict[str, Any]) -> Path:
    """As `collect` does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz") as tar:
        for name, one in records.items():
            text = json.dumps(one).encode()
            about = tarfile.TarInfo(f"gentle/{name}.json")
            about.size = len(text)
            tar.addfile(about, io.BytesIO(text))
    return target


def test_only_what_the_fine_tune_had_can_survive(tmp_path: Path) -> None:
    cells = read_cells(pack(tmp_path / "ladder.tar.xz", **{"1.3M-seed1": record(1)}))
    found = next(one for one in cells if one.strength == "1e-5" and one.method == "default")
    # Kept by the fine-tune: all but c9. Lost of these: c0, c2, c8 by manners. Gained: c9.
    assert (found.manners, found.gained) == ((6, 9), 1)
    assert found.facts == (2, 3)  # c1 to c3 were known, c1 no longer is; in c0 only a manner was missed
    assert found.ratio == pytest.approx(math.sqrt((30 * 0.01 + 10 * 0.09) / 40))
    assert next(one for one in cells if one.strength == BASE).ratio == 0


def test_thin_fine_tunes_are_summed_by_case(tmp_path: Path) -> None:
    records = {f"1.3M-seed{seed}": record(seed) for seed in (1, 2)}
    cells = read_cells(pack(tmp_path / "ladder.tar.xz", **records))
    mine = [one for one in cells if one.strength == "1e-5" and one.method == "default"]
    found = thin(mine)
    assert (found.manners[0], found.facts[0]) == pytest.approx((6 / 9, 2 / 3))
    assert found.apart[0] == pytest.approx(0.0)
    assert found.lost[0] == pytest.approx(2 / 10)  # three lost, one gained, of ten cases
    for value, low, high in (found.manners, found.facts, found.apart, found.lost):
        assert low < value < high


def test_an_older_run_knows_its_ratio_by_how_far_it_moved(tmp_path: Path) -> None:
    packed = pack(tmp_path / "ladder.tar.xz", **{"1.3M-seed1": record(1)})
    old = record(2, "thin")
    del old["models"][BASE], old["models"]["thin"]["risk"]
    old["models"]["thin"]["moved"] = 0.02
    write(tmp_path, **{"1.3M-seed2": old, "6.8M-seed2": old | {"size": "6.8M"}})
    cells = read_cells(packed, tmp_path)
    found = [one for one in cells if one.strength == "thin"]
    assert {one.size for one in found} == {"1.3M"}  # nothing relates the two at the other size
    wanted = ratio_of(record(1)["models"]["1e-5"]["risk"])
    assert found[0].ratio == pytest.approx(wanted / 2)


def test_the_weights_are_those_of_the_linear_layers() -> None:
    torch = pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")
    pytest.importorskip("transformers", reason="needs the quantizer extra: pip install -e '.[quantizer]'")
    from quantizer.experiments.nano.train import build_model

    model = build_model(SHAPE, 1, 0, 1)
    linear = [
        m.weight.numel() for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "layers" in n
    ]
    assert weights_of(asdict(SHAPE)) == sum(linear)


def made_of(truth: Prediction, seeds: int = 3) -> list[SurvivalCell]:
    draw, found = random.Random(1), []
    for seed in range(seeds):
        for weights in (1_000_000, 7_000_000, 50_000_000):
            for ratio in (0.003, 0.03, 0.3):
                p, asked = truth(ratio, weights), 2000
                kept = sum(draw.random() < p for _ in range(asked))
                found.append(
                    SurvivalCell(
                        "s", weights, seed, "x", "x", ratio, "default", (kept, asked), 0, (kept, asked), {}
                    )
                )
    return found


def test_the_fit_finds_what_the_cells_were_made_of() -> None:
    truth = Prediction(2.0, 0.7, 0.9)
    found = fit(counts_of(made_of(truth), "manners"))
    assert asdict(found) == pytest.approx(asdict(truth), abs=0.12)
    cells = made_of(truth)
    error = held_out_error(
        found, [c for c in cells if c.seed < 2], [c for c in cells if c.seed == 2], "manners"
    )
    assert error.cells == 9 and error.mean < 1.0 < error.constant


def test_where_nothing_is_lost_the_fit_is_finite() -> None:
    cells = [replace(one, manners=(2000, 2000)) for one in made_of(Prediction(2.0, 0.7, 0.9))]
    assert fit(counts_of(cells, "manners"))(0.01, 10**7) > 0.99


@pytest.mark.slow  # the fit over all committed cells: 4 s
def test_what_is_shipped_is_the_fit_of_the_committed_cells() -> None:
    folder = Path(__file__).parents[2] / "docs" / "study"
    cells = read_cells(folder / "ladder.tar.xz", folder)
    shipped = {"manners": prediction.MANNERS, "facts": prediction.KNOWLEDGE}
    assert ladder_page.fits(cells) == shipped
    weights = [one.weights for one in cells]
    assert min(weights) == prediction.WEIGHTS[0]
    assert max(weights) == pytest.approx(prediction.WEIGHTS[1], rel=0.01)


def test_outside_of_what_was_measured_the_nearest_is_taken() -> None:
    most = prediction.MANNERS(0.1, prediction.WEIGHTS[1])
    assert prediction.MANNERS.within(0.1, 9_000_000_000) == most
    assert prediction.MANNERS.within(0.0, 1000) == prediction.MANNERS(
        prediction.RATIOS[0], prediction.WEIGHTS[0]
    )
    assert prediction.risk(0.001, 786_432) == "high" and prediction.risk(0.1, 9_000_000_000) == "low"
    assert prediction.measured(7_000_000) and not prediction.measured(9_000_000_000)


def test_the_page_and_the_picture(tmp_path: Path) -> None:
    pack(tmp_path / "ladder.tar.xz", **{f"1.3M-seed{seed}": record(seed) for seed in (1, 2, 3)})
    (tmp_path / "ladder.md").write_text(f"# Mine\n{ladder_page.BEGIN}\nold\n{results.END}\nafter\n")
    ladder_page.write(tmp_path)
    page = (tmp_path / "ladder.md").read_text()
    assert page.startswith("# Mine\n") and page.endswith("\nafter\n") and "old" not in page
    assert "| 1e-5 | 0.173 | 100.0 (87.5–100.0) | 66.7 (" in page
    assert "| manners | 2 cells | seed 3, the same sizes | 1 |" in page
    picture = ElementTree.fromstring((tmp_path / "ladder.svg").read_text())
    assert any("1.3M" in (text.text or "") for text in picture.iter("{http://www.w3.org/2000/svg}text"))
    ladder_page.write(tmp_path)
    assert (tmp_path / "ladder.md").read_text() == page
