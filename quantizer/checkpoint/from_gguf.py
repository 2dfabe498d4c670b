"""A GGUF file or a LoRA adapter as a source: for as long as the work lasts, a Hugging Face folder of its model."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from quantizer.checkpoint import adapter
from quantizer.core.errors import SourceError, UnavailableError, first_line


@contextmanager
def as_folder(source: Path, out: Path, base: Path | None = None) -> Iterator[Path]:
    """A source as a folder; that of a GGUF file or an adapter lies beside `out` for as long as the `with` block lasts.
    base: the model that an adapter is merged into. Raises SourceError."""
    adapted = (source / adapter.CONFIG).is_file()
    if source.suffix != ".gguf" and not adapted:
        yield source
        return
    if not adapted and find_spec("accelerate") is None:
        raise UnavailableError("transformers reads a GGUF file with accelerate: pip install accelerate")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}.source-", dir=out.parent) as place:
        folder = Path(place) / source.resolve().stem
        adapter.merge(source, folder, base) if adapted else _unpack(source, folder)
        yield folder


def _unpack(source: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given = {"gguf_file": source.name, "local_files_only": True}
    try:
        read = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.bfloat16, **given)
        config = read.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        # Anew: the model that was read still counts as quantized, and cannot be saved.
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.load_state_dict(read.state_dict(), assign=True)
        model.tie_weights()
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(source.parent, **given).save_pretrained(folder)
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        raise SourceError(f"{source}: cannot be read as GGUF ({first_line(error)})") from error
