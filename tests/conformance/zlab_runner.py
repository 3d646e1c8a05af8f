"""Run z-lab's own DFlash model and its own generation loop on a CPU, and write down what they did.

A stand-alone script for the environment of ``requirements-zlab.txt``; it does not import draftproof::

    python zlab_runner.py --target FOLDER_OR_GGUF --drafter FOLDER --prompts FILE.json \\
        --max-new-tokens N --dtype float32 --out OUT.json

``FILE.json`` is a list; an item is a text or a list of token ids. ``OUT.json`` holds versions, block size,
stop ids and per prompt: ``prompt_token_ids``, ``token_ids`` (new tokens, the stop token included),
``produced`` (tokens per round) and ``drafted`` (the tokens proposed in each round).

How the loop counts, read from dflash 0.1.0 (``dflash_generate``) and checked by ``zlab_witness.py``:

* the first new token comes from the prefill and belongs to no round: 1 + sum(produced) new tokens;
* a round's ``produced`` is its accepted drafts plus the bonus, cut to what ``max_new_tokens`` leaves and to
  the first stop token, which counts;
* near the limit the block shrinks: with r tokens still to come it is min(B, r + 1) long, the anchor included,
  so min(B - 1, r) tokens are drafted. A full acceptance at the very end therefore has no room for its bonus.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from pathlib import Path
from typing import Any

import torch
from dflash import model as zlab
from transformers import AutoModelForCausalLM, AutoTokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PACKAGES = ("dflash", "torch", "transformers")

# The loop reports its rounds only with return_stats=True, and then times itself through CUDA. On a CPU that
# raises; a plain clock changes no token.
zlab._cuda_time = time.perf_counter


def load_target(path: str, dtype: torch.dtype) -> Any:
    """The target from a Hugging Face folder, or from one GGUF file.

    A GGUF's weights are de-quantised to bfloat16 and only then widened, because draftproof keeps them so; the
    few bits between that and a direct float32 copy would flip near-ties.
    """
    file = Path(path)
    if file.suffix == ".gguf":
        from transformers import GgufConfig

        model = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
        )
        return model.to(dtype).eval()
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()


def load_tokenizer(path: str) -> Any:
    file = Path(path)
    if file.suffix == ".gguf":
        return AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    return AutoTokenizer.from_pretrained(path)


def load_drafter(folder: str, dtype: torch.dtype) -> Any:
    """z-lab's model class as the drafter's config.json names it."""
    names = json.loads((Path(folder) / "config.json").read_text()).get("architectures") or []
    model_class = zlab.DFlash2DraftModel if "DFlash2DraftModel" in names else zlab.DFlashDraftModel
    return model_class.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()


def stop_ids(target: Any) -> list[int]:
    """End-of-text ids of the target, as its generation config lists them."""
    ids = target.generation_config.eos_token_id
    if ids is None:
        ids = target.config.eos_token_id
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


def record_drafts(drafter: Any) -> list[list[int]]:
    """Every round's proposal from now on, taken where the loop asks for logits (temperature 0)."""
    drafts: list[list[int]] = []
    compute_logits = drafter.compute_logits

    def recording(hidden: torch.Tensor, output_head: Any) -> torch.Tensor:
        logits = compute_logits(hidden, output_head)
        drafts.append(logits[0].argmax(-1).tolist())
        return logits

    drafter.compute_logits = recording
    return drafts


def run_prompt(target: Any, drafter: Any, ids: list[int], max_new_tokens: int, stops: list[int]) -> dict[str, object]:
    """One prompt through the loop at temperature 0."""
    drafts = record_drafts(drafter)
    try:
        out = zlab.dflash_generate(
            drafter,
            target=target,
            input_ids=torch.tensor([ids]),
            max_new_tokens=max_new_tokens,
            stop_token_ids=stops or None,
            temperature=0.0,
            return_stats=True,
        )
    finally:
        del drafter.compute_logits  # the recording shadowed the method
    new = out.output_ids[0, len(ids) :].tolist()
    if len(new) != 1 + sum(out.acceptance_lengths):
        raise AssertionError(f"{len(new)} new tokens, but rounds of {out.acceptance_lengths}")
    return {
        "prompt_token_ids": ids,
        "token_ids": new,
        "produced": list(out.acceptance_lengths),
        "drafted": drafts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Record z-lab's DFlash loop on a CPU.")
    parser.add_argument("--target", required=True, help="Hugging Face folder or .gguf file")
    parser.add_argument("--drafter", required=True, help="folder in z-lab's format")
    parser.add_argument("--prompts", type=Path, required=True, help="JSON list of texts or of lists of ids")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--stop-token-ids", help="comma list; default: the target's end-of-text ids")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    target, drafter = (
        load_target(args.target, DTYPES[args.dtype]),
        load_drafter(args.drafter, DTYPES[args.dtype]),
    )
    given = args.stop_token_ids
    stops = stop_ids(target) if given is None else [int(i) for i in given.split(",") if i]
    prompts = json.loads(args.prompts.read_text())
    tokenizer = load_tokenizer(args.target) if any(isinstance(p, str) for p in prompts) else None
    rows = [p if tokenizer is None or not isinstance(p, str) else tokenizer(p)["input_ids"] for p in prompts]
    record = {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "dtype": args.dtype,
        "block_size": drafter.block_size,
        "stop_token_ids": stops,
        "prompts": [run_prompt(target, drafter, ids, args.max_new_tokens, stops) for ids in rows],
    }
    args.out.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
