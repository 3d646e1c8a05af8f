"""The doctor's findings as JUnit XML, for CI: one suite per host and engine, one case per level."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

from draftproof.proof.case import Case
from draftproof.proof.findings import Finding
from draftproof.proof.install.cases import install_of
from draftproof.proof.install.closing import COULD_NOT_TELL
from draftproof.proof.install.hosts import LEVELS

_LEVEL = {
    "INSTALL_SHADOWED": "provenance",
    "INSTALL_LEFTOVERS": "provenance",
    "INSTALL_UNRECORDED": "provenance",
    "INSTALL_ENGINE_MISSING": "provenance",
    "INSTALL_UNREACHABLE": "provenance",
    "ENGINE_VERSION_UNKNOWN": "provenance",
    "INSTALL_NOT_IMPORTABLE": "importability",
    "INSTALL_OPERATORS_MISSING": "importability",
    "INSTALL_SOURCE_DIVERGES": "source",
    "INSTALL_DRAFTER_MISREAD": "behaviour",
}


def junit(judged: Iterable[tuple[Case, tuple[Finding, ...]]]) -> str:
    """The XML text. Candidates and infos pass; what could not be told is an error, not a failure."""
    top = ElementTree.Element("testsuites", name="draftproof doctor")
    for case, findings in judged:
        install = install_of(case) or {}
        suite = ElementTree.SubElement(
            top, "testsuite", name=f"{install.get('host')}: {case.engine.name or 'no engine'}"
        )
        serious = [f for f in findings if f.counts and f.severity != "info"]
        for level in LEVELS:
            mine = [f for f in serious if _LEVEL.get(f.code, "integrity") == level]
            entry = ElementTree.SubElement(suite, "testcase", classname=suite.get("name", ""), name=level)
            if not mine and level not in (install.get("levels") or ()):
                ElementTree.SubElement(entry, "skipped")
            for finding in mine:
                kind = "error" if finding.code in COULD_NOT_TELL else "failure"
                told = ElementTree.SubElement(entry, kind, type=finding.code, message=_printable(finding.says))
                told.text = _printable("\n".join(f"{e.what} ({e.where})" for e in finding.evidence))
        suite.set("tests", str(len(LEVELS)))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("errors", str(len(suite.findall("testcase/error"))))
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """XML knows no control characters, and file names may hold them."""
    return "".join(c if c in "\t\n" or (ord(c) >= 32 and not 0xD800 <= ord(c) <= 0xDFFF) else "�" for c in text)
