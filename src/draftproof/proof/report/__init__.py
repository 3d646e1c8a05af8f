"""Findings for machines: SARIF for code scanning, JUnit for test reports."""
