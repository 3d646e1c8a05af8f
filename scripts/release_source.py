"""What an installed vLLM's own source, and one call of its kernel, say of its faults: known before any replay.

For its V1 runner on a CPU and a drafter whose layers all slide.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from draftproof.bench.peers.vllm_cpu import _environment
from draftproof.drafters.formats import read_spec

MODEL = "model_executor/models/qwen3_dflash.py"
PROPOSER = "v1/spec_decode/dflash.py"
RUNNER = "v1/worker/gpu_model_runner.py"
KERNEL = """
import torch
from vllm import _custom_ops as ops
x, out = torch.randn(2, 3, 2, 16), torch.empty(2, 3, 2, 16)
weights = torch.tensor([[1.0], [2.0]]).repeat(1, 16)
ops.rms_norm(out, x, weights, 1e-6)
once = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
each = once * weights[:, None, None]
near = lambda a: torch.allclose(out, a, atol=1e-4)
print("each" if near(each) else "first" if near(once) else "neither")
"""


@dataclass(frozen=True)
class Fault:
    """``how``: where it was read, in one line. ``there``: None where that could not be told."""

    name: str
    there: bool | None
    how: str


def faults(package: Path, python: Path, drafter: Path) -> list[Fault]:
    """Every fault that is looked for, in ``package`` (the installed folder ``vllm``)."""
    model, proposer, runner = ((package / name).read_text(encoding="utf-8") for name in (MODEL, PROPOSER, RUNNER))
    wanted = read_spec(str(drafter)).layers[0].causal
    return [taps(runner), window(model), direction(model, proposer, wanted), k_norm(model, python)]


def body(source: str, name: str) -> str:
    """The text of one function, empty where there is none."""
    found = re.search(rf"^( *)def {name}\(.*?(?=^\1(?:def |@|class )|^\S|\Z)", source, re.M | re.S)
    return found[0] if found else ""


def taps(runner: str) -> Fault:
    adds = "i + 1" in body(runner, "_get_eagle3_aux_layers_from_config")
    return Fault("taps-one-early", not adds, f"{RUNNER}: {'adds' if adds else 'does not add'} 1 to the file's ids")


def window(model: str) -> Fault:
    given = "per_layer_sliding_window=sliding_window" in model
    return Fault("window-ignored", not given, f"{MODEL}: {'gives' if given else 'does not give'} a layer its window")


def direction(model: str, proposer: str, wanted: bool) -> Fault:
    own = body(model, "_dflash_layer_causal")
    if not own and "dflash_causal" in proposer:
        causal, how = False, f"{PROPOSER}: one direction for all layers, bidirectional unless dflash_config.causal"
    elif not own:
        causal, how = False, f"{PROPOSER}: bidirectional always"
    elif "is_causal" not in own:
        causal, how = True, f"{MODEL}: _dflash_layer_causal does not read is_causal, sliding layers are causal"
    else:
        causal, how = wanted, f"{MODEL}: _dflash_layer_causal reads is_causal"
    return Fault("causality-flipped-sliding", causal != wanted, how)


def k_norm(model: str, python: Path) -> Fault:
    """One call for all layers needs a kernel that knows a weight per layer: the kernel is asked."""
    own = body(model, "_normalize_context_k")
    if not re.search(r"^ +self\._k_norm_weights,$", own, re.M):
        return Fault("context-k-norm-first", False, f"{MODEL}: normalises the context keys layer by layer")
    done = subprocess.run(
        [str(python), "-c", KERNEL], env=_environment(python, 1, 1), capture_output=True, text=True, check=False
    )
    answered = {"first": (True, "gives every layer the first one's"), "each": (False, "gives each layer its own")}
    said = (done.stdout.strip() or "nothing").splitlines()[-1]
    there, says = answered.get(said, (None, "does not answer" if done.returncode else f"gives {said} of the two"))
    how = f"{MODEL}: _normalize_context_k, one rms_norm call for all layers; that kernel, called with two, {says}"
    return Fault("context-k-norm-first", there, how)
