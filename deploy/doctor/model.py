"""Checks of each engine's model: what is in its folder, and whether its server can load it. Pure."""

from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

from deploy.core.versions import at_least
from deploy.doctor.evidence import Evidence, ModelFacts
from deploy.doctor.image import NAMED, facts_of
from deploy.doctor.result import CheckResult, engine_check, fail, ok, unknown, warn

UNSAFE: Final = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
NEW_TOKENIZERS: Final = (
    "TokenizersBackend",
    "TokenizersBackendFast",
    "Qwen3_5Tokenizer",
    "Qwen3_5TokenizerFast",
)
"""Classes that transformers 5 writes and transformers 4 does not have (transformers#47553)."""
NVFP4: Final = ("NVFP4", "W4A16_NVFP4")
MIXED: Final = "MIXED_PRECISION"
MIXED_SINCE: Final = "0.18"  # vllm#35047; 0.16 says "Unknown ModelOpt quant algo" (#37854)
W4A16_SINCE: Final = "0.24"
TEXT_SINCE: Final = "0.28"  # vllm#50210, #50355: qwen3_5_text loads without the wrapper
TRANSFORMERS_5_SINCE: Final = "0.20"
FILE_TYPES: Final = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 10: "Q2_K", 14: "Q4_K_S", 15: "Q4_K_M", 17: "Q5_K_M", 18: "Q6_K",
                     32: "BF16", 39: "NVFP4"}  # fmt: skip


def _model(evidence: Evidence, engine: str) -> ModelFacts | None:
    """The engine's model; None for an engine without an artefact."""
    spec = evidence.engines[engine]
    if spec.artefact is None:
        return None
    return evidence.models.get(engine, ModelFacts(path=spec.artefact))


def _folder(evidence: Evidence, engine: str) -> ModelFacts | None:
    """The engine's model if it is an existing Hugging Face folder."""
    model = _model(evidence, engine)
    return model if model and model.files and "config.json" in model.files else None


def _surgery(model: ModelFacts, evidence: Evidence, engine: str) -> str:
    version = facts_of(evidence, engine).vllm or "0.24"
    short = ".".join(version.lstrip("v").split(".")[:2])
    return f"manners quantize surgery {model.path} --out {model.path}-served --for vllm-{short}"


@engine_check("model.files", _model)
def _files(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    if model.files is None:
        return unknown(f"{model.path} cannot be read", f"ls -l {model.path}")
    if not model.files:
        return fail(f"{model.path} is not there", "put the artefact where the configuration names it")
    if bad := sorted(name for name in model.files if name.endswith(UNSAFE)):
        return fail(
            f"{bad[0]}: a pickle runs code when it is loaded", "convert it to safetensors; never load it here"
        )
    weights = [n for n in model.files if n.endswith((".safetensors", ".gguf"))]
    if not weights:
        return fail("no .safetensors and no .gguf", "the folder is not a whole model; export it again")
    size = sum(model.files[name].size for name in weights)
    more = f" and {len(weights) - 1} more" if weights[1:] else ""
    return ok(f"{weights[0]}{more}, {f'{size / 1e9:.1f} GB' if size >= 1e9 else f'{size / 1e6:.1f} MB'}")


@engine_check("model.code", _folder)
def _code(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    found = sorted(name for name in model.files or () if name.endswith(".py"))
    if model.auto_map or found:
        what = "auto_map in a configuration" if model.auto_map else found[0]
        return fail(
            f"{what}: the folder brings code, which vLLM before {MIXED_SINCE} ran unasked (CVE-2026-22807)",
            "take auto_map and the .py files out; a Qwen3 or Qwen3.5 model needs neither",
        )
    return ok("brings no code")


@engine_check("model.sealed", _model)
def _sealed(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    if not model.files:
        return None
    if model.sealed is None:
        return unknown(
            "artefact.json was not looked for", "manners doctor on the machine that holds the files"
        )
    if not model.sealed:
        fix = f"manners gate seal {model.path} --name NAME --format FORMAT"
        return fail("no artefact.json: the gate cannot say what it judged", fix)
    if model.broken:
        fix = "copy the folder again from where it was made; a sealed folder is not edited"
        return fail(f"not what its artefact.json says: {model.broken[0]}", fix)
    return ok(f"{model.sealed[:19]}, {len(model.files)} files")


@engine_check("model.quantization", _folder, dialect="vllm")
def _quantization(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    told = {algo for algo in (model.quant_algo, model.config_quant_algo) if algo}
    if not told:
        return ok("not quantized")
    if len(told) > 1:
        fix = _surgery(model, evidence, engine)
        return fail(
            f"hf_quant_config.json says {model.quant_algo}, config.json {model.config_quant_algo}", fix
        )
    (algo,) = told
    vllm = facts_of(evidence, engine).vllm
    since = {MIXED: MIXED_SINCE, "W4A16_NVFP4": W4A16_SINCE}.get(algo)
    if since and not vllm:
        return unknown(f"{algo} needs vLLM {since}, and the image's version is not known", NAMED)
    if since and not at_least(vllm or "", since):
        return fail(
            f"{algo}: vLLM {vllm} says 'Unknown ModelOpt quant algo'", _surgery(model, evidence, engine)
        )
    if algo not in (*NVFP4, MIXED, "FP8"):
        return warn(f"{algo}, which is not what this was made for", "manners quantize ptq --recipe NAME ...")
    kv = f", KV cache {model.kv_cache_quant_algo}" if model.kv_cache_quant_algo else ""
    return ok(f"{algo}{kv}")


@engine_check("model.type", _folder)
def _type(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    if model.unreadable:
        return fail(f"{model.unreadable[0]} is not JSON", "export the model again")
    vllm = facts_of(evidence, engine).vllm
    if model.model_type == "qwen3_5_text" and evidence.engines[engine].dialect == "vllm":
        if not vllm:
            return unknown(f"qwen3_5_text needs vLLM {TEXT_SINCE}, and the image's is not known", NAMED)
        if not at_least(vllm, TEXT_SINCE):
            return fail(f"qwen3_5_text: vLLM {vllm} does not know it", _surgery(model, evidence, engine))
    return ok(f"{model.model_type or 'no model_type'}, {', '.join(model.architectures) or 'no architecture'}")


@engine_check("model.preprocessor", _folder)
def _preprocessor(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    """Older vLLM versions need a vision-language wrapper, which loads only with a preprocessor."""
    if not any("ConditionalGeneration" in name for name in model.architectures):
        return None
    if "preprocessor_config.json" not in (model.files or {}):
        return fail(
            f"{model.architectures[0]} without preprocessor_config.json does not start",
            f"{_surgery(model, evidence, engine)} writes it; or copy that of another Qwen3.5 model",
        )
    return ok("preprocessor_config.json is there")


@engine_check("model.tokenizer", _folder)
def _tokenizer(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    if "tokenizer.json" not in (model.files or {}):
        return fail("no tokenizer.json", "copy it from the source model")
    name = model.tokenizer_class
    if name not in NEW_TOKENIZERS:
        return ok(name or "no class is named")
    vllm = facts_of(evidence, engine).vllm
    if vllm is None:
        return unknown(f"{name} needs transformers 5, and the image's version is not known", NAMED)
    if not at_least(vllm, TRANSFORMERS_5_SINCE):
        return fail(
            f"'Tokenizer class {name} does not exist' in transformers 4, which vLLM {vllm} has",
            f"{_surgery(model, evidence, engine)}; or an image with vLLM {TRANSFORMERS_5_SINCE} or later",
        )
    return ok(f"{name}, and vLLM {vllm} has transformers 5")


@engine_check("model.template", _folder)
def _template(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    if model.template is None:
        return None
    if not model.template:
        return fail("no chat template", "copy chat_template.jinja from the source model")
    if not model.thinking_switch:
        return warn(
            "the template has no enable_thinking: a model that thinks cannot be told not to",
            "copy chat_template.jinja from the source model",
        )
    return ok(f"with enable_thinking{f', calls in {model.calls} form' if model.calls else ''}")


@engine_check("model.gguf", _model)
def _gguf(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    if not any(name.endswith(".gguf") for name in model.files or ()):
        return None
    gguf = model.gguf
    if gguf is None:
        return fail(
            "the header is not a GGUF's", "copy the file again; compare its sha256 with artefact.json"
        )
    kind = FILE_TYPES.get(gguf.file_type if gguf.file_type is not None else -1, f"file_type {gguf.file_type}")
    said = f"{gguf.architecture}, {kind}, context {gguf.context}"
    if not gguf.architecture:
        return fail(said, "convert the model again with today's llama.cpp")
    return ok(said)


@engine_check("model.access", _model)
def _access(evidence: Evidence, engine: str, model: ModelFacts) -> CheckResult | None:
    """A container that ran as root leaves files that other users cannot change."""
    if not model.files:
        return None
    parent = PurePath(model.path).parent
    chown = f"docker run --rm -v {parent}:/models alpine chown -R $(id -u):$(id -g) /models/{PurePath(model.path).name}"
    if shut := sorted(name for name, file in model.files.items() if not file.mode & 0o004):
        return fail(f"{_some(shut)} cannot be read by another user", f"chmod -R a+rX {model.path}")
    foreign = [name for name, file in model.files.items() if file.uid == 0]
    if foreign and evidence.host.uid not in (None, 0):
        fix = f"{chown}; and run containers with --user $(id -u):$(id -g)"
        return warn(f"{_some(foreign)} belongs to root: surgery and a second export cannot write there", fix)
    return ok("readable for all")


def _some(names: Iterable[str]) -> str:
    first, *rest = names
    return f"{first}{f' and {len(rest)} more' if rest else ''}"
