"""Show that a drafter can tell right from wrong, on z-lab's own model, before it is used in a comparison.

Runs in the environment of ``requirements-zlab.txt``. For every round of z-lab's loop the draft is computed
again without its cache: once as it is (must equal the loop's), then under one fault at a time. Prints JSON:
``faults`` maps each fault to the share of drafted tokens it changes, ``naive_equal`` says whether the loop's
text equals that of a greedy loop which re-reads the whole text for every token, ``uncached_equal`` whether
its drafts equal those computed without a cache, ``produced`` counts the rounds by tokens produced::

    python zlab_witness.py --target FOLDER --drafter FOLDER --prompts FILE.json --max-new-tokens N
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import zlab_runner as runner
from dflash import model as zlab

Rounds = list[tuple[int, int]]  # (anchor position, drafted tokens)


def naive_greedy(target: Any, ids: list[int], max_new_tokens: int, stops: list[int]) -> list[int]:
    """The target alone, without any cache."""
    text = list(ids)
    for _ in range(max_new_tokens):
        text.append(int(target(torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
        if text[-1] in stops:
            break
    return text[len(ids) :]


def list_rounds(record: dict[str, Any]) -> Rounds:
    """Where each round's block began and how much it drafted."""
    rounds, anchor = [], len(record["prompt_token_ids"])
    for produced, drafted in zip(record["produced"], record["drafted"], strict=True):
        rounds.append((anchor, len(drafted)))
        anchor += produced
    return rounds


def draft_again(drafter: Any, target: Any, text: list[int], taps: torch.Tensor, rounds: Rounds) -> list[int]:
    """All rounds' drafts, computed from the final text without the drafter's cache."""
    drafts: list[int] = []
    for anchor, count in rounds:
        block = torch.full((1, count + 1), drafter.mask_token_id)
        block[0, 0] = text[anchor]
        hidden = drafter(
            target_hidden=taps[:, :anchor],
            noise_embedding=target.get_input_embeddings()(block),
            position_ids=torch.arange(anchor + count + 1)[None],
        )
        drafts += drafter.compute_logits(hidden[:, 1:], target.get_output_embeddings())[0].argmax(-1).tolist()
    return drafts


@contextmanager
def altered(layer: Any, name: str, value: object) -> Iterator[None]:
    """One attention layer of the drafter with one attribute changed."""
    attention = layer.self_attn
    before = getattr(attention, name)
    setattr(attention, name, value)
    try:
        yield
    finally:
        setattr(attention, name, before)


def drafts_under_faults(drafter: Any, target: Any, text: list[int], rounds: Rounds) -> dict[str, list[int]]:
    """The right drafts ("none") and those under each fault."""
    states = target(torch.tensor([text]), output_hidden_states=True).hidden_states
    ids = drafter.target_layer_ids
    taps = zlab.extract_context_feature(states, ids)
    early = zlab.extract_context_feature(states, [i - 1 for i in ids])
    found = {
        "none": draft_again(drafter, target, text, taps, rounds),
        "layer ids one early": draft_again(drafter, target, text, early, rounds),
    }
    for i, layer in enumerate(drafter.layers):
        with altered(layer, "is_causal", not layer.self_attn.is_causal):
            found[f"causality of layer {i}"] = draft_again(drafter, target, text, taps, rounds)
        if layer.self_attn.sliding_window is not None:
            with altered(layer, "sliding_window", None):
                found[f"no window in layer {i}"] = draft_again(drafter, target, text, taps, rounds)
    return found


@torch.inference_mode()
def examine(target: Any, drafter: Any, prompts: list[list[int]], max_new_tokens: int) -> dict[str, object]:
    """The report described at the top of this file."""
    stops = runner.stop_ids(target)
    changed: Counter[str] = Counter()
    produced: Counter[int] = Counter()
    total, naive_equal, uncached_equal = 0, True, True
    for ids in prompts:
        record = runner.run_prompt(target, drafter, ids, max_new_tokens, stops)
        produced.update(record["produced"])
        naive_equal &= record["token_ids"] == naive_greedy(target, ids, max_new_tokens, stops)
        found = drafts_under_faults(drafter, target, ids + record["token_ids"], list_rounds(record))
        right = found.pop("none")
        uncached_equal &= right == [token for draft in record["drafted"] for token in draft]
        total += len(right)
        for fault, drafts in found.items():
            changed[fault] += sum(a != b for a, b in zip(right, drafts, strict=True))
    return {
        "naive_equal": naive_equal,
        "uncached_equal": uncached_equal,
        "produced": dict(sorted(produced.items())),
        "faults": {fault: round(count / total, 4) for fault, count in changed.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Is this drafter a witness?")
    parser.add_argument("--target", required=True)
    parser.add_argument("--drafter", required=True)
    parser.add_argument("--prompts", type=Path, required=True, help="JSON list of lists of token ids")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    target = runner.load_target(args.target, torch.float32)
    drafter = runner.load_drafter(args.drafter, torch.float32)
    report = examine(target, drafter, json.loads(args.prompts.read_text()), args.max_new_tokens)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
