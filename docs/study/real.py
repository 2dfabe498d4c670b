"""python docs/study/real.py BASE OUT WORKER [JOB]...: takes jobs of the study, or those named, until none is left, and appends a
row for each model to OUT/rows-WORKER.jsonl. real.sh starts the workers.

A row has the outcome of each reply by kind; `same`: the characters that a reply shares with BF16's from its start, -1 for all (of
BF16 the length); `kl`: nats and tokens by kind; `by_margin`: tokens, and those whose likeliest token changed, by BF16's lead
there (borders of 0.5, 1, 2, 4 and 8 nats).
"""

import argparse
import gc
import json
import os
import shutil
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import rivals
import torch
from torch.nn import functional as F

from quantizer.cli import main as cli
from quantizer.data.dataset import chosen_rows
from quantizer.reference import compare, measure

VOICE = Path("quantizer/data/sets/voice")
TRAIN = Path(os.environ.get("TRAIN", VOICE / "conversations.jsonl.xz"))
ASKED = {"held": VOICE / "held_out.jsonl.xz", "asked": Path("docs/study/questions.jsonl.xz")}
KINDS = {"exact": "exact", "speech": "speech", "bfcl": "bfcl", "irrelevance": "irrelevance", "mtbench": "mtbench",
         "instruction": "instruction", "fact": "said"}  # fmt: skip
STRENGTHS = os.environ.get("STRENGTHS", "5e-5 1e-5 2e-4 3e-5 1e-4").split()
SEEDS = tuple(map(int, os.environ.get("SEEDS", "1 2 3").split()))
JOBS = [("strength", rate, seed) for rate in STRENGTHS for seed in SEEDS]
CURES = ("qad", "awq_gptq", "gptq", "qat", "awq_lite", "delta", "mse", "autoround")
JOBS += [(job, "5e-5", seed) for job in (*CURES, *rivals.RIVALS) for seed in SEEDS]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BORDERS = torch.tensor([0.5, 1, 2, 4, 8])
base, out, worker = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
measure.PROMPTS = 65_536
for name in ("LONGEST", "MOST"):  # a rehearsal's: tokens of a reply, conversations of a set
    if name in os.environ:
        setattr(measure, name, int(os.environ[name]))
most = getattr(measure, "MOST", 1000)


def make(verb: str, recipe: str, source: Path, to: Path, *more: object) -> float:
    """A command of `manners quantize`, in this process; the seconds that it took."""
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers(dest="command"))
    flags = ["--recipe", recipe, "--source", source, "--out", to, "--data", TRAIN, "--proof", "none"]
    argv = ["quantize", verb, *(flags if recipe else [source, "--out", to]), *more]
    began = time.monotonic()
    if code := cli.run(parser.parse_args([str(one) for one in argv])):
        raise RuntimeError(f"{verb} {recipe}: exit code {code}")
    return round(time.monotonic() - began, 1)


def train(rate: str, seed: int, *more: str) -> list[str]:
    values = [f"lr={rate}", f"seed={seed}", "compile=false", "save=100000", *more]
    values += os.environ.get("EXTRA", "").split()
    return [part for value in values for part in ("--set", f"train.{value}")]


def kinds_of(renderer, pairs) -> np.ndarray:
    """By learned token: call, speech, fact, bfcl."""
    found = []
    for kind, one in pairs:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], one.learned.astype(np.int8), [0]])))
        for low, high in edges.reshape(-1, 2):
            called = "<tool_call>" in renderer.tokenizer.decode(one.ids[low:high].tolist())
            found += [kind if kind in ("fact", "bfcl") else "call" if called else "speech"] * int(high - low)
    return np.array(found)


def shared(one: str, other: str) -> int:
    return -1 if one == other else len(os.path.commonprefix([one, other]))


class Evaluation:
    """Of models beside a fine-tune in BF16, which is evaluated first."""

    def __init__(self, at: Path) -> None:
        self.at, self.before, self.template = at, {}, None
        self.first, _ = self.row(at / "sft", replies=not (at / "replies.json").exists())

    @torch.no_grad()
    def row(self, path: Path, numerics: str = "", *, weight_only: bool = False, replies: bool = True):
        began = time.monotonic()
        model, renderer, about = compare._open(path, DEVICE, weight_only, self.template)
        self.template = str(renderer.tokenizer.chat_template)
        row = {
            "numerics": numerics or about["numerics"],
            "bits": about["bits_per_weight"],
            "kl": {},
            "by_margin": {},
        }
        texts = {}
        for name, file in ASKED.items():
            rows = list(chosen_rows(file, most, compare.SEED))
            if replies:
                row |= self.replies(name, model, renderer, rows, texts)
            pairs = [(one.kind, sample) for one in rows for sample in renderer.samples(one) if name == "held" or one.kind in ("fact", "bfcl")]  # fmt: skip
            samples = [sample for _, sample in pairs]
            states, of = measure.states(model, samples, renderer.pad), kinds_of(renderer, pairs)
            written = (
                torch.from_numpy(np.concatenate([one.ids[one.learned] for one in samples])).long().to(DEVICE)
            )
            if name not in self.before:
                self.before[name] = torch.cat(
                    [measure.logits(model, part).bfloat16() for part in states.split(1024)]
                )
            self.tokens(model, name, states, written, of, row)
        if replies:
            file, first = self.at / "replies.json", numerics or path.name != "sft"
            before = json.loads(file.read_text()) if first else {}
            row["same"] = {kind: [shared(*pair) for pair in zip(said, before[kind], strict=True)] if before else list(map(len, said))
                           for kind, said in texts.items()}  # fmt: skip
            if not before:
                (self.at / "replies.new").write_text(json.dumps(texts))
                (self.at / "replies.new").rename(file)
        del model
        gc.collect()
        torch.cuda.empty_cache()
        return row | {"measured": round(time.monotonic() - began, 1)}, texts

    def replies(self, name, model, renderer, rows, texts) -> dict[str, str]:
        questions, said = measure.turns(renderer, rows), {}

        def heard(place, one):
            def check(text: str, ended: bool) -> bool:
                said[place] = text
                return one.check(text, ended)

            return one._replace(check=check)

        right = measure.right_replies(model, [heard(*pair) for pair in enumerate(questions)], renderer)
        outcomes = {}
        for place, one in enumerate(questions):
            kind = KINDS[rows[one.row].kind if name == "asked" else one.kind]
            outcomes[kind] = outcomes.get(kind, "") + str(int(right[place]))
            texts.setdefault(kind, []).append(said[place])
        return outcomes

    def tokens(self, model, name, states, written, of, row) -> None:
        found = []
        for old, now, target in zip(
            self.before[name].split(1024), states.split(1024), written.split(1024), strict=True
        ):
            old, new = F.log_softmax(old.float(), -1), F.log_softmax(measure.logits(model, now).float(), -1)
            kl = F.kl_div(new, old, reduction="none", log_target=True).sum(-1).clamp(min=0)
            top = old.topk(2).values
            changed = (new.argmax(-1) != old.argmax(-1)).float()
            found.append(
                torch.stack([kl, changed, top[:, 0] - top[:, 1], -new.gather(1, target[:, None])[:, 0]]).cpu()
            )
        kl, changed, lead, loss = torch.cat(found, 1).double()
        level = torch.bucketize(lead, BORDERS)
        for kind in dict.fromkeys(of.tolist()):
            mine = torch.from_numpy(of == kind)
            row["kl"][kind] = [round(float(kl[mine].mean()), 5), int(mine.sum())]
            row["by_margin"][kind] = [
                [int((mine & (level == i)).sum()), int(changed[mine & (level == i)].sum())] for i in range(6)
            ]
        if name == "held":
            row["perplexity"] = round(float(loss.mean().exp()), 4)


def wait(path: Path) -> None:
    """For what another worker makes."""
    while not path.exists():
        time.sleep(1)


def run(job: str, rate: str, seed: int) -> None:
    at = out / f"{rate}-{seed}"
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()

    def write(way: str, row: dict, seconds: float, peak: float = 0.0) -> None:
        line = {"seed": seed, "lr": rate, "way": way, **row, "seconds": seconds, "peak_gib": round(peak, 2)}
        with (out / f"rows-{worker}.jsonl").open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def both(way: str, folder: Path, seconds: float, peak: float = 0.0) -> None:
        """With rounded inputs, and with inputs in BF16."""
        for weight_only in (False, True):
            write(way, evaluation.row(folder, weight_only=weight_only)[0], seconds, peak)

    if job == "strength":
        seconds = make("sft", "sft", base, at / "sft", "--template", "hermes", *train(rate, seed))
        evaluation = Evaluation(at)
        write("bf16", evaluation.first, seconds)
        both("default", at / "default", make("ptq", "default", at / "sft", at / "default"))
        (at / "made").touch()
        seconds = make("gguf", "", at / "sft", at / "gguf", "--type", "q4_k_m")
        write("q4_k_m", evaluation.row(next((at / "gguf").glob("*.gguf")), "Q4_K_M")[0], seconds)
        return
    wait(at / "replies.json")
    if job in rivals.RIVALS:
        wait(at / "made")
        (at / job).mkdir()
        began = time.monotonic()
        rivals.RIVALS[job](at / "sft", at / "default", at / job, TRAIN)
        way, seconds = job, round(time.monotonic() - began, 1)
    elif job in ("qad", "qat"):
        way, seconds = (
            f"{job} 1e-4 x2",
            make(job, job, at / "sft", at / job, *train("1e-4", seed, "epochs=2")),
        )
    else:
        more = ["--base", base] if job == "delta" else []
        way, seconds = job, make("ptq", job, at / "sft", at / job, *more)
    peak = torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else 0.0
    gc.collect()
    evaluation = Evaluation(at)
    if job == "torchao":
        write(way, evaluation.row(at / job, "W4A16")[0], seconds, peak)
    else:
        both(way, at / job, seconds, peak)
    shutil.rmtree(at / job)


for job in [one for one in JOBS if one[0] in (sys.argv[4:] or one[0])]:
    try:
        (out / "-".join(["claim", *map(str, job)])).mkdir()
    except FileExistsError:
        continue
    print(time.strftime("%T"), *job, flush=True)  # noqa: T201
    try:
        run(*job)
    except Exception:  # one that does not run here keeps the others
        traceback.print_exc()
