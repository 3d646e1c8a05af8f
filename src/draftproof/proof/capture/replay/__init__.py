"""Walk a capture from the weights to the drafts and name the first place where the engine leaves the truth.

Uses the reference engine, so it imports torch.
"""
