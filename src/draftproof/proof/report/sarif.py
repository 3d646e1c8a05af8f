"""SARIF 2.1.0: one result per finding, one rule per code; places become files and lines where they name one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from draftproof import __version__
from draftproof.proof.findings import Evidence, Finding
from draftproof.proof.rules import PAGES

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_PLACE = re.compile(
    r"^(?P<file>[^:]+?\.(?:json|toml|gguf|safetensors|py|ya?ml|log|txt))(?:, line (?P<line>\d+))?(?::|$)"
)


def sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """The document. Candidates are notes, whatever their severity would be."""
    listed = list(findings)
    codes = sorted({f.code for f in listed})
    driver = {
        "name": "draftproof",
        "version": __version__,
        "rules": [_rule(code) for code in codes],
    }
    results = [_result(f, codes.index(f.code)) for f in listed]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _rule(code: str) -> dict[str, Any]:
    page = PAGES[code]
    return {
        "id": code,
        "shortDescription": {"text": page.meaning},
        "help": {"text": f"{page.remedy} Next probe: {page.probe}"},
        "properties": {"area": page.area},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    message = f"{finding.says}. {finding.remedy}".rstrip()
    locations = [found for one in finding.evidence if (found := _location(one)) is not None]
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity] if finding.counts else "note",
        "message": {"text": message},
        "properties": {"confidence": round(finding.confidence, 3), "confidence_level": finding.level},
    }
    return result | ({"locations": locations[:1], "relatedLocations": locations[1:]} if locations else {})


def _location(evidence: Evidence) -> dict[str, Any] | None:
    found = _PLACE.match(evidence.where)
    if found is None:
        return None
    place: dict[str, Any] = {"artifactLocation": {"uri": found["file"].replace(" ", "%20")}}
    if found["line"]:
        place["region"] = {"startLine": int(found["line"])}
    return {"physicalLocation": place, "message": {"text": evidence.what}}
