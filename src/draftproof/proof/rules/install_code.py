"""INSTALL: what the installed code does, against what its version says and against what the drafter's file means."""

from __future__ import annotations

from draftproof.proof.case import Case
from draftproof.proof.findings import Evidence, Finding
from draftproof.proof.install.cases import install_of
from draftproof.proof.install.rows import described, together
from draftproof.proof.rules.registry import Said, rule


@rule(
    "INSTALL_SOURCE_DIVERGES",
    "INSTALL",
    "warning",
    meaning="The installed files behave otherwise than the release they claim to be, or modules, kernels or model "
    "files are missing.",
    derived="a behaviour or source probe of the installed code contradicts the release matrix, or the two contradict "
    "each other; an import error of a speculator module",
    remedy="Reinstall the release, rebuild or re-pull the image; if the patch is meant, judge by levels 4 and 5.",
    probe="Compare file hashes with the wheel; print the image digest.",
    sources=("AEON#6", "AEON#7", "club-3090#1064", "club-3090#759", "SGLang dflash_utils"),
)
def source_diverges(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case) or {}
    for held in (install.get("facts") or {}).values():
        where = Evidence(held["how"], f"{install['host']}: {held['where']}")
        if held["value"] is not None and held["release_says"] not in (None, held["says"]):
            version = f"{case.engine.name} {case.engine.version}"
            says = f"{held['asks']}: {held['says']} ({held['level']}), in the release {version}: {held['release_says']}"
            yield Finding("INSTALL_SOURCE_DIVERGES", "warning", 0.95, says, (where,))
        if held["source_says"] is not None:
            says = (
                f"{held['asks']}: the functions behave as {held['says']!r}, the source reads as {held['source_says']!r}"
            )
            yield Finding("INSTALL_SOURCE_DIVERGES", "warning", 0.9, says, (where,))


@rule(
    "INSTALL_DRAFTER_MISREAD",
    "INSTALL",
    "error",
    meaning="This installed engine sees something else in the drafter's config than the file means, or refuses it.",
    derived="the user's config.json through the engine's own shipped functions, field by field",
    remedy="Upgrade to a release that reads it (draftproof check DRAFTER --engine all), or change what the row names.",
    probe="draftproof check DRAFTER --engine NAME==VERSION",
)
def misread(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case) or {}
    chain = (install.get("behaviour") or {}).get("chain") or {}
    for row in together(chain.get("rows") or []):
        if row["same"]:
            continue
        file = Evidence(f"file: {row['file']}", case.where("drafter.config"))
        engine = Evidence(f"engine: {row['engine']}", f"{install['host']}: {row['where']}")
        yield Finding("INSTALL_DRAFTER_MISREAD", "error", 0.95, described(row), (file, engine))
