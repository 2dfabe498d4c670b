"""Files of variants: every shipped one becomes engines, a wrong one is a line, and results become figures and a table."""

from pathlib import Path

import pytest

from deploy.profiles.load import ProfileError
from deploy.profiles.variant_result import LoadFigures, TimedRequest, empty, figures, host_facts, markdown
from deploy.profiles.variants import FILES, load_matrix

GOOD = """
title = "T"
about = "A."
loads = [{ streams = 2, requests = 4 }]
[servers.llama]
driver = "embedded"
artefact = "models/annie-nano-q4_k_m"
[[variants]]
name = "one"
profile = "nano-embedded"
server = "llama"
leave = ["--ctx-size"]
add = ["--ctx-size", "512"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FILES.shipped())
def test_a_shipped_file_becomes_engines_that_differ(name: str) -> None:
    matrix = load_matrix(name)
    assert len({(one.spec.args, one.spec.env) for one in matrix.variants}) == len(matrix.variants)
    assert {shape.streams for shape in matrix.table.loads} == {1, 16}


WRONG = {
    "an unknown profile": (GOOD.replace("nano-embedded", "nano-embeded"), "did you mean 'nano-embedded'?"),
    "an unknown server": (GOOD.replace('server = "llama"', 'server = "lama"'), r"variants\[0\].server: unknown server; did you mean 'llama'?"),
    "a flag that the profile does not have": (GOOD.replace('leave = ["--ctx-size"]', 'leave = ["--ctx-sise"]'), "leaves --ctx-sise, which nano-embedded does not have"),
    "a name twice": (GOOD + GOOD[GOOD.index("[[variants]]") :], r"variants\[1\].name: 'one' is given twice"),
    "no variant": (GOOD[: GOOD.index("[[variants]]")].replace("[servers", "variants = []\n[servers"), "variants: must hold at least one"),
    "fewer requests than streams": (GOOD.replace("requests = 4", "requests = 1"), r"loads\[0\].requests: must be at least as many"),
    "no prompt": (GOOD.replace("[servers", "prompt = 0\n[servers"), "must be more than 0"),
    "a process without a command": (GOOD.replace('"embedded"', '"process"'), "the process driver needs the words"),
    "an unknown key": (GOOD.replace("about", "abuot"), "abuot: unknown key; did you mean 'about'?"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_a_line_that_names_the_key(name: str, tmp_path: Path) -> None:
    text, why = WRONG[name]
    with pytest.raises(ProfileError, match=why) as caught:
        load_matrix(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_only_the_variants_that_were_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="there is no 'on'; did you mean 'one'?"):
        load_matrix(write(tmp_path, GOOD), only=["on"])
    assert [one.name for one in load_matrix("cpu", only=["coder", "hermes"]).variants] == ["hermes", "coder"]


def test_figures_are_of_the_requests_that_did_not_fail() -> None:
    taken = [TimedRequest(first=0.1 * n, last=0.1 * n + 1, tokens=11) for n in range(1, 5)]
    found = figures(2, 2.0, [*taken, TimedRequest(why="HTTP 500")])
    assert found == LoadFigures(
        streams=2,
        requests=5,
        failed=1,
        ttft_p50=200,
        ttft_p99=400,
        tokens_per_s=22,
        decode=10,
        why="HTTP 500",
    )
    assert figures(1, 1.0, [TimedRequest(why="no")]).tokens_per_s is None


def test_the_table_has_a_line_for_each_variant_and_the_reason_of_what_is_wrong(tmp_path: Path) -> None:
    matrix = load_matrix(write(tmp_path, GOOD))
    result = empty(matrix.variants[0])
    host = host_facts("NVIDIA H200", 16)
    assert "| one | nano-embedded* | - | - | - | - / - | - | not run |" in markdown(matrix, host, [result])
    result.start_s, result.why, result.checks = 12.34, "", {"streamed": "", "length": "4 tokens, not 3"}
    result.loads = [figures(2, 2.0, [TimedRequest(first=0.1, last=1.1, tokens=11)])]
    result.host_peak, result.drafts = 3 << 30, {"drafted": 9, "accepted": 3}
    told = markdown(matrix, host, [result])
    assert "| one | nano-embedded* | 12.3 | 100 / 100 | 6 | 3.0 / - | 3 of 9 | 1 of 2 |" in told
    assert "* one, length: 4 tokens, not 3" in told
    assert "without `--ctx-size 4096`, with `--ctx-size 512`" in told
