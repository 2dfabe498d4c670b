"""The steps that make models, each by a command of `manners quantize`, and the gates that judge them."""

import base64
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from quantizer.nano import conversations
from tests.chain import voice
from tests.chain.place import ChainError, Place
from tests.chain.record import Figures, Record, Work
from tests.chain.settings import MODELS, PTQ, SPARE, TRAINED, TUNED
from tests.smollm2 import weights

THIN: Final = MODELS / "annie-nano-thin-ptq"
"""Stands in for the nano's PTQ: at 6.8M plain NVFP4 takes no manners, so what is refused was taught too little and rounded too far."""
TRAINED_GGUF: Final = "trained-nvfp4"
"""The trained model in NVFP4 for llama.cpp; the bad engine serves a copy, whose file is spoiled."""
CONVERSATIONS: Final = 4
"""Of each of the nano's two files: its fine-tune does not see what its recovery is trained on."""
SHOWN: Final = ("loss_before", "loss_after", "steps", "tokens_per_second")


def make_models(place: Place, record: Record) -> None:
    """From the base to every folder that an engine of the chain serves."""
    setting = place.setting
    base = weights() if setting.cuda else MODELS / "annie-nano-hf"
    tuned, trained = place.models / "tuned", place.models / "trained"
    record.step("data", lambda: _data(place))
    record.step("fine-tune", lambda: _trained(place, "sft", base, tuned, setting.tune))
    if setting.cuda:
        record.step("PTQ", lambda: _quantized(place, tuned))
    else:
        record.step("fine-tune, F16", lambda: _gguf(place, tuned, place.served(TUNED), "f16"))
        shutil.copytree(THIN, place.served(PTQ), dirs_exist_ok=True)
    record.step("cure", lambda: _trained(place, setting.cure, tuned, trained, setting.recover))
    record.step("verify", lambda: _verified(place))
    record.step("cure, Q4_K_M", lambda: _gguf(place, place.models / "trained-bf16", place.served(SPARE), "q4_k_m"))  # fmt: skip
    if not setting.cuda:
        record.step("cure, for vLLM", lambda: _exported(place, trained))
        record.step("cure, NVFP4 for llama.cpp", lambda: _gguf(place, trained, place.models / TRAINED_GGUF, "nvfp4"))  # fmt: skip


def gate_steps(place: Place) -> dict[str, Work]:
    """The gates that the chain needs: what is refused, and what passes."""
    place.configure()
    return {f"gate: {engine}": lambda engine=engine: _gate(place, engine) for engine in (PTQ, TRAINED)}  # type: ignore[misc]


def _data(place: Place) -> Figures:
    if place.setting.cuda:
        voice.write_data(place.base / "sft.jsonl")
        shutil.copy(place.base / "sft.jsonl", place.base / f"{place.setting.cure}.jsonl")
        return {"conversations": 1088}
    for verb, skip in (("sft", 0), (place.setting.cure, 1024)):
        conversations.write(place.base / f"{verb}.jsonl", CONVERSATIONS, skip)
    return {"conversations": CONVERSATIONS}


def _trained(place: Place, verb: str, source: Path, folder: Path, values: Mapping[str, object]) -> Figures:
    """A training by its recipe; with quantization, the weights before their rounding are written, too."""
    flags: list[str | Path] = ["--recipe", verb, "--source", source, "--data", place.base / f"{verb}.jsonl", "--device", place.setting.device]  # fmt: skip
    flags += [part for name, value in values.items() for part in ("--set", f"train.{name}={value}")]
    if verb != "sft":
        bf16 = folder.with_name(f"{folder.name}-bf16")
        shutil.rmtree(bf16, ignore_errors=True)
        flags += ["--bf16", bf16]
        flags += [] if place.setting.cuda else ["--set", "calibrate.conversations=2"]
    elif place.setting.cuda:
        flags += ["--template", "hermes"]
    found = place.made(folder, verb, *flags)
    train = found["train"]
    kept = {name: train[name] for name in SHOWN if name in train}
    return {"root": found["root"], "recipe": verb, **values, **kept, "parity": (found.get("check") or {}).get("parity")}  # fmt: skip


def _quantized(place: Place, tuned: Path) -> Figures:
    """The fine-tune in NVFP4, without training."""
    place.made(place.served(PTQ), "ptq", "--recipe", "default", "--source", tuned, "--data", place.base / "sft.jsonl", "--device", "cuda")  # fmt: skip
    return _sealed(place.served(PTQ))


def _gguf(place: Place, source: Path, folder: Path, kind: str) -> Figures:
    place.made(folder, "gguf", source, "--type", kind, json_out=False)
    return _sealed(folder)


def _verified(place: Place) -> Figures:
    """The folder by its own bytes, and the change that the training made to its source."""
    words = ("quantize", "verify", place.models / "trained", "--source", place.models / "tuned", "--json")
    _, said, _ = place.run("verify", *words)
    found = json.loads(said)
    return {"layers": len(found["layers"]), "findings": len(found["findings"])}


def _exported(place: Place, trained: Path) -> Figures:
    """The folder's values in BF16: what a vLLM that cannot compute NVFP4 is given."""
    place.made(place.served(TRAINED), "export", trained)
    return _sealed(place.served(TRAINED))


def _sealed(folder: Path) -> Figures:
    manifest = json.loads((folder / "artefact.json").read_text("utf-8"))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"root": manifest["root"], "format": manifest["format"], "megabytes": round(size / 1e6, 1)}


def _gate(place: Place, engine: str) -> Figures:
    """`manners gate run`: the verdict, counts of both sides by gate, and what computed the answers."""
    out = place.base / f"gate-{engine}"
    flags: list[str | Path] = [
        "--config",
        place.own_config(out.name),
        "--candidate",
        engine,
        "--baseline",
        TUNED,
    ]
    for verb in ("sft", place.setting.cure):  # no prompt of the suite may be among what was learned
        flags += ["--data", place.base / f"{verb}.jsonl"]
    if engine == PTQ and not place.setting.cuda:  # the file that stands in for it descends from another base
        flags += ["--any-baseline"]
    code, said, wrong = place.run(out.name, "gate", "run", *flags, "--out", out, "--full", "--json", allowed=(0, 1, 2))  # fmt: skip
    if not said:
        raise ChainError(f"{out.name}: no verdict, exit code {code}: {wrong.strip()[-300:]}")
    decided = json.loads(said)
    stated = json.loads(base64.b64decode(json.loads((out / "report.json").read_text("utf-8"))["payload"]))
    failed = [rule for rule in decided["gates"] if rule["verdict"] != "pass" and rule["tier"] != "advisory"]
    return {
        "verdict": decided["verdict"],
        "samples": stated["predicate"]["samples"]["count"],
        "tallies": stated["predicate"]["tallies"],
        "why": [f"{rule['gate']}: {rule['sentence']}" for rule in failed],
        "controls": {control["name"]: control["holds"] for control in decided["controls"]},
        "engines": stated["predicate"]["configuration"],
    }
