"""Load a target: its Hugging Face module, its tokenizer, and for GGUF files a de-quantised copy kept on disk."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from draftproof import compat
from draftproof.errors import CapabilityError, CheckpointError, DraftproofError, UnavailableError
from draftproof.runtime import cache_dir
from draftproof.targets.source import ModelSource, resolve_model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
log = logging.getLogger(__name__)


@dataclass
class LoadedTarget:
    """``model`` in eval mode on its device, ``tokenizer`` (None when the folder has none)."""

    source: ModelSource
    model: Any
    tokenizer: Any


def pick_device(name: str) -> torch.device:
    """``auto`` takes CUDA, then MPS, then CPU. Anything that is not there is refused."""
    has_mps = torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise CapabilityError(f"device={name!r} is unknown: use auto, cpu, cuda, cuda:N or mps") from None
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": has_mps}.get(device.type, False)
    if not present:
        raise CapabilityError(f"device={name!r} is not available on this machine; use --device cpu or auto")
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype | None:
    """``auto`` keeps the checkpoint's own type (None), but float16 weights run as bfloat16 on a CPU."""
    if name == "auto":
        return None
    if name not in DTYPES:
        raise CapabilityError(f"dtype={name!r} is unknown: use auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def load_target(
    name: str,
    *,
    device: torch.device,
    dtype: torch.dtype | None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> LoadedTarget:
    """Load weights and tokenizer; what takes long is announced in the log."""
    compat.quiet_transformers()
    source = resolve_model(name, revision)
    if source.kind == "gguf":
        source = _dequantised(source)
    kwargs: dict[str, Any] = {"revision": source.revision, "trust_remote_code": trust_remote_code}
    if source.gguf_file:
        kwargs |= {"gguf_file": source.gguf_file}
    try:
        tokenizer = _load_tokenizer(source, kwargs)
        model = _load_model(source, dtype, device, kwargs)
    except DraftproofError:
        raise
    except Exception as error:
        raise _explain(source, error) from error
    return LoadedTarget(source, model, tokenizer)


def folder_for_others(name: str) -> str:
    """What other programs are told so that they load the very weights that we do: a folder or a hub id.

    A GGUF file is given as its de-quantised copy, which is made if it is not there yet.
    """
    source = resolve_model(name)
    if source.kind == "gguf":
        compat.quiet_transformers()
        source = _dequantised(source)
        if source.gguf_file:
            raise UnavailableError(
                f"{name}: its unpacked copy cannot be kept; set DRAFTPROOF_CACHE to a folder with room"
            )
    return source.location


def _load_model(source: ModelSource, dtype: torch.dtype | None, device: torch.device, kwargs: dict) -> Any:
    from transformers import AutoModelForCausalLM

    if source.gguf_file:
        kwargs = kwargs | {"quantization_config": compat.gguf_quantization_config()}
    wanted = dtype or (torch.bfloat16 if source.gguf_file else "auto")
    model = AutoModelForCausalLM.from_pretrained(source.location, dtype=wanted, **kwargs)
    if dtype is None and model.dtype == torch.float16 and device.type == "cpu":
        model = model.to(torch.bfloat16)
    return model.to(device).eval().requires_grad_(False)


def _load_tokenizer(source: ModelSource, kwargs: dict) -> Any:
    from transformers import AutoTokenizer

    folder = Path(source.location)
    has_files = any((folder / f).exists() for f in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model"))
    if source.kind == "folder" and not has_files:
        return None  # fine for token ids in, token ids out
    return AutoTokenizer.from_pretrained(source.location, **kwargs)


def _dequantised(source: ModelSource) -> ModelSource:
    """A folder with the GGUF's weights in bfloat16, made once. Falls back to the GGUF itself if it cannot be kept."""
    file = Path(source.location) / str(source.gguf_file)
    stat = file.stat()
    key = hashlib.sha256(f"{file.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|bf16-1".encode()).hexdigest()[:20]
    folder = cache_dir() / "gguf" / key
    cached = ModelSource("folder", source.name, str(folder))
    if (folder / "complete").is_file():
        return cached
    log.info("unpacking %s to bfloat16 (once; kept in %s)", file.name, folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=folder.parent))
    except OSError as error:
        log.warning("%s: cannot keep the unpacked weights (%s)", cache_dir(), error.strerror)
        return source
    try:
        kwargs = {"gguf_file": source.gguf_file}
        _load_tokenizer(source, kwargs).save_pretrained(staging)
        _load_model(source, torch.bfloat16, torch.device("cpu"), kwargs).save_pretrained(staging)
        (staging / "complete").touch()
        os.replace(staging, folder)
    except Exception as error:
        if isinstance(error, OSError) and (folder / "complete").is_file():
            return cached  # another process was faster
        if isinstance(error, OSError) or "No space left" in str(error):
            log.warning("%s: cannot keep the unpacked weights (%s)", folder, error)
            return source
        raise _explain(source, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return cached


def _explain(source: ModelSource, error: Exception) -> DraftproofError:
    """One line for what transformers, safetensors and the hub say in many."""
    text = " ".join(str(error).split())
    short = text[:300] + ("…" if len(text) > 300 else "")
    kind = type(error).__name__
    if source.kind == "hub" and (isinstance(error, OSError) or "onnect" in text):
        return UnavailableError(
            f"{source.name}: cannot be had from the hub ({short}); is the name right, is there a network?"
        )
    if "no file named" in text:
        return CheckpointError(f"{source.name}: its weights are missing ({short})")
    if "SafetensorError" in kind or "safetensors" in text.lower():
        return CheckpointError(f"{source.name}: a safetensors file is damaged or truncated ({short}); fetch it again")
    if "accelerate is required" in text or isinstance(error, ImportError):
        return UnavailableError(f"{source.name}: a package is missing ({short}); run: pip install 'draftproof[gguf]'")
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return UnavailableError(f"{source.name}: not enough memory to load it; try a smaller dtype or another device")
    return CheckpointError(f"{source.name}: cannot be loaded ({kind}: {short})")
