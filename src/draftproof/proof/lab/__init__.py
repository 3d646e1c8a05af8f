"""The counterfactual laboratory: the pair healthy and with each known fault switched on, and what each leaves behind.

Faults are made at the engine's own seams (a drafter's specification, its weights, its methods); the engine itself has
no switch for them. This package uses the engine, so it imports torch; comparing with fingerprints does not
(``draftproof.proof.fingerprints``).
"""
