"""Rules: one pure function per code, from a case to what it says. Importing this package registers all of them."""

from __future__ import annotations

import importlib
import pkgutil

from draftproof.proof.rules.registry import PAGES, Judged, judge, rule

__all__ = ["PAGES", "Judged", "judge", "rule"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
