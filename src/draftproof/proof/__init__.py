"""Is a deployment of a drafter wired right? Evidence → facts (a case) → rules → findings → verdict.

Nothing here imports torch, except ``proof.lab`` and ``proof.capture.replay``: it has to start at once on a laptop or
a gateway.
"""
