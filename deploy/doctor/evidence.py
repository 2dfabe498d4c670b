"""The facts that the doctor judges. None is "unknown", an empty tuple or text is "nothing"; sizes are bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of nvidia-smi; `capability` is its compute capability, such as "12.1"."""

    name: str
    capability: str | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A line of /proc/swaps."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvcc:
    """A CUDA compiler on the host, and the release that it names."""

    path: str
    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The machine. `memory_*` are from /proc/meminfo; `nvccs` are in the order in which a build finds them;
    `disk_free` is of Docker's folder of images.
    """

    architecture: str | None = None
    kernel: str | None = None
    gpus: tuple[Gpu, ...] | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    swaps: tuple[Swap, ...] | None = None
    toolkit: str | None = None
    docker: str | None = None
    uid: int | None = None
    disk_free: int | None = None
    nvccs: tuple[Nvcc, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """An `[engines.NAME]` table as written, valid or not. `pin`: the tag's entry in engines.lock."""

    dialect: str = ""
    driver: str = ""
    image: str | None = None
    pin: str | None = None
    gpu: str | None = None
    args: tuple[str, ...] = ()
    artefact: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """An image. `architecture`, `size` and `cuda` (its release): unknown if it is not in the local store. `vllm`: the version in its name."""

    architecture: str | None = None
    size: int | None = None
    cuda: str | None = None
    vllm: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file of a model folder; `mode` are its permission bits."""

    size: int
    uid: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFacts:
    """A GGUF's header. `file_type` is llama.cpp's number; `kv_values` is what a token puts into the K cache, over all layers."""

    architecture: str | None = None
    file_type: int | None = None
    context: int | None = None
    kv_values: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model's folder, or its one GGUF.

    `sealed` is the root digest of its artefact.json, "" without one; `broken` what is wrong with it. `quant_algo` is
    from hf_quant_config.json, `config_quant_algo` and other exporters' `quant_format` from config.json. `calls`: the form that the chat template asks for.
    """

    path: str
    files: Mapping[str, FileFacts] | None = None
    sealed: str | None = None
    broken: tuple[str, ...] | None = None
    model_type: str | None = None
    architectures: tuple[str, ...] = ()
    auto_map: bool = False
    quant_algo: str | None = None
    config_quant_algo: str | None = None
    quant_format: str | None = None
    kv_cache_quant_algo: str | None = None
    tokenizer_class: str | None = None
    template: bool | None = None
    calls: str | None = None
    thinking_switch: bool | None = None
    gguf: GgufFacts | None = None
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """The configuration without its engines.

    `together`: the engines that run at the same time. `weak`: what is wrong with callers' keys.
    """

    file: str = ""
    error: str | None = None
    listen: str | None = None
    admin: str | None = None
    together: tuple[str, ...] = ()
    keys: int | None = None
    weak: tuple[str, ...] = ()
    state: str | None = None
    filesystem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All facts. `images` and `models` are by engine name; `about` is a description for people."""

    about: str = ""
    host: HostFacts = HostFacts()
    engines: Mapping[str, EngineFacts] = field(default_factory=dict)
    images: Mapping[str, ImageFacts] = field(default_factory=dict)
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    setting: ConfigFacts = ConfigFacts()
