"""A tiny target and drafter whose law of answers can be computed exactly."""

import itertools
from functools import cache

import numpy as np
import torch

from draftproof.engine.sampling import TokenHistory, distribution, process_logits
from draftproof.engine.types import SamplingParams

from .naive import naive_logits, naive_probs

VOCAB, LENGTH = 6, 3
PROMPT = [2, 4]
STOP_IDS = [5]

PARAMS = {
    "plain": SamplingParams(temperature=1.0),
    "temperature": SamplingParams(temperature=0.6),
    "top_k": SamplingParams(temperature=1.2, top_k=3),
    "top_p": SamplingParams(temperature=1.0, top_p=0.8),
    "min_p": SamplingParams(temperature=1.0, min_p=0.1),
    "penalties": SamplingParams(temperature=0.9, repetition_penalty=1.4, presence_penalty=0.7, frequency_penalty=0.9),
    "everything": SamplingParams(
        temperature=0.8,
        top_k=4,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=1.2,
        frequency_penalty=0.5,
        logit_bias={1: 0.8, 3: -0.5},
        min_tokens=2,
    ),
}


class World:
    """A target and a drafter, with every distribution computed once per context."""

    def __init__(self, params, path_counts=True):
        generator = np.random.default_rng(20260729)
        self.params = params
        self.table = generator.normal(size=(VOCAB, VOCAB, VOCAB))
        # The drafter resembles the target averaged over what it cannot see, blurred.
        blur = generator.normal(size=(VOCAB, 3, VOCAB)) * 0.6
        drafts = torch.tensor(self.table.mean(axis=0)[:, None] + blur, dtype=torch.float32)
        self.drafts = [[rows[:depth] for depth in range(4)] for rows in drafts]
        self.path_counts = path_counts

    @cache  # noqa: B019 - a few hundred contexts of a test's world
    def row(self, out, path):
        """Processed target logits after ``out`` (committed) and ``path`` (drafted)."""
        before = (*PROMPT, *out, *path)
        logits = torch.tensor(self.table[before[-2], before[-1]], dtype=torch.float32)
        history = TokenHistory(PROMPT, VOCAB)
        for token in out:
            history.append(token)
        counted = path if self.path_counts else ()
        return process_logits(logits, self.params, history, counted, STOP_IDS, len(out))

    @cache  # noqa: B019
    def p(self, out, path):
        return distribution(self.row(out, path), self.params)

    @cache  # noqa: B019
    def bare_p(self, out, path):
        """With temperature only."""
        return distribution(self.row(out, path), SamplingParams(temperature=self.params.temperature))

    def exact(self):
        """Probability of each of the VOCAB^LENGTH answers, by the naive definitions only."""
        result = np.ones((VOCAB,) * LENGTH)
        for answer in itertools.product(range(VOCAB), repeat=LENGTH):
            for i, token in enumerate(answer):
                before = (*PROMPT, *answer[:i])
                logits = naive_logits(self.table[before[-2], before[-1]], self.params, PROMPT, answer[:i], STOP_IDS)
                result[answer] *= naive_probs(logits, self.params)[token]
        return result.ravel()

    def answer(self, rng, one_round):
        out = ()
        while len(out) < LENGTH:
            depth = 1 + (len(out) + rng.seed) % 3  # the law must not depend on block lengths either
            drafted = self.drafts[(*PROMPT, *out)[-1]][depth]
            out = (*out, *one_round(self, out, drafted, rng).committed)
        return out[:LENGTH]
