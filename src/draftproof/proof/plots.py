"""The picture of a diagnosis: acceptance by position against the healthy band and posted faults."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path
from typing import Any

from draftproof.errors import UsageError
from draftproof.intervals import wilson
from draftproof.proof.curves import band, nearest
from draftproof.proof.diagnosis import Report

_OBSERVED, _BAND, _HEALTHY, _FAULTS = "#1f4e79", "#8fbf8f", "#2e7d32", ("#c0504d", "#d99a3d")
_COLOURS = {"faulty": "#b03a2e", "suspicious": "#b9770e", "inconclusive": "#5d6d7e", "healthy": "#1e8449"}


def save_plot(report: Report, out: Path) -> None:
    """``.png``, ``.svg`` or ``.html`` (a page that holds the picture). Raises UsageError without a curve."""
    if out.suffix.lower() not in (".png", ".svg", ".html"):
        raise UsageError(f"--plot {out}: ends in neither .png, .svg nor .html")
    if not report.acceptance.curve:
        raise UsageError(f"--plot {out}: there is no acceptance per position to draw; give --log or --metrics")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure = draw(report)
    if out.suffix.lower() == ".html":
        out.write_text(_page(report, figure), encoding="utf-8")
    else:
        figure.savefig(out, dpi=150)


def draw(report: Report) -> Any:
    """A matplotlib figure; made without pyplot, so nothing is left open and no display is needed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    it = report.acceptance
    positions = list(range(1, len(it.curve) + 1))
    edges = band(it.method, len(positions))
    if edges is not None:
        axes.fill_between(positions, *edges, color=_BAND, alpha=0.35, lw=0, label="healthy: low line … best published")
    for (name, curve), colour in zip(_compared(report), (_HEALTHY, *_FAULTS), strict=False):
        shown = curve[: len(positions)]
        if shown:
            axes.plot(range(1, len(shown) + 1), shown, "--", color=colour, lw=1.3, marker=".", label=name)
    _observed(axes, report, positions)
    axes.set(xlabel="position in the draft", ylabel="share of drafts accepted up to here", ylim=(0, 1.02))
    axes.set_xticks(positions if len(positions) <= 16 else positions[::2])
    axes.set_xlim(0.7, max(len(positions), 2) + 0.3)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    axes.set_title(_title(report), loc="left", fontsize=10.5, color=_COLOURS[report.verdict.kind])
    return figure


def _compared(report: Report) -> list[tuple[str, tuple[float, ...]]]:
    """What to draw beside the observation: this pair's own fingerprints, healthy first, else posted faults."""
    it = report.acceptance
    if report.likely:
        sure = {match.name: match.probability for match in report.resembles}
        return [(f"{name} in the laboratory, {sure.get(name, 0.0):.0%}", curve) for name, curve in report.likely]
    if report.verdict.kind == "healthy":
        return []
    posted = nearest(it.curve, it.drafts)
    faults = [(f"{curve.label} ({curve.source}), likeness {share:.0%}", curve.rates) for curve, share in posted]
    return [("", ()), *faults]


def _observed(axes: Any, report: Report, positions: list[int]) -> None:
    it = report.acceptance
    label = "observed" + (f" ({it.drafts:g} drafts, 95 % intervals)" if it.drafts else " (no counts, no intervals)")
    if not it.drafts:
        axes.plot(positions, it.curve, "o-", color=_OBSERVED, lw=1.8, ms=4.5, label=label)
        return
    intervals = [wilson(min(rate, 1.0) * it.drafts, it.drafts) or (rate, rate) for rate in it.curve]
    spans = [
        [max(rate - low, 0.0) for rate, (low, _) in zip(it.curve, intervals, strict=True)],
        [max(high - rate, 0.0) for rate, (_, high) in zip(it.curve, intervals, strict=True)],
    ]
    axes.errorbar(positions, it.curve, yerr=spans, fmt="o-", color=_OBSERVED, lw=1.8, ms=4.5, capsize=2.5, label=label)


def _title(report: Report) -> str:
    it = report.acceptance
    length = f", {it.length:.2f} tokens per draft" if it.length is not None else ""
    causes = [cause.finding.code for cause in report.verdict.causes if cause.finding.counts][:2]
    return f"{report.verdict.kind}{length}" + (f"\n{', '.join(causes)}" if causes else "")


def _page(report: Report, figure: Any) -> str:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    encoded = base64.b64encode(picture.getvalue()).decode("ascii")
    rows = "".join(
        f"<tr><td>{html.escape(f.code)}</td><td>{f.severity}</td><td>{f.level}</td><td>{html.escape(f.says)}</td></tr>"
        for f in report.verdict.findings
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>draftproof diagnose</title>'
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}"
        "img{width:100%}td,th{padding:.25rem .6rem;text-align:left;vertical-align:top}</style>"
        f"<h1>{html.escape(report.verdict.kind)}</h1>"
        f'<img alt="acceptance by position" src="data:image/png;base64,{encoded}">'
        f"<table><tr><th>code<th>severity<th>confidence<th>what was found</tr>{rows}</table></html>\n"
    )
