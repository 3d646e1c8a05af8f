"""SERVING: what probes see of an answer's way to the client: pieces that are lost, counts that are wrong."""

from __future__ import annotations

from draftproof.proof.case import Case
from draftproof.proof.findings import Finding
from draftproof.proof.quantities import number
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.saying import CANDIDATE, COUNTED, PRIMARY


@rule(
    "STREAM_DIFFERS",
    "SERVING",
    "error; warning if only the reason to end differs",
    meaning="A streamed answer is not the whole one: pieces are lost, or another reason to end is given.",
    derived="streamed_lost: the whole text with pieces missing; streamed_finish: same text, another reason to end",
    remedy='Send the requests with "stream": false until the server\'s stream is mended; upgrade the engine.',
    probe='The same request with "stream": true and false at temperature 0, with the plain model as well.',
    sources=("vllm#42781",),
)
def stream_differs(case: Case, earlier: frozenset[str]) -> Said:
    """Texts that part in another way may come from numerics between two runs, so they make a candidate only."""
    if case.primary is None:
        return
    lost, finish, other = (
        number(case.primary.metrics, f"streamed_{name}") or 0.0 for name in ("lost", "finish", "differs")
    )
    if lost:
        evidence = (
            case.evidence(f"{PRIMARY}.streamed_lost", f"{lost:g} streamed answers lack pieces of the whole one"),
        )
        yield Finding("STREAM_DIFFERS", "error", COUNTED, "Streaming loses pieces of the text.", evidence)
    elif finish:
        evidence = (case.evidence(f"{PRIMARY}.streamed_finish", f"{finish:g} answers with another finish_reason"),)
        says = "Streamed and whole answers agree in their text, but not in why they end."
        yield Finding("STREAM_DIFFERS", "warning", COUNTED, says, evidence)
    elif other:
        evidence = (case.evidence(f"{PRIMARY}.streamed_differs", f"{other:g} answers part somewhere"),)
        says = "Streamed and whole answers to one prompt differ; two runs of the same kind may differ as well."
        yield Finding("STREAM_DIFFERS", "warning", CANDIDATE, says, evidence)


@rule(
    "USAGE_MISCOUNTED",
    "SERVING",
    "warning",
    meaning="The token counts that a server reports cannot be right: clients are billed and limited by them.",
    derived="usage_wrong: answers cut by max_tokens that count another number; usage_streamed: same text, other count",
    remedy='Do not rely on "usage"; count with the tokenizer, or upgrade the engine.',
    probe='One request with max_tokens 32 and "ignore_eos", whole and streamed with "include_usage".',
    sources=("draftproof probes",),
)
def usage_miscounted(case: Case, earlier: frozenset[str]) -> Said:
    if case.primary is None:
        return
    wrong, streamed = (number(case.primary.metrics, f"usage_{name}") or 0.0 for name in ("wrong", "streamed"))
    if wrong:
        says = "Answers that were cut at max_tokens report another number of completion tokens."
        evidence = (case.evidence(f"{PRIMARY}.usage_wrong", f"{wrong:g} answers"),)
        yield Finding("USAGE_MISCOUNTED", "warning", COUNTED, says, evidence)
    elif streamed:
        says = "The same text counts differently when streamed."
        evidence = (case.evidence(f"{PRIMARY}.usage_streamed", f"{streamed:g} answers"),)
        yield Finding("USAGE_MISCOUNTED", "warning", COUNTED, says, evidence)
