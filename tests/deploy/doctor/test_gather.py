"""The doctor's edges: what programs print becomes facts, and what is missing stays unknown."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.core.errors import DockerError
from deploy.doctor.collectors import configuration, host, image, model
from deploy.doctor.evidence import EngineFacts, Gpu, ImageFacts
from deploy.drivers import docker_client

DIGEST = "sha256:" + "ab" * 32


# --------------------------------------------------------------------------------------------- host


def test_nvidia_smi_of_a_gb10_has_no_memory_and_is_read_all_the_same() -> None:
    text = "NVIDIA GB10, 12.1, 580.159.03\n"
    assert host.gpus(text) == (Gpu(name="NVIDIA GB10", capability="12.1", driver="580.159.03"),)
    odd = host.gpus("NVIDIA GB10, [N/A], 580.1\n")
    assert odd == (Gpu(name="NVIDIA GB10", capability=None, driver="580.1"),)


def test_a_missing_program_is_not_known_and_an_empty_answer_is_nothing() -> None:
    assert host.gpus(None) is None and host.gpus("") == ()


# -------------------------------------------------------------------------------------------- image


class Docker(docker_client.Docker):
    """A daemon with one image, or one that does not answer."""

    def __init__(self, *, answers: bool = True) -> None:
        super().__init__()
        self.answers = answers

    async def version(self) -> dict[str, Any]:
        if not self.answers:
            raise DockerError("the Docker Engine does not answer")
        return {"Version": "28.5.1"}

    async def image(self, reference: str) -> dict[str, Any] | None:
        settings = {"Env": ["PATH=/bin", "CUDA_VERSION=13.0.1"]}
        held = {
            "RepoTags": ["vllm/vllm-openai:v0.24.0-x"],
            "Architecture": "arm64",
            "Size": 5,
            "Config": settings,
        }
        return held if reference.endswith(DIGEST) else None


@pytest.mark.parametrize(
    ("image_name", "pin", "found"),
    [
        (f"vllm/vllm-openai@{DIGEST}", None, ImageFacts(architecture="arm64", size=5, cuda="13.0.1", vllm="0.24.0")),
        ("vllm/vllm-openai:v0.25.0", DIGEST, ImageFacts(architecture="arm64", size=5, cuda="13.0.1", vllm="0.25.0")),
        ("vllm/vllm-openai:v0.25.0", None, ImageFacts(vllm="0.25.0")),
        ("vllm/vllm-openai:cu130-nightly", None, ImageFacts()),
        ("host:5000/x:latest", None, ImageFacts()),
    ],
)  # fmt: skip
async def test_an_image_is_known_by_its_name_and_by_what_docker_holds(
    image_name: str, pin: str | None, found: ImageFacts
) -> None:
    engine = EngineFacts(dialect="vllm", driver="docker", image=image_name, pin=pin)
    assert await image.images({"it": engine}, Docker()) == ("28.5.1", {"it": found})


async def test_a_daemon_that_does_not_answer_leaves_the_name() -> None:
    engine = EngineFacts(dialect="vllm", driver="docker", image="vllm/vllm-openai:v0.24.0", pin=DIGEST)
    assert await image.images({"it": engine}, Docker(answers=False)) == (
        None,
        {"it": ImageFacts(vllm="0.24.0")},
    )


# -------------------------------------------------------------------------------------------- model


def test_an_old_and_a_broken_folder_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    assert model.model(tmp_path / "nowhere").files == {}
    (tmp_path / "config.json").write_text("{", "utf-8")
    config = {"chat_template": "<tool_call><function=", "tokenizer_class": "TokenizersBackend"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    found = model.model(tmp_path)
    assert (found.unreadable, found.calls, found.sealed) == (("config.json",), "xml", "")
    assert (found.tokenizer_class, found.thinking_switch) == ("TokenizersBackend", False)


# ------------------------------------------------------------------------------------------ setting


def test_engines_are_read_from_a_file_that_does_not_load(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(
        '[engines.far]\ndialect="vllm"\ndriver="docker"\nimage="a/b:nightly"\nargs=["--x"]\nartefact="m"\n'
        '[models.annie]\nlive="far"\nfallback=["near", "far"]\n',
        "utf-8",
    )
    found = configuration.engines(configuration.tables(path), tmp_path)
    assert found == {
        "far": EngineFacts(
            dialect="vllm", driver="docker", image="a/b:nightly", args=("--x",), artefact=str(tmp_path / "m")
        )
    }
    assert configuration.together(configuration.tables(path)) == ("far", "near")
    (tmp_path / "engines.lock").write_text(json.dumps({"images": {"a/b:nightly": f"a/b@{DIGEST}"}}), "utf-8")
    assert configuration.engines(configuration.tables(path), tmp_path)["far"].pin == f"a/b@{DIGEST}"
    path.write_text('[engines.far]\ndriver="docker"\nargs="--x"\n', "utf-8")
    assert configuration.engines(configuration.tables(path), tmp_path)["far"] == EngineFacts(driver="docker")
    path.write_text("[engines", "utf-8")
    assert configuration.engines(configuration.tables(path), tmp_path) == {}


def test_the_filesystem_is_that_of_the_longest_mount(tmp_path: Path) -> None:
    mounts = f"/dev/a / ext4 rw 0 0\nhost:/x {tmp_path.resolve()} nfs4 rw 0 0\n"
    assert configuration.filesystem(tmp_path / "state", mounts) == "nfs4"
    assert configuration.filesystem(Path("/"), mounts) == "ext4"
    assert configuration.filesystem(tmp_path, "") is None


async def test_docker_is_not_asked_where_no_engine_has_an_image() -> None:
    far = {"far": EngineFacts(dialect="vllm", driver="url")}
    assert await image.images(far, Docker(answers=False)) == (None, {})
