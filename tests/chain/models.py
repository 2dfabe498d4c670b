"""The steps that make models, each by a command of `manners quantize`, and the gates that judge them."""

import base64
import json
import shutil
from pathlib import Path
from typing import Final

from quantizer.nano import conversations
from tests.chain.base import THIN, write_base
from tests.chain.place import FOLDERS, PTQ, SPARE, TRAINED, TRAINED_GGUF, TUNED, ChainError, Place
from tests.chain.record import Figures, Record, Work
from tests.chain.settings import Dose

SKIPPED: Final = {"tune": 0, "recover": 1024}
"""Two files of conversations, by how many of annie-nano's they leave out: a fine-tune does not see what its recovery is trained on."""
VERDICTS: Final = (0, 1, 2)
SHOWN: Final = ("loss_before", "loss_after", "steps", "tokens_per_second")


def make_models(place: Place, record: Record) -> None:
    """From the base to every folder that an engine of the chain serves."""
    setting = place.setting
    record.step("data", lambda: _data(place))
    base, tuned = place.models / "base", place.models / "tuned"
    record.step("base", lambda: {"root": write_base(base, thin=setting.thin)})
    record.step("fine-tune", lambda: _trained(place, "sft", base, "tuned", setting.tune, "tune"))
    record.step("fine-tune, F16", lambda: _gguf(place, tuned, FOLDERS[TUNED], "f16"))
    record.step("PTQ", lambda: _quantized(place))
    record.step("QAT", lambda: _trained(place, "qat", tuned, "trained", setting.recover, "recover"))
    record.step("verify", lambda: _verified(place))
    record.step("QAT, for vLLM", lambda: _served(place))
    record.step("QAT, Q4_K_M", lambda: _gguf(place, place.models / "trained-bf16", FOLDERS[SPARE], "q4_k_m"))
    record.step(
        "QAT, NVFP4 for llama.cpp", lambda: _gguf(place, place.models / "trained", TRAINED_GGUF, "nvfp4")
    )


def gate_steps(place: Place) -> dict[str, Work]:
    """The gates that the chain needs: what is refused, and what passes."""
    place.configure()
    return {
        "gate: PTQ": lambda: _gate(place, PTQ),
        "gate: QAT on vLLM": lambda: _gate(place, TRAINED),
    }


def _data(place: Place) -> Figures:
    for name, skip in SKIPPED.items():
        conversations.write(place.base / f"{name}.jsonl", place.setting.conversations, skip)
    return {"conversations": place.setting.conversations, "files": len(SKIPPED)}


def _trained(place: Place, verb: str, source: Path, folder: str, dose: Dose, data: str) -> Figures:
    """A training by its verb and its recipe of that name; with quantization, the weights before their rounding are written, too."""
    flags: tuple[str | Path, ...] = ("--recipe", verb, "--source", source, "--data", place.base / f"{data}.jsonl",
                                     "--device", place.setting.device, *dose.flags)  # fmt: skip
    if verb != "sft":
        bf16 = place.models / f"{folder}-bf16"
        shutil.rmtree(bf16, ignore_errors=True)
        flags += ("--bf16", bf16, "--set", f"calibrate.conversations={place.setting.calibrated}")
    found = place.made(folder, folder, verb, *flags)
    train = found["train"]
    stated = {"root": found["root"], "recipe": verb, "lr": dose.lr, "tokens_a_step": dose.tokens}
    kept = {name: train[name] for name in SHOWN if name in train}
    return {**stated, **kept, "parity": (found.get("check") or {}).get("parity")}


def _gguf(place: Place, source: Path, folder: str, kind: str) -> Figures:
    place.made(folder, folder, "gguf", source, "--type", kind, json_out=False)
    return _sealed(place.models / folder)


def _quantized(place: Place) -> Figures:
    """The fine-tune in few bits, without training."""
    if place.setting.thin:
        return _gguf(place, place.models / "tuned", FOLDERS[PTQ], place.setting.ptq)
    shutil.copytree(THIN, place.models / FOLDERS[PTQ], dirs_exist_ok=True)
    return _sealed(place.models / FOLDERS[PTQ])


def _verified(place: Place) -> Figures:
    """The folder by its own bytes, and the change that the training made to its source."""
    words = ("quantize", "verify", place.models / "trained", "--source", place.models / "tuned", "--json")
    _, said, _ = place.run("verify", *words)
    found = json.loads(said)
    return {"layers": len(found["layers"]), "findings": len(found["findings"])}


def _served(place: Place) -> Figures:
    """What vLLM is given: the folder itself where it computes NVFP4, else the same values in BF16."""
    served = place.models / FOLDERS[TRAINED]
    if place.setting.cuda:
        shutil.rmtree(served, ignore_errors=True)
        shutil.copytree(place.models / "trained", served)
    else:
        place.made("export", FOLDERS[TRAINED], "export", place.models / "trained")
    return _sealed(served)


def _sealed(folder: Path) -> Figures:
    manifest = json.loads((folder / "artefact.json").read_text("utf-8"))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"root": manifest["root"], "format": manifest["format"], "megabytes": round(size / 1e6, 1)}


def _gate(place: Place, engine: str) -> Figures:
    """`manners gate run`: the verdict, counts of both sides by gate, and what computed the answers."""
    out = place.base / f"gate-{engine}"
    flags: tuple[str | Path, ...] = ()
    for name in SKIPPED:  # no prompt of the suite may be among what was learned
        flags += ("--data", place.base / f"{name}.jsonl")
    if engine == PTQ and not place.setting.thin:  # the file that stands in for it descends from another base
        flags += ("--any-baseline",)
    words = (
        "gate",
        "run",
        "--config",
        place.own_config(out.name),
        "--candidate",
        engine,
        "--baseline",
        TUNED,
    )
    flags += ("--out", out, "--full", "--json")
    code, said, wrong = place.run(out.name, *words, *flags, allowed=VERDICTS)
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
