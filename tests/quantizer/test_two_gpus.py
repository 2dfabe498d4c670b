"""The bench of two GPUs: its variants run, on a CPU and alone, and its table says what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.experiments.bench import two_gpus  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.train.shard import World  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize(
    "name",
    ["0.5B, one", "0.5B, two, half the tokens each", "0.5B, two, two micro-batches", "9B, one, 8 bits"],
)
def test_a_variant_makes_its_steps(name: str) -> None:
    """With the tokens that it says, as one process that is alone."""
    variant = next(one for one in two_gpus.variants() if one.name == name)
    told = two_gpus.measure(variant, World(), tiny=True)

    assert told["tokens_a_step"] == 128 * variant.micros
    assert told["tokens_per_second"] > 0 and len(told["losses"]) == 2


def test_variants_can_be_told_apart() -> None:
    """By name, and by more than their name."""
    names = [variant.name for variant in two_gpus.variants()]

    assert len(set(names)) == len(names)
    assert len({replace(variant, name="") for variant in two_gpus.variants()}) == len(names)


def test_neighbours_of_one_kind_share_their_processes() -> None:
    """Nothing is lost or moved."""
    groups = two_gpus._groups(two_gpus.variants())

    assert [one for group in groups for one in group] == two_gpus.variants()
    assert all(len({(one.gpus, one.model) for one in group}) == 1 for group in groups)


def test_the_table_holds_each_line_against_the_first_of_its_model() -> None:
    """What failed says why."""
    row = {"name": "9B, one", "tokens_per_second": 100.0, "step_seconds": 2.0, "peak_gib": 40.0}
    lines = two_gpus.table(
        [row, {**row, "name": "9B, two", "tokens_per_second": 180.0}, {"name": "x", "failed": "why"}]
    )

    assert "| 9B, two | 180 | 1.80 |" in lines[3] and lines[4].startswith("| x | why |")


def test_without_two_gpus_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of measuring a CPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    for words in ([], ["--only", "9B"], ["--only", "9B, one, 8 bits", "kill"]):
        assert two_gpus.main(words) == 69
        assert "torch does not see two" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert two_gpus.main(["--only", "9B, one, 8 bits"]) == 69
    assert "torch sees none" in capsys.readouterr().err
    assert two_gpus.main(["--only", "10B"]) == 2
    assert "there is no 10B" in capsys.readouterr().err


ONE = "9B, one, 8 bits"


@pytest.mark.parametrize(
    ("gpus", "words", "ran"),
    [
        (1, ["--only", ONE], [ONE]),
        (2, ["--only", ONE], [ONE]),
        (2, ["--only", "kill"], ["kill and resume, adamw"]),
        (2, ["--only", ONE, "kill"], [ONE, "kill and resume, adamw"]),
        (2, ["--only", "kill", ONE, "--no-kill"], [ONE]),
    ],
)
def test_only_what_is_chosen_runs(
    gpus: int, words: list[str], ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill among it, and on as many GPUs as that takes."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(
        two_gpus, "_measured", lambda group, *_: ({"name": one.name, "failed": ""} for one in group)
    )
    monkeypatch.setattr(
        two_gpus, "kill_and_resume", lambda tiny, optimizer: {"name": f"kill and resume, {optimizer}"}
    )

    assert two_gpus.main([*words, "--json", str(tmp_path / "out.json")]) == 0
    assert [one["name"] for one in json.loads((tmp_path / "out.json").read_text())["results"]] == ran


def test_the_whole_table_has_the_kill_behind_its_second_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        two_gpus, "_measured", lambda group, *_: ({"name": one.name, "failed": ""} for one in group)
    )
    monkeypatch.setattr(two_gpus, "kill_and_resume", lambda tiny, optimizer: {"name": "kill"})

    assert two_gpus.main(["--json", str(tmp_path / "out.json")]) == 0
    names = [one["name"] for one in json.loads((tmp_path / "out.json").read_text())["results"]]
    assert names.index("kill") == sum(map(len, two_gpus._groups(two_gpus.variants())[:2]))


def test_a_whole_name_chooses_its_variant_alone_and_a_word_all_that_have_it() -> None:
    assert [v.name for v in two_gpus._chosen(["0.5B, two"])] == ["0.5B, two"]
    assert {v.model for v in two_gpus._chosen(["9B"])} == {"9B"}
    assert two_gpus._chosen(None) == two_gpus.variants()
    assert two_gpus._chosen(["none of them"]) == []


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit"])
def test_the_run_that_is_killed_has_a_sound_recipe(optimizer: str, tiny: bool) -> None:
    """`adamw_8bit` wants steps of one micro-batch."""
    settings = load_recipe("qat", two_gpus._changes(optimizer, tiny)).train

    assert settings and settings.optimizer == optimizer and settings.save == 1


def test_runs_are_compared_without_fused_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its backward passes are deterministic only where torch may refuse what is not, rather than warn."""
    fused = ("flash", "mem_efficient", "cudnn")
    before = [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in fused]
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    try:
        two_gpus._compute_alike()

        assert torch.are_deterministic_algorithms_enabled() and torch.backends.cuda.math_sdp_enabled()
        assert not any(getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in fused)
    finally:
        torch.use_deterministic_algorithms(False)
        for name, was in zip(fused, before, strict=True):
            getattr(torch.backends.cuda, f"enable_{name}_sdp")(was)
