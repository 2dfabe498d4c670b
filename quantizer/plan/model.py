"""What a plan has to know of a model, from config.json and the headers of its shards; torch is not imported."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quantizer.core.errors import SourceError
from quantizer.core.expert_names import separate_tensor, unwrapped_name
from quantizer.core.json_file import read_object
from quantizer.core.safetensors_header import HeaderEntry, is_file_name, read_header
from quantizer.layers.selection import DELTANET, layer_index

NOT_LOADED: Final = ("mtp.", "model.mtp.", "model.visual.", "visual.")
"""Parts that the text model does not load: they are copied from file to file."""
HEAD: Final = "lm_head.weight"
EMBEDDING: Final = "model.embed_tokens.weight"
_INDEX: Final = "model.safetensors.index.json"


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
    mtp: bool = False
    packed: bool = False

    @property
    def layers(self) -> int:
        """The number of decoder layers."""
        return self.attention_layers + self.deltanet_layers

    @property
    def parameters(self) -> int:
        """Of the text model as it is loaded."""
        return sum(count(shape) for shape in self.tensors.values())

    @property
    def vectors(self) -> int:
        """Those of them that are in vectors: norms, biases, decays."""
        return sum(count(shape) for shape in self.tensors.values() if len(shape) < 2)

    @property
    def head(self) -> int:
        """Elements of the matrix that makes logits."""
        return self.vocabulary * self.width

    @property
    def largest(self) -> int:
        """Elements of the largest tensor."""
        return max(count(shape) for shape in self.tensors.values())

    @property
    def largest_inside(self) -> int:
        """Elements of the largest tensor of a decoder layer."""
        return max(
            (count(shape) for name, shape in self.tensors.items() if layer_index(name) is not None), default=0
        )

    @property
    def largest_layer(self) -> int:
        """Elements of the largest decoder layer."""
        sums: dict[int, int] = {}
        for name, shape in self.tensors.items():
            if (index := layer_index(name)) is not None:
                sums[index] = sums.get(index, 0) + count(shape)
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
    if not path.is_dir():
        raise SourceError(f"{path}: no such folder")
    config = _json(path / "config.json")
    entries: dict[str, HeaderEntry] = {}
    for shard in _shards(path):
        entries |= read_header(path / shard)
    try:
        return make_model(config, entries)
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from None


def make_model(config: Mapping[str, Any], entries: Mapping[str, HeaderEntry]) -> PlannedModel:
    """From a configuration and the tensors of all shards. Raises SourceError as `read_model`, without the path."""
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, dict) else dict(config)
    loaded = {
        name: shape
        for n, e in entries.items()
        if not n.startswith(NOT_LOADED)
        for name, shape in (
            [(unwrapped_name(n), e.shape)]
            if f"{n}_bias" in entries
            else _by_expert(unwrapped_name(n), e.shape)
        )
    }
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
        kind=str(config.get("model_type")),
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
        packed="quantization_config" in config,
        mtp=any(name.startswith(NOT_LOADED[:2]) for name in entries),
    )


def _by_expert(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A tensor, or those of the experts that are stacked in it."""
    parts = list(separate_tensor(name, shape))
    for part, _, rows in parts:
        yield part, (rows.stop - rows.start, shape[2])
    if not parts:
        yield name, shape


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


def count(shape: tuple[int, ...]) -> int:
    """The elements of a tensor."""
    numbers = 1
    for size in shape:
        numbers *= size
    return numbers


def _shards(path: Path) -> list[str]:
    """The names of the folder's shards, from its index if it has one."""
    if not (path / _INDEX).is_file():
        found = sorted(file.name for file in path.glob("*.safetensors"))
        if not found:
            raise SourceError(f"{path}: there is no safetensors file")
        return found
    index = _json(path / _INDEX).get("weight_map")
    names = set(index.values()) if isinstance(index, dict) else set()
    if not names or not all(map(is_file_name, names)):
        raise SourceError(f"{path / _INDEX}: weight_map must map tensors to files of the folder")
    return sorted(names)


def _json(path: Path) -> dict[str, Any]:
    """An object from a JSON file. Raises SourceError."""
    if not path.exists():
        raise SourceError(f"{path.parent}: there is no {path.name}; a Hugging Face model folder is needed")
    return read_object(path)
