"""Is acceptance the problem, or the price of a step; and how many tokens should be drafted?

A step that drafts and verifies n tokens brings A(n) = 1 + p_1 + … + p_n tokens and takes C(n) plain steps; the gain is
A(n) / C(n). A(n) follows from the measured curve. C(n) is measured where runs with several n are at hand; from one run
only its two extremes are known: everything is paid whatever n is, or everything in proportion to the rows verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from draftproof.proof.case import Case, Observation
from draftproof.proof.comparing import comparisons
from draftproof.proof.quantities import Acceptance, acceptance, number
from draftproof.proof.rules.cost import cost, gain, length_counted

Problem = Literal["acceptance", "cost", "both", "neither", "unknown"]
_WORTH = 1.25  # a gain below this is hardly worth a drafter
_DEAR = 3.0  # plain steps


@dataclass(frozen=True)
class Choice:
    """Drafting ``n`` tokens: tokens per step, and the gain over plain decoding between its two extremes."""

    n: int
    length: float
    gain_low: float
    gain_high: float


@dataclass(frozen=True)
class BreakEven:
    """``length`` and ``cost``: tokens that a step brings, plain steps that it takes (break-even where they are
    equal); ``choices``: by n; ``measured``: whether their cost comes from runs with several n."""

    problem: Problem
    length: float | None
    cost: float | None
    gain: float | None
    choices: tuple[Choice, ...]
    measured: bool
    advice: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "tokens_per_step": self.length,
            "plain_steps_per_step": self.cost,
            "gain": self.gain,
            "cost_curve_measured": self.measured,
            "by_n": [vars(choice) for choice in self.choices],
            "advice": self.advice,
        }


def break_even(case: Case) -> BreakEven | None:
    """None without an acceptance length or without anything about speed."""
    it, length = acceptance(case), length_counted(case)
    steps, speedup = cost(case), gain(case)
    if speedup is None and steps is not None and length is not None:
        speedup = length / steps
    curve = lengths(it)
    costs = _measured_costs(case)
    if length is None or (steps is None and len(costs) < 2):
        return None
    choices = _choices(curve, it, steps, costs)
    problem = _problem(it, length, steps, speedup)
    return BreakEven(problem, length, steps, speedup, choices, len(costs) >= 2, _advice(choices, it, len(costs) >= 2))


def lengths(it: Acceptance) -> list[float]:
    """A(1), A(2), … from the measured curve; empty without one."""
    total, found = 1.0, []
    for rate in it.curve:
        total += rate
        found.append(total)
    return found


def _measured_costs(case: Case) -> dict[int, float]:
    """Plain steps per step by n, from the primary run and those that differ from it in n alone."""
    if case.primary is None:
        return {}
    base = number(case.primary.metrics, "baseline_tok_s")
    base_step = number(case.primary.metrics, "baseline_step_ms")
    runs: list[tuple[Observation, Acceptance]] = [(case.primary, acceptance(case))]
    runs += [(one.other, one.its) for one in comparisons(case) if one.only("k")]
    found: dict[int, float] = {}
    for run, it in runs:
        speed, step = number(run.metrics, "tok_s"), number(run.metrics, "step_ms")
        if not it.k_sure or not it.k or it.k != int(it.k):
            continue
        if step and base_step:
            found[int(it.k)] = step / base_step
        elif speed and base and it.length is not None:
            found[int(it.k)] = it.length * base / speed
    return {k: cost for k, cost in found.items() if cost > 0}  # absurd speeds underflow to nothing


def _choices(curve: list[float], it: Acceptance, steps: float | None, costs: dict[int, float]) -> tuple[Choice, ...]:
    if not curve or steps is None or not it.k:
        return ()
    found = []
    for n, length in enumerate(curve, start=1):
        if len(costs) >= 2:
            low = high = _between(costs, n)
        else:
            low, high = steps, max(1.0, 1.0 + (steps - 1.0) * (n + 1) / (it.k + 1))
        found.append(Choice(n, length, length / max(low, high), length / min(low, high)))
    return tuple(found)


def _between(costs: dict[int, float], n: int) -> float:
    """On the line between the measured neighbours; beyond them the nearest one."""
    below = max((k for k in costs if k <= n), default=min(costs))
    above = min((k for k in costs if k >= n), default=max(costs))
    if above <= below:
        return costs[below]
    return costs[below] + (costs[above] - costs[below]) * (n - below) / (above - below)


def _problem(it: Acceptance, length: float, steps: float | None, speedup: float | None) -> Problem:
    if speedup is None or steps is None:
        return "unknown"
    if speedup >= _WORTH:
        return "neither"
    low, dear = length < (it.line or 0.0), steps >= _DEAR
    return "both" if low and dear else "acceptance" if low else "cost" if dear else "both" if speedup < 1 else "neither"


def _advice(choices: tuple[Choice, ...], it: Acceptance, measured: bool) -> str:
    if not choices:
        return "A curve per position and the time of a step would tell how many tokens to draft."
    worst = max(choices, key=lambda c: c.gain_low)
    best = max(choices, key=lambda c: c.gain_high)
    if best.gain_high < 1.0:
        return f"Switch drafting off here: at best (N = {best.n}) it is {best.gain_high:.2f}x of plain decoding."
    if measured or worst.n == best.n:
        return (
            f"Draft N = {best.n} tokens: {best.gain_high:.2f}x, from the {'measured costs' if measured else 'curve'}."
        )
    low, high = sorted((worst.n, best.n))
    now = f" instead of {it.k:g}" if it.k and it.k > high else ""
    return (
        f"The best N lies between {low} and {high}{now} ({worst.gain_low:.2f}x … {best.gain_high:.2f}x); "
        f"step times at N = {low} and N = {high} would settle it."
    )
