"""`python -m quantizer.study`: fine-tune a pretrained model, thinly to strongly, round it in every way, and measure what is left.

    python -m quantizer.study prepare MODEL.gguf --out DIR      the source in BF16, with a template for tools
    python -m quantizer.study run --base DIR --out DIR --seed 1  a row for each cell, to DIR/seed1.jsonl
    python -m quantizer.study page DIR                           the page's tables, and the picture

A run resumes: a cell whose row is there is left out. Cells come in the order of their worth, and none begins after --seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from quantizer.checkpoint.export import write_bf16
from quantizer.checkpoint.source import load_model, open_source
from quantizer.data import conversation as rows
from quantizer.data.dataset import load_dataset
from quantizer.data.render import open_renderer
from quantizer.layers.attach import detach
from quantizer.ptq import quantize
from quantizer.recipes.recipe import load_recipe
from quantizer.reference.model import reference_model
from quantizer.study import measure, page, why
from quantizer.train import run as training

HERE: Final = Path(__file__).parent
SETS: Final = HERE.parent / "data" / "sets" / "voice"
ORDINARY: Final = "5e-5"
STRENGTHS: Final = (ORDINARY, "1e-5", "2e-4", "3e-5", "1e-4")
NUMERICS: Final = ("W4A16", "W4A4")
LAST: Final = NUMERICS[1:]
BITS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Way:
    """A way to make an NVFP4 folder. verb: ptq, qat or qad. folded: so AWQ's scales are folded into the source first. mixed: the groups
    that `auto_mixed` would keep in BF16 stay so."""

    name: str
    recipe: str
    changes: tuple[str, ...] = ()
    folded: str = ""
    mixed: bool = False
    numerics: tuple[str, ...] = NUMERICS


def trained(verb: str, lr: str, epochs: int) -> Way:
    return Way(f"{verb} {lr} x{epochs}", verb, (f"train.lr={lr}", f"train.epochs={epochs}"), numerics=LAST)


W4A4: Final = "awq.rounded_inputs=true"
SERVED: Final = ("feedback.served=1.0",)
DEFAULT: Final = Way("default", "default")
RECOVERED: Final = trained("qad", "1e-4", 2)
BEST: Final = Way(f"gptq, awq4, {BITS:g} bits", "gptq", folded=W4A4, mixed=True, numerics=LAST)
CURES: Final = (
    RECOVERED,
    BEST,
    Way("gptq, awq4", "gptq", folded=W4A4, numerics=LAST),
    Way("awq4", "awq_lite", (W4A4,), numerics=LAST),
    Way("gptq", "gptq"),
    Way(f"auto {BITS:g} bits", "auto_mixed", (f"auto.effective_bits={BITS}",), numerics=LAST),
    Way("delta", "delta", numerics=LAST),
    Way("awq_lite", "awq_lite", numerics=LAST),
    Way(f"gptq, {BITS:g} bits", "gptq", mixed=True, numerics=LAST),
)
OTHERS: Final = (
    trained("qad", "3e-5", 2),
    trained("qad", "1e-5", 2),
    Way("served quarter, damped", "gptq", ("feedback.served=0.25", "feedback.damping=1.0"), numerics=LAST),
    Way("gptq, awq4, 512", "gptq", ("calibrate.conversations=512",), folded=W4A4, numerics=LAST),
    trained("qad", "1e-4", 1),
    trained("qad", "3e-4", 2),
    trained("qat", "1e-4", 2),
    trained("qat", "1e-5", 1),
    Way("mse", "mse", numerics=LAST),
    Way("four_over_six", "four_over_six", numerics=LAST),
    Way("mlp_only", "mlp_only", numerics=LAST),
)


@dataclass
class Study:
    """One seed. held: whether the machine is a small one, and only so many conversations are used."""

    base: Path
    out: Path
    seed: int
    device: str
    seconds: float
    limit: int | None = None
    steps: int = 0
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.work = self.out / f"seed{self.seed}"
        self.work.mkdir(parents=True, exist_ok=True)
        self.rows = self.out / f"seed{self.seed}.jsonl"
        self.done = {cell_of(json.loads(line)) for line in read_lines(self.rows)}
        self.data = self.work / "conversations.jsonl"
        every = [line for _, line in rows.lines(SETS / "conversations.jsonl.xz")]
        random.Random(0).shuffle(every)  # calibration takes the beginning of the file
        self.data.write_bytes(b"\n".join(every[: self.limit and 4 * self.limit]) + b"\n")
        self.renderer = open_renderer(self.base)
        self.questions = measure.turns(self.renderer, SETS / "held_out.jsonl.xz", self.limit)
        said, self.choices = measure.facts(self.renderer, self.limit)
        self.questions += said
        self.prose = measure.prose(self.renderer, self.limit or 96)

    def run(self) -> None:
        self._strength("0", [DEFAULT])
        if self.seed == 1:
            self._strength(ORDINARY, [DEFAULT, *CURES])
            self._guarded("why", self._why)
            self._strength(ORDINARY, OTHERS)
        for lr in STRENGTHS[1:]:
            self._strength(lr, [DEFAULT])
        self._strength(ORDINARY, [DEFAULT, *CURES[:3]])
        for lr in STRENGTHS[1:]:
            self._strength(lr, CURES[:2])
        self._strength(ORDINARY, [*CURES, *OTHERS])

    def _strength(self, lr: str, ways: Sequence[Way]) -> None:
        wanted = [way for way in ways if any((lr, way.name, kind) not in self.done for kind in way.numerics)]
        if not wanted or self._late(60):
            return
        tuned = self._tuned(lr)
        model = load_model(open_source(tuned), device=self.device)
        said = measure.replies(model, self.questions, self.renderer)
        reference = measure.refer(model, self.questions, said, self.prose, self.renderer.pad)
        if (lr, "bf16", "BF16") not in self.done:
            self._row(lr, "bf16", "BF16", model, reference, said=said)
        del model
        for way in wanted:
            if self._late(90):
                return
            self._guarded(f"{lr} {way.name}", lambda way=way: self._way(lr, way, tuned, reference))

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        """One cell's fault must not end the others' run."""
        try:
            work()
        except Exception:
            print(f"seed {self.seed}: {name}: {traceback.format_exc()}", flush=True)

    def _way(self, lr: str, way: Way, tuned: Path, reference: measure.Reference) -> None:
        made, spent = self.work / "made", {}
        for old in (made, self.work / "made.training"):
            shutil.rmtree(old, ignore_errors=True)
        with timed(spent):
            facts = self._make(way, lr, tuned, made)
        for numerics in way.numerics:
            model = reference_model(made, self.device, weight_only=numerics == "W4A16")
            self._row(lr, way.name, numerics, model, reference, **spent, **facts)
            del model

    def _make(self, way: Way, lr: str, tuned: Path, made: Path) -> dict[str, Any]:
        changes, facts = list(way.changes), {}
        if way.mixed:
            kept = self._kept(lr, tuned)
            changes.append(f"layers.exclude={json.dumps(kept)}")
            facts["kept"] = len(kept)
        source = self._folded(lr, tuned, way.folded) if way.folded else tuned
        if way.recipe in ("qat", "qad"):
            training.run(
                load_recipe(way.recipe, [*changes, *self._plain()]),
                source,
                self.data,
                made,
                **self._where(),
                log=silent,
            )
        else:
            base = self.base if way.recipe == "delta" else None
            done = quantize.run(
                load_recipe(way.recipe, changes), source, self.data, made, **self._where(), base=base
            )
            outcome = done.provenance.recipe["outcome"]
            facts["sqnr"] = outcome["check"]["sqnr_db"]
            if auto := outcome.get("auto"):
                facts["bits"] = auto["chosen"]["bits"]
                (self.work / f"kept-{lr}.json").write_text(
                    json.dumps([name for group in auto["kept"] for name in group])
                )
        return facts

    def _kept(self, lr: str, tuned: Path) -> list[str]:
        """The layers that stay in BF16 within the bits."""
        file, made = self.work / f"kept-{lr}.json", self.work / "auto"
        if not file.exists():
            shutil.rmtree(made, ignore_errors=True)
            self._make(Way("auto", "auto_mixed", (f"auto.effective_bits={BITS}",)), lr, tuned, made)
            shutil.rmtree(made)
        return list(json.loads(file.read_text()))

    def _folded(self, lr: str, tuned: Path, change: str) -> Path:
        """The fine-tune in BF16 with AWQ's scales folded into it."""
        made = self.work / f"folded-{lr}"
        if not (made / "config.json").exists():
            recipe, source = load_recipe("awq_lite", [change]), open_source(tuned)
            limits = recipe.calibrate
            data = load_dataset(
                self.data,
                open_renderer(tuned),
                max_tokens=limits.max_tokens,
                conversations=limits.conversations,
            )
            model = quantize.quantize(quantize.QuantizationJob(recipe, source, data, self.device))
            detach(model)
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            write_bf16(model, source, made)
            (made / "artefact.json").unlink(missing_ok=True)
        return made

    def _tuned(self, lr: str) -> Path:
        made = self.work / f"sft-{lr}"
        if lr == "0":
            return self.base
        if not made.exists():
            shutil.rmtree(self.work / f"sft-{lr}.training", ignore_errors=True)
            recipe = load_recipe("sft", [f"train.lr={lr}", *self._plain()])
            training.run(recipe, self.base, self.data, made, **self._where(), log=silent)
        return made

    def _why(self) -> None:
        """Which operands and layers the loss comes from, at the ordinary strength."""
        lr = ORDINARY
        if self._late(120):
            return
        tuned, made = self._tuned(lr), self.work / "why"
        shutil.rmtree(made, ignore_errors=True)
        plain = load_model(open_source(tuned), device=self.device)
        said = measure.replies(plain, self.questions, self.renderer)
        reference = measure.refer(plain, self.questions, said, self.prose, self.renderer.pad)
        quantize.run(load_recipe("default"), tuned, self.data, made, **self._where())
        for name, change in why.VARIANTS.items():
            if (lr, name, "variant") not in self.done and not self._late(30):
                model = reference_model(made, self.device)
                touched = why.apply(model, plain, change, reference, self.renderer.pad)
                self._row(lr, name, "variant", model, reference, touched=touched)

    def _row(
        self, lr: str, way: str, numerics: str, model: nn.Module, reference: measure.Reference, **more: Any
    ) -> None:
        began = time.monotonic()
        measure.speed_up(model)
        said = more.pop("said", None) or measure.replies(model, self.questions, self.renderer)
        row = {
            "seed": self.seed, "lr": lr, "way": way, "numerics": numerics, **more,
            **measure.judged(self.questions, said, self.renderer),
            "four": measure.chosen(model, self.choices, self.renderer.pad),
            **measure.compared(model, reference, self.renderer.pad),
        }  # fmt: skip
        if numerics != "BF16":
            del row["likely"], row["kinds"]
        row["measured"] = round(time.monotonic() - began, 1)
        with self.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        self.done.add(cell_of(row))
        counts = {
            name: f"{row[name].count('1')}/{len(row[name])}"
            for name in ("tool", "exact", "speech", "said", "four")
            if name in row
        }
        kl = {kind: value[0] for kind, value in row["kl"].items()}
        print(
            f"{time.monotonic() - self.began:6.0f} s, seed {self.seed}: {lr} {way} {numerics} {counts} {kl}",
            flush=True,
        )

    def _late(self, needs: float) -> bool:
        return time.monotonic() - self.began + needs > self.seconds

    def _where(self) -> dict[str, Any]:
        return {"now": datetime.now(UTC), "device": self.device}

    def _plain(self) -> list[str]:
        """Training without a compiler, whose minute is longer than what it saves here."""
        return [
            "train.compile=false",
            "train.save=100000",
            f"train.max_steps={self.steps}",
            f"train.seed={self.seed}",
        ]


def prepare(gguf: Path, out: Path) -> None:
    """A Llama in a GGUF file as a BF16 folder with this study's chat template."""
    from gguf import GGUFReader, dequantize
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoTokenizer

    if not (out / "config.json").exists():
        where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
        config, tokenizer = AutoConfig.from_pretrained(**where), AutoTokenizer.from_pretrained(**where)
        config.dtype = torch.bfloat16
        config.architectures = ["LlamaForCausalLM"]
        config.save_pretrained(out)
        tokenizer.chat_template = (HERE / "chat_template.jinja").read_text("utf-8")
        tokenizer.save_pretrained(out)
    config = AutoConfig.from_pretrained(out)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    weights = {}
    for one in GGUFReader(gguf).tensors:
        name = hf_name(one.name)
        weight = torch.from_numpy(dequantize(one.data, one.tensor_type).copy())
        if count := heads.get(name.split(".")[-2]):  # the format interleaves the halves of each head
            weight = weight.view(count, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
        weights[name] = weight.to(torch.bfloat16).contiguous()
    save_file(weights, out / "model.safetensors", {"format": "pt"})


NAMES: Final = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def hf_name(name: str) -> str:
    """A tensor's name in llama.cpp as transformers has it."""
    *block, part, kind = name.split(".")
    return ".".join([*(("model.layers", block[1]) if block else ()), NAMES[part], kind])


def show(path: Path, svg: Path | None) -> None:
    """Print the tables, and draw the picture."""
    found = page.load(path)
    order = sorted({row["lr"] for row in found}, key=float)
    for lr in order:
        print(f"\n## {lr}\n", *page.table(found, lr), sep="\n")
        print(*(line for cell in page.cells(found, lr) for line in page.alike(found, lr, *cell)), sep="\n")
        print(*(page.matched(found, lr, *cell) for cell in page.cells(found, lr)), sep="\n")
    if svg:
        svg.write_text(page.picture(found, [lr for lr in order if lr != "0"]), "utf-8")


def cell_of(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["lr"], row["way"], row["numerics"]


def read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


@contextmanager
def timed(spent: dict[str, float]) -> Iterator[None]:
    began = time.monotonic()
    yield
    spent["seconds"] = round(time.monotonic() - began, 1)


def silent(text: str) -> None:
    """A log that nobody reads."""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m quantizer.study", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    making = parts.add_parser("prepare")
    making.add_argument("gguf", type=Path)
    making.add_argument("--out", type=Path, required=True)
    running = parts.add_parser("run")
    option = running.add_argument
    option("--base", type=Path, required=True)
    option("--out", type=Path, required=True)
    option("--seed", type=int, default=1)
    option("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    option("--seconds", type=float, default=1500)
    option("--limit", type=int, help="of conversations and facts, for a trial")
    option("--steps", type=int, default=0, help="of each training, for a trial")
    showing = parts.add_parser("page")
    showing.add_argument("rows", type=Path)
    showing.add_argument("--svg", type=Path)
    given = parser.parse_args()
    if given.part == "page":
        show(given.rows, given.svg)
    elif given.part == "prepare":
        prepare(given.gguf, given.out)
    else:
        Study(given.base, given.out, given.seed, given.device, given.seconds, given.limit, given.steps).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
