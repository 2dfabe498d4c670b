"""A real llama.cpp that sees: annie-nano beside a projector with random weights, as the embedded engine serves both."""

import shutil
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
gguf = pytest.importorskip("gguf", reason=INSTALL)
pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")

import numpy as np  # noqa: E402

from app.config.config import parse  # noqa: E402
from deploy.engine.samples import SAMPLES  # noqa: E402
from tests.app.house import run  # noqa: E402
from tests.scripted_engine import ScriptedEngine  # noqa: E402

pytestmark = pytest.mark.engine
ANNIE = Path(__file__).parents[2] / "models" / "annie-nano-q4_k_m"
HIDDEN, WIDTH, UP, LAYERS, PATCH, SIDE = 256, 32, 64, 2, 8, 32
PATCHES = (SIDE // PATCH) ** 2
ASK = {"type": "text", "text": "What is the capital of Japan?"}


def projector(path: Path) -> None:
    """LLaVA's: a CLIP of two layers, and two matrices into the model's width."""
    random = np.random.default_rng(0)
    file = gguf.GGUFWriter(str(path), "clip")
    file.add_bool("clip.has_vision_encoder", True)
    file.add_bool("clip.use_gelu", True)
    file.add_string("clip.projector_type", "mlp")
    numbers = {"image_size": SIDE, "patch_size": PATCH, "embedding_length": WIDTH, "feed_forward_length": UP}
    numbers |= {"projection_dim": HIDDEN, "block_count": LAYERS, "attention.head_count": 2}
    for name, number in numbers.items():
        file.add_uint32(f"clip.vision.{name}", number)
    file.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        file.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])

    def weight(name: str, *shape: int) -> None:
        file.add_tensor(name, random.normal(0, 0.05, shape).astype(np.float32))

    def layer(name: str, out: int, inner: int) -> None:
        weight(f"{name}.weight", out, inner)
        file.add_tensor(f"{name}.bias", np.zeros(out, np.float32))

    def norm(name: str) -> None:
        file.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
        file.add_tensor(f"{name}.bias", np.zeros(WIDTH, np.float32))

    weight("v.class_embd", WIDTH)
    weight("v.patch_embd.weight", WIDTH, 3, PATCH, PATCH)
    weight("v.position_embd.weight", PATCHES + 1, WIDTH)
    norm("v.pre_ln")
    for block in (f"v.blk.{number}" for number in range(LAYERS)):
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            layer(f"{block}.{name}", WIDTH, WIDTH)
        for name in ("ln1", "ln2"):
            norm(f"{block}.{name}")
        layer(f"{block}.ffn_up", UP, WIDTH)
        layer(f"{block}.ffn_down", WIDTH, UP)
    layer("mm.0", HIDDEN, WIDTH)
    layer("mm.2", HIDDEN, HIDDEN)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


async def test_an_image_reaches_the_model_as_its_patches(tmp_path: Path) -> None:
    folder = tmp_path / "seeing"
    shutil.copytree(ANNIE, folder)
    projector(folder / "mmproj-tiny.gguf")
    tables: dict[str, Any] = {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(tmp_path)},
        "engines": {"nano": {"dialect": "llama-server", "driver": "embedded", "artefact": str(folder)}},
        "models": {"annie": {"live": "nano"}},
    }
    async with run(parse(tables, tmp_path), ScriptedEngine()) as home:

        async def tokens(*parts: Any) -> int:
            answer = await home.ask(messages=[{"role": "user", "content": [*parts]}], max_tokens=4)
            assert answer.status == 200, answer.raw
            return int(answer.json["usage"]["prompt_tokens"])

        assert await tokens(SAMPLES["image"], ASK) - await tokens(ASK) == PATCHES
        broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}}
        for part, said in ((SAMPLES["audio"], "takes sounds"), (broken, "Failed to load image")):
            answer = await home.ask(messages=[{"role": "user", "content": [part, ASK]}])
            assert answer.status == 400 and said in answer.error["message"]
        assert await tokens(ASK)  # and the engine is well
