"""Profiles: every shipped one is whole and becomes an engine; a wrong one is a line that names the key."""

import tomllib
from pathlib import Path

import pytest

from deploy.core.errors import SpecError
from deploy.doctor.evidence import EngineFacts, Evidence, Gpu, HostFacts
from deploy.doctor.examine import examine
from deploy.engine import vllm
from deploy.profiles.__main__ import main as print_profile
from deploy.profiles.load import ProfileError, command_line, engine_spec, load_profile, shipped

PIN = "@sha256:" + "0" * 64
GOOD = """
title = "A profile"
about = "For a test"
dialect = "llama-server"
driver = "embedded"
run = "here"

[[flags]]
flag = "--ctx-size"
value = "512"
why = "Because it is a test."
source = "measured"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_profile_becomes_an_engine(name: str) -> None:
    profile = load_profile(name)
    image = f"{profile.image}{PIN}" if profile.image else None
    url = "http://127.0.0.1:30000" if profile.driver == "url" else None
    spec = engine_spec(profile, name="engine", artefact=Path("/models/annie"), image=image, url=url)
    assert (spec.dialect, spec.driver) == (profile.dialect, profile.driver)
    assert spec.args == (() if url else profile.args)
    assert spec.image == image and spec.url == url
    assert all(one.why.endswith(".") for one in profile.flags)
    assert not {"--trust-remote-code", "--enable-sleep-mode"} & set(profile.args)


@pytest.mark.parametrize("name", [n for n in shipped() if load_profile(n).driver == "docker"])
def test_what_is_recommended_has_no_fault_that_a_flag_could_have_and_the_notes_recipes_do(name: str) -> None:
    profile = load_profile(name)
    engine = EngineFacts(
        dialect=profile.dialect, driver="docker", image=f"{profile.image}{PIN}", args=profile.args
    )
    spark = HostFacts(architecture="aarch64", gpus=(Gpu(name="NVIDIA GB10", capability="12.1"),))
    found = examine(Evidence(host=spark, engines={"it": engine}))
    wrong = {f.id for f in found if f.engine and f.state in ("fail", "warn")}
    expected = {
        "notes-vllm-nvfp4-9b": {"image.nightly", "engine.graphs"},
        "vllm-nvfp4-9b-eager": {"engine.graphs"},
    }
    assert wrong == expected.get(name, set())


def test_an_image_has_to_be_pinned() -> None:
    profile = load_profile("vllm-nvfp4-9b")
    with pytest.raises(SpecError, match="is not pinned"):
        engine_spec(profile, name="engine")


def test_a_server_of_somebody_else_is_named_by_its_address_and_has_a_command() -> None:
    profile = load_profile("sglang-nvfp4-9b")
    words = command_line(profile, "/models/annie")
    assert words[:5] == ("python", "-m", "sglang.launch_server", "--model-path", "/models/annie")
    assert "--reasoning-parser" in words
    with pytest.raises(SpecError, match="address"):
        engine_spec(profile, name="engine")
    assert command_line(load_profile("llama-q4_k_m"), "/models/annie") == ()


WRONG = {
    "an unknown key": (GOOD.replace("about", "abuot"), "abuot: unknown key; did you mean 'about'?"),
    "an unknown key of a flag": (GOOD.replace("why =", "wy ="), r"flags\[0\].wy: unknown key; did you mean 'why'?"),
    "no reason": (GOOD.replace("Because it is a test.", ""), r"flags\[0\].why: must be a text that is not empty"),
    "an unknown source": (GOOD.replace("measured", "hearsay"), r"flags\[0\].source: must be one of notes"),
    "a flag that llama-server does not have": (GOOD.replace("--ctx-size", "--ctx-sise"), "did you mean --ctx-size?"),
    "a value that it cannot have": (GOOD.replace('"512"', '"many"'), "--ctx-size must be a whole number"),
    "a flag twice": (GOOD + GOOD[GOOD.index("[[flags]]") :], r"flags: --ctx-size is given twice"),
    "a flag that vLLM does not have": (GOOD.replace("llama-server", "vllm").replace('"embedded"', '"docker"\nimage = "a:1"').replace("--ctx-size", "--max-model-length"), "flags: --max-model-length is not a flag of vLLM 0.24.0; did you mean '--max-model-len'?"),
    "an address without a command": (GOOD.replace('"embedded"', '"url"'), "command: is only for the driver url"),
    "no TOML": ("title = ", "mine.toml"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_profile_is_a_line_that_names_the_key(name: str, tmp_path: Path) -> None:
    text, why = WRONG[name]
    with pytest.raises(ProfileError, match=why) as caught:
        load_profile(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_profile_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(ProfileError, match="no such profile; did you mean 'hopper-w4a16'?"):
        load_profile("hoper-w4a16")
    with pytest.raises(ProfileError, match="No such file"):
        load_profile("none.toml")


@pytest.mark.parametrize("name", shipped())
def test_a_profile_is_printed_as_a_table_that_means_the_same(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = load_profile(name)
    image = ["--image", f"{profile.image}{PIN}"] if profile.image else []
    assert print_profile([name, "--name", "it", "--artefact", "models/m", *image]) == 0
    table = tomllib.loads(capsys.readouterr().out)["engines"]["it"]
    assert (table["dialect"], table["driver"]) == (profile.dialect, profile.driver)
    assert tuple(table.get("args", ())) == (() if profile.driver == "url" else profile.args)
    assert table.get("image") == (f"{profile.image}{PIN}" if profile.image else None)


def test_all_profiles_are_listed_with_what_was_run_and_a_wrong_name_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert print_profile([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in shipped())
    assert print_profile(["vllm-nvfp4"]) == 64
    assert capsys.readouterr().err.count("\n") == 1


def test_vllm_flags_are_known_in_every_spelling_that_vllm_takes() -> None:
    words = [
        "--max_model_len=4",
        "--no-enable-prefix-caching",
        "--speculative-config.method",
        "mtp",
        "-tp",
        "1",
    ]
    assert vllm.odd_flag(words) is None
    assert vllm.odd_flag(["--frobnicate-xyzzy"]) == ("--frobnicate-xyzzy is not a flag of vLLM 0.24.0")
