"""JUnit XML: one test case per code that was looked at; faults and risks fail theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from xml.etree import ElementTree

from draftproof.proof.findings import Area, Finding
from draftproof.proof.rules import PAGES


def junit(findings: Iterable[Finding], areas: Iterable[Area], suite: str, fail_on: Iterable[str]) -> str:
    """The XML text. ``fail_on``: severities that fail a test case; others are told in its output."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.code].append(finding)
    wanted, failing = set(areas), set(fail_on)
    root = ElementTree.Element("testsuites")
    tests = ElementTree.SubElement(root, "testsuite", name=suite)
    failures = 0
    for code, page in sorted(PAGES.items()):
        if page.area not in wanted:
            continue
        case = ElementTree.SubElement(tests, "testcase", classname=f"draftproof.{page.area}", name=code)
        for finding in found[code]:
            text = _clean(f"{finding.says}\n{finding.remedy}\n" + "\n".join(e.where for e in finding.evidence))
            if finding.counts and finding.severity in failing:
                failures += 1
                ElementTree.SubElement(case, "failure", type=finding.severity, message=_clean(finding.says)).text = text
            else:
                ElementTree.SubElement(case, "system-out").text = f"{finding.severity}, {finding.level}: {text}"
    tests.set("tests", str(len(tests)))
    tests.set("failures", str(failures))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _clean(text: str) -> str:
    """XML knows no control characters."""
    return "".join(c if c in "\n\t" or c.isprintable() else "�" for c in text)
