"""What a plan has to know of a model, from config.json and the headers of its shards."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quantizer.checkpoint.source import by_expert, require_config
from quantizer.core.errors import SourceError
from quantizer.core.expert_names import unwrapped_name
from quantizer.layers.selection import DELTANET, layer_index
from quantizer.verify.folder import Folder, open_intact_folder

NOT_LOADED: Final = ("mtp.", "model.mtp.", "model.visual.", "visual.")
"""Parts that the text model does not load: they are copied from file to file."""
HEAD: Final = "lm_head.weight"
EMBEDDING: Final = "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A text model by its sizes.

    tensors: the shapes of what is loaded, by name in memory, without a tied head. stored: bytes of all tensors of the folder;
    carried: of those that are not loaded. intermediate: of the MLP, or of the experts that one token sees. packed: it is quantized.
    """

    kind: str
    tensors: Mapping[str, tuple[int, ...]]
    tied: bool
    stored: int
    carried: int
    width: int
    intermediate: int
    vocabulary: int
    heads: int
    key_heads: int
    head_size: int
    attention_layers: int
    deltanet_layers: int
    deltanet_width: int
    packed: bool = False

    @property
    def layers(self) -> int:
        """The number of decoder layers."""
        return self.attention_layers + self.deltanet_layers

    @property
    def parameters(self) -> int:
        """Of the text model as it is loaded."""
        return sum(math.prod(shape) for shape in self.tensors.values())

    @property
    def vectors(self) -> int:
        """Those of them that are in vectors: norms, biases, decays."""
        return sum(math.prod(shape) for shape in self.tensors.values() if len(shape) < 2)

    @property
    def head(self) -> int:
        """Elements of the matrix that makes logits."""
        return self.vocabulary * self.width

    @property
    def largest(self) -> int:
        """Elements of the largest tensor."""
        return max(math.prod(shape) for shape in self.tensors.values())

    @property
    def largest_inside(self) -> int:
        """Elements of the largest tensor of a decoder layer."""
        return max(
            (math.prod(shape) for name, shape in self.tensors.items() if layer_index(name) is not None),
            default=0,
        )

    @property
    def largest_layer(self) -> int:
        """Elements of the largest decoder layer."""
        sums: dict[int, int] = {}
        for name, shape in self.tensors.items():
            if (index := layer_index(name)) is not None:
                sums[index] = sums.get(index, 0) + math.prod(shape)
        return max(sums.values(), default=0)

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """Linear layers by module name, with rows and columns; a tied head included, as in memory."""
        found = {
            name.removesuffix(".weight"): (shape[0], shape[1])
            for name, shape in self.tensors.items()
            if len(shape) == 2 and name.endswith(".weight") and name != EMBEDDING
        }
        return {**found, **({"lm_head": (self.vocabulary, self.width)} if self.tied else {})}

    @property
    def matrices(self) -> list[str]:
        """Names of all modules with a matrix."""
        named = [n.removesuffix(".weight") for n, shape in self.tensors.items() if len(shape) > 1]
        return [*named, *(["lm_head"] if self.tied else [])]


def read_model(path: Path) -> PlannedModel:
    """Read a folder's config.json and the headers of its shards. Raises SourceError with one line."""
    folder = open_intact_folder(path)
    require_config(path, folder.config)
    try:
        return make_model(by_expert(folder))
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from None


def make_model(folder: Folder) -> PlannedModel:
    """From a folder with experts one by one. Raises SourceError as `read_model`, without the path."""
    text, entries = folder.text_config, folder.tensors
    loaded = {unwrapped_name(n): e.shape for n, e in entries.items() if not n.startswith(NOT_LOADED)}
    embedding = loaded.get(EMBEDDING)
    if embedding is None or len(embedding) != 2:
        raise SourceError(f"holds no matrix {EMBEDDING}")
    tied = bool(text.get("tie_word_embeddings")) or HEAD not in loaded
    if tied:
        loaded.pop(HEAD, None)
    layers, deltanet = _whole(text, "num_hidden_layers"), _deltanet_layers(loaded)
    heads = _whole(text, "num_attention_heads")
    values = _whole(text, "linear_num_value_heads", 0) * _whole(text, "linear_value_head_dim", 128)
    return PlannedModel(
        kind=str(folder.config.get("model_type")),
        tensors=loaded,
        tied=tied,
        stored=sum(entry.bytes for entry in entries.values()),
        carried=sum(entry.bytes for name, entry in entries.items() if name.startswith(NOT_LOADED)),
        width=embedding[1],
        intermediate=_intermediate(text),
        vocabulary=embedding[0],
        heads=heads,
        key_heads=_whole(text, "num_key_value_heads", heads),
        head_size=_whole(text, "head_dim", embedding[1] // heads),
        attention_layers=max(0, layers - deltanet),
        deltanet_layers=deltanet,
        deltanet_width=values if deltanet else 0,
        packed="quantization_config" in folder.config,
    )


def _intermediate(text: Mapping[str, Any]) -> int:
    """The numbers between gate and down that a token needs: of as many experts as it sees."""
    if "moe_intermediate_size" not in text:
        return _whole(text, "intermediate_size")
    return _whole(text, "moe_intermediate_size") * _whole(text, "num_experts_per_tok")


def _deltanet_layers(names: Mapping[str, Any]) -> int:
    return len({name.partition(f".{DELTANET}.")[0] for name in names if f".{DELTANET}." in name})


def _whole(text: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A positive whole number of the configuration. Raises SourceError for anything else."""
    value = text.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or not 0 < value < 2**40:
        raise SourceError(f"config.json: {key} must be a positive whole number, not {value!r:.40}")
    return value
