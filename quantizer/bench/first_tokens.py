"""Does a real engine say what the bytes of a folder stand for? Ask it for tokens, and look where they stand among the
likeliest of our own reading of the same bytes.

    python -m quantizer.bench.first_tokens ask-vllm FOLDER SAID.json      # with vLLM's Python: needs only that
    python -m quantizer.bench.first_tokens judge FOLDER SAID.json         # an NVFP4 folder
    python -m quantizer.bench.first_tokens judge FILE.gguf SAID.json --source DIR
    python -m quantizer.bench.first_tokens ask-llama-cpp FILE.gguf SAID.json --source DIR

Prompts are random tokens, so any tokenizer will do. The reader has one decoder layer in memory at a time. An NVFP4 folder
is read twice: with inputs rounded, and without, as weight-only kernels compute it (vLLM's on a GPU without FP4). Exit code
1 if a reply is what neither says.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor, nn

PROMPTS: Final = 4
LENGTH: Final = 24
REPLY: Final = 8
SEED: Final = 20261123
TOKENIZER: Final = 2000
ROWS: Final = 2048
EMBEDDING: Final = "model.embed_tokens.weight"
NEAR: Final = 0.05
"""A token that is not the likeliest may lag behind it by this share of the logits' range at that place: engines round
what they multiply by, where a random model's first two often lie closer together."""


def prompts(vocabulary: int) -> list[list[int]]:
    """Random tokens that the tokenizer of the nano models has, too: engines refuse others."""
    draw = random.Random(SEED)
    return [[draw.randrange(min(vocabulary, TOKENIZER)) for _ in range(LENGTH)] for _ in range(PROMPTS)]


def ask_vllm(folder: Path) -> list[dict[str, Any]]:
    """Greedy tokens of vLLM, in this process."""
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]  # in an environment of its own

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    vocabulary = config.get("text_config", config)["vocab_size"]
    engine = LLM(
        model=str(folder),
        dtype="bfloat16",
        enforce_eager=True,
        max_num_seqs=PROMPTS,
        max_model_len=1024,
        gpu_memory_utilization=0.5,
        gdn_prefill_backend="triton",
        language_model_only="text_config" in config,
    )
    settings = SamplingParams(temperature=0.0, max_tokens=REPLY, ignore_eos=True, detokenize=False)
    asked = prompts(vocabulary)
    made = engine.generate([{"prompt_token_ids": prompt} for prompt in asked], settings)
    return [
        {"prompt": prompt, "reply": list(one.outputs[0].token_ids)}
        for prompt, one in zip(asked, made, strict=True)
    ]


def ask_llama_cpp(file: Path, vocabulary: int) -> list[dict[str, Any]]:
    """Greedy tokens of llama.cpp's server, in a child process."""
    import os

    from quantizer.bench.llama_server import post, serving

    found = []
    with serving(file, 1, 512, threads=os.cpu_count() or 2) as base:
        for prompt in prompts(vocabulary):
            body = {
                "prompt": prompt,
                "n_predict": REPLY,
                "temperature": 0,
                "return_tokens": True,
                "ignore_eos": True,
            }
            found.append({"prompt": prompt, "reply": post(base, "/completion", body)["tokens"]})
    return found


def judge(said: list[dict[str, Any]], model: nn.Module, device: str) -> dict[str, Any]:
    """Where each token stands among the likeliest, given what was said before it. model: of `served_model` or
    `gguf_model`."""
    import torch

    from quantizer.checkpoint.streamed import head_parts
    from quantizer.core.batch import Batch
    from quantizer.ptq.parity import outputs

    rows = torch.tensor([one["prompt"] + one["reply"] for one in said])
    batch = Batch(rows, rows, torch.ones_like(rows, dtype=torch.bool)).to(device)
    hidden = outputs(model, [batch])[0][:, LENGTH - 1 : -1].float()
    head_input = getattr(model, "head_input", None)
    hidden = head_input(hidden) if head_input else hidden
    with torch.no_grad():
        parts = [hidden @ part.float().T for part in head_parts(model.get_submodule("lm_head"))]
    logits = torch.cat(parts, dim=-1)  # [prompts, tokens, vocabulary]: 32 tokens in all
    own = logits.gather(-1, rows[:, LENGTH:, None].to(device))
    best, least = logits.amax(-1, keepdim=True), logits.amin(-1, keepdim=True)
    lags = ((best - own) / (best - least)).squeeze(-1)
    return {
        "places": (logits > own).sum(-1).tolist(),
        "lags": [[round(float(lag), 4) for lag in row] for row in lags],
        "likeliest": bool((lags <= NEAR).all()),
    }


def gguf_model(source: Path, file: Path, device: str) -> nn.Module:
    """The model that a GGUF file stands for, in float32, with the inputs of its K-quantized matrices rounded as llama.cpp
    rounds them on a CPU. source: the folder that it was made of, for its shape."""
    import torch

    from quantizer.checkpoint.source import open_source, skeleton
    from quantizer.checkpoint.streamed import stream
    from quantizer.core.layerwise import LAYERS, decoder_layers
    from quantizer.ptq.parity import ServedLayer, ServedLayers

    opened = open_source(source)
    model = skeleton(opened, torch.float32)
    held: Any = GgufTensors(file, opened)
    names = {name: name for name, _ in model.named_parameters()}

    class StreamedLayers(ServedLayers):
        def _load(self, index: int) -> nn.Module:
            layer = super()._load(index)
            for name, part in layer.named_modules():
                if isinstance(part, torch.nn.Linear) and (
                    change := held.input_of(f"{LAYERS}.{index}.{name}.weight")
                ):
                    part.register_forward_pre_hook(lambda _, args, change=change: change(args[0]))
            return layer

    layers = StreamedLayers(held, decoder_layers(model), names, device)
    every = [ServedLayer(layers, index) for index in range(len(layers.empty))]
    model.set_submodule(LAYERS, torch.nn.ModuleList(every))
    made = stream(model, held, names, device)
    made.head_input = held.input_of("lm_head.weight" if "lm_head.weight" in names else EMBEDDING)
    return made


def round_to_q8_k(x: Tensor) -> Tensor:
    """Rounded as llama.cpp rounds what it multiplies by a K-quantized matrix on a CPU: eight bits and a scale for each 256
    numbers of a row, float [..., columns] to the same.

    Source: ggml/src/ggml-quants.c, quantize_row_q8_K_ref.
    """
    import torch

    parts = x.float().unflatten(-1, (-1, 256))
    place = parts.abs().argmax(dim=-1, keepdim=True)
    step = parts.gather(-1, place) / -127
    codes = torch.where(step == 0, 0.0, (parts / step).round().clamp(max=127))
    return (codes * step).flatten(-2).to(x.dtype)


class GgufTensors:
    """A GGUF file as `Folder` would show it: the tensors of the model by their names in transformers, as they are after
    dequantizing. It has no NVFP4 layer."""

    tensors: Final[dict[str, Any]] = {}
    unread: Final[frozenset[str]] = frozenset()

    def __init__(self, file: Path, source: Any) -> None:
        from gguf import GGUFReader

        from quantizer.gguf.arch import architecture

        config = source.config
        inner = config.get("text_config")
        self.arch = architecture({**config, **(inner if isinstance(inner, dict) else {})})
        self.held = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
        self.shapes = {bare: source.folder.tensors[name].shape for bare, name in source.names.items()}

    def input_of(self, name: str) -> Callable[[Tensor], Tensor] | None:
        """What llama.cpp does to the input of a matrix before it multiplies; None: nothing that is known here."""
        place = self.arch.place(name)
        if place is None or not self.held[place.name].tensor_type.name.endswith("_K"):
            return None
        if place.columns is None:
            return round_to_q8_k
        order, back = place.columns, place.columns.argsort()
        return lambda x: round_to_q8_k(x[..., order.to(x.device)])[..., back.to(x.device)]

    def copy(self, name: str, device: Any = "cpu", dtype: Any = None) -> Tensor:
        import torch

        place = self.arch.place(name)
        assert place is not None
        data = self.held[place.name].data
        with ThreadPoolExecutor() as pool:
            made = torch.cat(
                list(pool.map(lambda first: self._slice(place.name, first), range(0, len(data), ROWS)))
            )
        if place.rows is not None:
            made = made[place.rows.argsort()]
        if place.columns is not None:
            made = made[:, place.columns.argsort()]
        if name.endswith("A_log"):
            made = torch.log(-made)
        elif place.numbers is not None and name.endswith("norm.weight"):
            made = made - 1
        return made.reshape(self.shapes[name]).to(device)

    def parts(self, name: str, rows: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        place = self.arch.place(name)
        assert place is not None and place.rows is None
        count = len(self.held[place.name].data)
        for first in range(0, count, rows or ROWS):
            some = slice(first, min(first + (rows or ROWS), count))
            yield some, self._slice(place.name, first, rows or ROWS)

    def _slice(self, name: str, first: int, rows: int = ROWS) -> Tensor:
        """Some rows, dequantized: float32."""
        import gguf
        import torch

        tensor = self.held[name]
        return torch.from_numpy(gguf.dequantize(tensor.data[first : first + rows], tensor.tensor_type).copy())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m quantizer.bench.first_tokens",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", choices=("ask-vllm", "ask-llama-cpp", "judge"))
    parser.add_argument("model", type=Path, help="a folder, or a GGUF file")
    parser.add_argument("said", type=Path, help="what the engine said, JSON")
    parser.add_argument("--source", type=Path, help="the folder that a GGUF file was made of")
    given = parser.parse_args(arguments)
    if given.verb == "ask-vllm":
        said = ask_vllm(given.model)
    elif given.verb == "ask-llama-cpp":
        config = json.loads((given.source / "config.json").read_text(encoding="utf-8"))
        said = ask_llama_cpp(given.model, config.get("text_config", config)["vocab_size"])
    else:
        from quantizer.core.cost import default_device
        from quantizer.ptq.parity import served_model

        device, said = default_device(), json.loads(given.said.read_text(encoding="utf-8"))
        if given.model.suffix == ".gguf":
            found = {"as the file": judge(said, gguf_model(given.source, given.model, device), device)}
        else:
            found = {
                "inputs rounded": judge(said, served_model(given.model, device), device),
                "weight only": judge(said, served_model(given.model, device, weight_only=True), device),
            }
        print(json.dumps(found))
        return 0 if any(one["likeliest"] for one in found.values()) else 1
    given.said.write_text(json.dumps(said) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
