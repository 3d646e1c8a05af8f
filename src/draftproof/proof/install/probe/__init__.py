"""What runs where the engine is installed: standard library only, Python 3.8 or newer, writes nothing.

These modules are sent as one script through stdin (``wire.bundle``), to this machine's Python, another environment's,
or another host's over ssh; nothing of draftproof has to be there. They import one another relatively, and nothing else
that is not in the standard library.
"""
