"""The line itself: flags that contradict each other or have no effect, graphs that are too small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from draftproof.proof.case import Case
from draftproof.proof.findings import Finding, Severity
from draftproof.proof.judging import CERTAIN
from draftproof.proof.launching import drafted
from draftproof.proof.quantities import number
from draftproof.proof.rules.registry import Said, rule

PROBLEMS = "launch_problems"  # filled by the parser of a launch line


@rule(
    "LAUNCH_FLAG_INEFFECTIVE",
    "LAUNCH",
    "warning; error if the engine refuses the line",
    meaning="A flag of the launch line is unknown, contradicts another or has no effect.",
    derived="The launch line, parsed as the engine parses it: a --speculative-config that is not JSON, has unknown "
    "keys or is replaced by dotted values; flags that were removed; counts that the engine forces; draft flags without "
    "a drafter.",
    remedy="Use the corrected line.",
    probe="Print the resolved configuration at start.",
    sources=("vLLM argparse_utils.py", "SGLang server_args.py", "llama.cpp arg.cpp"),
)
def launch_flag_ineffective(case: Case, earlier: frozenset[str]) -> Said:
    found = case.engine.options.get(PROBLEMS)
    for problem in found if isinstance(found, Sequence) and not isinstance(found, str) else ():
        if not isinstance(problem, Mapping):
            continue
        severity: Severity = "error" if problem.get("severity") == "error" else "warning"
        says, remedy = str(problem.get("what")), str(problem.get("remedy") or "")
        evidence = (case.evidence("engine.launch", says),)
        yield Finding("LAUNCH_FLAG_INEFFECTIVE", severity, CERTAIN, says, evidence, remedy, "")


@rule(
    "CAPTURE_SIZES_TOO_SMALL",
    "LAUNCH",
    "info; warning if no batch with drafts has a graph",
    meaning="Steps with drafts are larger than the largest captured graph and run without one.",
    derived="The largest of cudagraph_capture_sizes (or max_cudagraph_capture_size, in tokens) is below k + 1, or "
    "below max_num_seqs × (k + 1).",
    remedy="Capture (k + 1) × n for each number of streams n in use.",
    probe="Step time at n - 1, n and n + 1 streams.",
    sources=("FreeToken#173", "sparkring#213", "syv-ai gotcha 27"),
)
def capture_sizes_too_small(case: Case, earlier: frozenset[str]) -> Said:
    options, asked = case.engine.options, drafted(case)
    sizes = options.get("cudagraph_capture_sizes")
    known = [s for s in sizes if type(s) is int] if isinstance(sizes, list) else []
    largest = max(known, default=None) or number(options, "max_cudagraph_capture_size")
    if largest is None or asked is None or options.get("enforce_eager"):
        return
    step = asked[0] + 1
    streams = number(options, "max_num_seqs")
    if largest >= step * (streams or 1):
        return
    severity: Severity = "warning" if largest < step else "info"
    fits = int(largest // step)
    says = f"the largest graph holds {largest:.0f} tokens; a stream needs {step} per step, so "
    says += "no step with drafts has one" if fits == 0 else f"more than {fits} streams run without one"
    key = "cudagraph_capture_sizes" if known else "max_cudagraph_capture_size"
    needed = int(step * (streams or 1))
    remedy = f"--max-cudagraph-capture-size {needed}, or sizes up to {needed}"
    yield Finding(
        "CAPTURE_SIZES_TOO_SMALL", severity, CERTAIN, says, (case.evidence(f"engine.options.{key}", says),), remedy, ""
    )
