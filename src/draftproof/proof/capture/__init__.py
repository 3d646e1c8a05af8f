"""Capture and replay: record what a running engine gives its drafter, and find the first place where it is wrong.

``recorder`` runs inside the engine (vLLM's own environment, or our engine) and writes; ``manifest`` and ``reading``
check what was written; ``replay`` walks it through the reference engine. This package imports without torch.
"""
