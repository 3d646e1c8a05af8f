"""The definitions spelled out densely and slowly, to judge the fast implementations by."""

import numpy as np


def naive_logits(logits, params, prompt, output, stop_ids=()):
    """Logit bias, min_tokens, penalties over a whole row; ``output`` includes drafted tokens before it."""
    row = np.array(logits, dtype=np.float64)
    for token, bias in (params.logit_bias or {}).items():
        row[token] += bias
    if len(output) < params.min_tokens:
        for token in stop_ids:
            row[token] = -np.inf
    for token in range(len(row)):
        if token in prompt or token in output:
            r = params.repetition_penalty
            row[token] = row[token] / r if row[token] > 0 else row[token] * r
        count = list(output).count(token)
        row[token] -= params.frequency_penalty * count + params.presence_penalty * (count > 0)
    return row


def naive_probs(logits, params):
    """Temperature, min-p, top-k, top-p by repeated softmax over a whole row."""
    row = np.array(logits, dtype=np.float64)
    if params.temperature == 0:
        return np.eye(len(row))[int(np.argmax(row))]
    row = row / params.temperature
    if params.min_p > 0:
        probs = softmax(row)
        row = np.where(probs >= params.min_p * probs.max() * (1 - 1e-12), row, -np.inf)
    if 0 < params.top_k < len(row):
        row = np.where(row >= np.sort(row)[-params.top_k], row, -np.inf)
    if params.top_p < 1:
        probs = softmax(row)
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        before = 0.0
        for i in order:
            if before >= params.top_p:
                row[i] = -np.inf
            before += probs[i]
    return softmax(row)


def softmax(row):
    weights = np.exp(row - row.max())
    return weights / weights.sum()
