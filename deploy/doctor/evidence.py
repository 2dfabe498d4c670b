"""The facts that the doctor judges: a host, its images, its models and a configuration. Values, and their JSON.

None means "unknown": a command was missing, a file was not readable, or the fact was not collected. An empty tuple or
text means that there is nothing. Sizes are bytes. `deploy.doctor.collectors` collects the facts; saved to a file
(`manners doctor --save FILE`), they can be judged on another machine (`--evidence FILE`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gates.decode import decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of nvidia-smi; `capability` is its compute capability, such as "12.1"."""

    name: str
    capability: str | None = None
    driver: str | None = None
    persistent: bool | None = None


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
    """The machine.

    `memory_*` are /proc/meminfo's, for nvidia-smi has no memory on a GB10. `nvccs` are in the order in
    which a build finds them: PATH first. `disk_free` is of the folder that Docker keeps images in.
    `journal` are this boot's kernel lines that name an Xid or NV_ERR_NO_MEMORY.
    """

    architecture: str | None = None
    kernel: str | None = None
    gpus: tuple[Gpu, ...] | None = None
    gpu_processes: tuple[str, ...] | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    swaps: tuple[Swap, ...] | None = None
    toolkit: str | None = None
    cdi: tuple[str, ...] | None = None
    docker: str | None = None
    uid: int | None = None
    disk_free: int | None = None
    journal: tuple[str, ...] | None = None
    time_synchronized: bool | None = None
    monotonic: bool | None = None
    nvccs: tuple[Nvcc, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """An `[engines.NAME]` table as written in the file, valid or not.

    `pin` is the tag's entry in engines.lock; None if it has none. `executable`: whether the program of `command` was
    found and may be executed.
    """

    dialect: str = ""
    driver: str = ""
    image: str | None = None
    pin: str | None = None
    gpu: str | None = None
    args: tuple[str, ...] = ()
    url: str | None = None
    artefact: str | None = None
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    executable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageContents:
    """What a container of an image reported; "" means that a part is missing.

    `torch_archs` are torch's, as it lists them; `flashinfer_archs` those of FlashInfer's compiled
    kernels; `ggml_archs` those that llama.cpp prints at its start, as "1210".
    """

    cuda: str | None = None
    torch_archs: tuple[str, ...] | None = None
    vllm: str | None = None
    transformers: str | None = None
    flashinfer: str | None = None
    flashinfer_jit_cache: str | None = None
    flashinfer_archs: tuple[str, ...] | None = None
    nvcc: str | None = None
    ptxas: str | None = None
    llama: str | None = None
    ggml_archs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """An image in the local store."""

    present: bool | None = None
    digests: tuple[str, ...] | None = None
    architecture: str | None = None
    size: int | None = None
    inside: ImageContents | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file of a model folder; `mode` are its permission bits."""

    size: int
    uid: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFacts:
    """A GGUF's header. `file_type` is llama.cpp's number: 15 is Q4_K_M, 32 is BF16.

    `context` is the longest that it was trained for, in tokens; `kv_values` what a token puts into the
    K cache, over all layers.
    """

    architecture: str | None = None
    file_type: int | None = None
    context: int | None = None
    kv_values: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model's folder, or its one GGUF.

    `sealed` is the root digest of its artefact.json, "" without one; `broken` how the files differ
    from it. `quant_algo` is hf_quant_config.json's and `config_quant_algo` config.json's. `calls` is
    the form of tool calls that the chat template asks for. `unreadable` names a JSON that is none.
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
    kv_cache_quant_algo: str | None = None
    tokenizer_class: str | None = None
    template: bool | None = None
    calls: str | None = None
    thinking_switch: bool | None = None
    generation: bool | None = None
    gguf: GgufFacts | None = None
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """The configuration without its engines.

    `error` is why the file does not load. `together` are the engines that run at the same time. `keys`
    counts the callers' keys, `weak` says what is wrong with some of them (never the key). `secrets`
    are files with secrets and their permission bits. `filesystem` is of the state folder, `locks` whether fsync and flock
    worked there. `slo` are the alert rules' bounds, `buckets` the histogram's, in seconds; `shown` are
    metrics that dashboards and rules ask for, `exported` those that the gateway has. `calls` are tool
    calls that a running gateway has counted, by engine and by who found them ("engine", "rescued").
    """

    file: str = ""
    error: str | None = None
    listen: str | None = None
    admin: str | None = None
    together: tuple[str, ...] = ()
    keys: int | None = None
    weak: tuple[str, ...] = ()
    secrets: Mapping[str, int] = field(default_factory=dict)
    state: str | None = None
    filesystem: str | None = None
    locks: bool | None = None
    slo: tuple[float, ...] | None = None
    buckets: tuple[float, ...] = ()
    shown: tuple[str, ...] | None = None
    exported: tuple[str, ...] = ()
    calls: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All facts. `images` and `models` are by engine name; `about` is a description for people."""

    about: str = ""
    host: HostFacts = HostFacts()
    engines: Mapping[str, EngineFacts] = field(default_factory=dict)
    images: Mapping[str, ImageFacts] = field(default_factory=dict)
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    setting: ConfigFacts = ConfigFacts()


def parse(text: str) -> Evidence:
    """Evidence from its JSON. Raises gates.decode.decoder.Refused with the key's path, or ValueError."""
    return decoder.read(Evidence, json.loads(text))


def render(evidence: Evidence) -> str:
    """Evidence as JSON, without unknown values."""
    return json.dumps(_known(asdict(evidence)), indent=1, ensure_ascii=False) + "\n"


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(inner) for key, inner in value.items() if inner is not None}
    return [_known(inner) for inner in value] if isinstance(value, tuple) else value
