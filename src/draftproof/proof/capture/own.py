"""draftproof's own engine writes captures too: a drafter that passes everything on and tells a recorder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import draftproof
from draftproof.drafters.base import CommittedRows, Draft, DraftRequest
from draftproof.drafters.dflash import DFlashDrafter
from draftproof.engine.memory import KVShape
from draftproof.engine.pool import KVPool
from draftproof.errors import CapabilityError
from draftproof.proof.capture.recorder.recorder import Recorder, Round
from draftproof.proof.capture.recorder.weights import sample_ids


class _Live:
    """A sequence of the pool that a request occupies now. ``rows``: committed since its last block."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[tuple[int, Tensor]] = []
        self.end = 0
        self.begun = False


class RecordingDrafter:
    """In front of ``inner``. Rows of a request come between its blocks; with each block they become a round."""

    def __init__(self, inner: DFlashDrafter, recorder: Recorder, target: str = "", drafter: str = "") -> None:
        if not isinstance(inner, DFlashDrafter):
            raise CapabilityError(f"only DFlash drafters read taps, so there is nothing to capture of {inner!r}")
        self.inner, self.recorder = inner, recorder
        self._names = {"target": target, "drafter": drafter}
        self._live: dict[int, _Live] = {}
        self._count = 0

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def tap_layers(self) -> Sequence[int]:
        return self.inner.tap_layers

    @property
    def kv_shapes(self) -> Sequence[KVShape]:
        return self.inner.kv_shapes

    @property
    def num_draft_tokens(self) -> int:
        return self.inner.num_draft_tokens

    @property
    def max_position(self) -> int | None:
        return self.inner.max_position

    def observe(self, pool: KVPool, committed: Sequence[CommittedRows], taps: Tensor | None) -> None:
        self.inner.observe(pool, committed, taps)
        if taps is None or not self.recorder.open:
            return
        for part in committed:
            live = self._live.get(part.seq)
            if live is None or live.end != part.start:
                self._count += 1
                live = self._live[part.seq] = _Live(f"request-{self._count}")
            live.rows.append((part.start, taps[list(part.rows)].detach().clone()))
            live.end = part.start + len(part.rows)

    def propose(self, pool: KVPool, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = self.inner.propose(pool, requests)
        told = [(r, d) for r, d in zip(requests, drafts, strict=True) if d.logits is not None and self._ready(r)]
        if told and self.recorder.open:
            if not self.recorder.begun:
                self.recorder.begin(self._facts(), self._weights())
            for count in sorted({r.count for r, _ in told}):  # a round's blocks are all as long
                self.recorder.add(self._round([(r, d) for r, d in told if r.count == count], pool))
        return drafts

    def _ready(self, request: DraftRequest) -> bool:
        live = self._live.get(request.seq)
        return live is not None and bool(live.rows) and live.end == len(request.token_ids) - 1

    def _round(self, told: Sequence[tuple[DraftRequest, Draft]], pool: KVPool) -> Round:
        ids: list[int] = []
        positions: list[int] = []
        starts, taps, prefixes = [0], [], {}
        for i, (request, _) in enumerate(told):
            live = self._live[request.seq]
            first = live.rows[0][0]
            if not live.begun and first:
                prefixes[i] = torch.tensor(list(request.token_ids[:first]))
            live.begun = True
            ids += request.token_ids[first : live.end]
            positions += range(first, live.end)
            taps += [rows for _, rows in live.rows]
            starts.append(len(ids))
            live.rows = []
        requests = [request for request, _ in told]
        wide = [draft.wide(self.inner.spec.vocab_size) for _, draft in told]
        logits = torch.stack([rows for rows in wide if rows is not None])
        top = torch.topk(logits, min(self.recorder.settings.top, logits.shape[-1]), dim=-1)
        plan = self.inner.block_plan(pool, requests)
        anchors = torch.tensor([request.token_ids[-1] for request in requests])
        masks = torch.full((len(told), requests[0].count), self.inner.spec.mask_token_id)
        tensors = {
            "token_ids": torch.tensor(ids),
            "positions": torch.tensor(positions),
            "query_start": torch.tensor(starts),
            "rejected": torch.zeros(len(told), dtype=torch.int64),
            "taps": torch.cat(taps),
            "anchors": anchors,
            "drafts": logits.argmax(-1),
            "block_ids": torch.cat([anchors[:, None], masks], dim=1),
            "block_positions": plan.positions.long().view(len(told), -1).clone(),
            "context_positions": torch.tensor(positions),
            "top_ids": top.indices,
            "top_logits": top.values.float(),
        }
        return Round([self._live[request.seq].name for request in requests], tensors, prefixes)

    def _facts(self) -> dict[str, Any]:
        spec, info = self.inner.spec, self.inner._target.info
        return {
            "engine": {
                "name": "draftproof",
                "version": draftproof.__version__,
                "commit": None,
                "runner": "native" if self.inner._native else "torch",
                "dtype": str(info.dtype).removeprefix("torch."),
                "attention_backend": "native" if self.inner._native else "torch",
                "tensor_parallel": 1,
            },
            "target": {"name": self._names["target"]},
            "drafter": {
                "name": self._names["drafter"],
                "config": None,
                "tap_layers": list(spec.tap_layers),
                "rope": {
                    "theta": spec.rope.theta,
                    "rotary_dim": int(spec.head_dim * spec.rope.partial_rotary_factor),
                },
                "mask_token_id": spec.mask_token_id,
                "layers": [{"window": spec.reach(i), "causal": x.causal} for i, x in enumerate(spec.layers)],
                "num_draft_tokens": self.inner.num_draft_tokens,
            },
        }

    def _weights(self) -> dict[str, Tensor]:
        """Under the names that the vLLM plugin uses."""
        w = self.inner.weights
        table = self.inner._embedding
        found = {
            "fc.weight": w.fc,
            "hidden_norm.weight": w.hidden_norm,
            "norm.weight": w.norm,
            # As it lies in memory: the scale of the block's inputs is no part of it.
            "mask_row": table[self.inner.spec.mask_token_id] if w.mask_embedding is None else w.mask_embedding,
            "embedding_sample": table[torch.tensor(sample_ids(len(table)), device=table.device)],
        }
        if w.head is not None:
            found["lm_head.weight"] = w.head
        if w.draft_to_target is not None:
            found["d2t"] = w.draft_to_target - torch.arange(len(w.draft_to_target), device=table.device)
        for i, layer in enumerate(w.layers):
            parts = {
                "self_attn.qkv_proj": torch.cat([layer.q, layer.k, layer.v]),
                "self_attn.o_proj": layer.o,
                "mlp.gate_up_proj": torch.cat([layer.gate, layer.up]),
                "mlp.down_proj": layer.down,
                "input_layernorm": layer.input_norm,
                "post_attention_layernorm": layer.post_norm,
                "self_attn.q_norm": layer.q_norm,
                "self_attn.k_norm": layer.k_norm,
            }
            found |= {f"layers.{i}.{name}.weight": t for name, t in parts.items() if t is not None}
        return found
