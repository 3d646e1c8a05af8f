"""What the releases do, cell by cell, as it was found by reading and running their shipped sources.

Written down independently of the package's own tables, so that both can be wrong only for reasons of their own.
"""

from __future__ import annotations

VLLM_COLUMNS = (
    "dflash zlab_ids_v1 zlab_ids_v2 speculators_ids zlab_config speculators_config window causality "
    "speculators_causal prefix_drop prefix_drop_optout dflash2 speculators_dflash2 symmetric_window wrapper_head "
    "max_length quantised_drafter runner_v2 mask_embedding"
)
_VLLM = """
0.19.1 no absent absent absent absent absent absent absent absent absent no no no no absent absent absent no no
0.20.1 yes raw absent as_written kept kept none none unset on no no no no absent one_short no no no
0.21.0 yes raw absent as_written kept kept none none unset on no no no no absent one_short no no no
0.22.0 yes plus_one absent as_written kept kept none none unset on no no no no absent one_short no no no
0.24.0 yes plus_one plus_one as_written kept kept none global unset on no no no no no exact no yes no
0.25.0 yes plus_one plus_one as_written kept kept uniform global unset on no no no yes no exact no yes yes
0.26.0 yes plus_one plus_one as_written kept kept mixed per_layer all_layers on no no no yes yes exact no yes yes
0.28.0 yes plus_one plus_one as_written kept kept mixed is_causal all_layers on no yes no yes yes exact no yes yes
0.30.0 yes plus_one plus_one as_written kept kept mixed is_causal all_layers on yes yes yes yes yes exact no yes yes
0.33.0 yes plus_one plus_one as_written kept kept mixed is_causal all_layers off yes yes yes yes yes exact yes yes yes
"""
SGLANG_COLUMNS = "dflash zlab_ids window causality rope dflash2 worker mask_embedding"
_SGLANG = """
0.5.10.post1 no absent absent absent absent absent absent absent
0.5.11 yes plus_one none none flat no v1 no
0.5.13 yes plus_one none none nested no v1 no
0.5.14 yes plus_one mixed sliding nested no v2 no
0.5.17 yes plus_one mixed is_causal_full nested no v2 no
0.5.18 yes plus_one mixed is_causal nested no v2 no
0.5.19 yes plus_one mixed is_causal nested yes v2 no
0.5.23 yes plus_one mixed is_causal nested yes v2 yes
"""


def _table(engine: str, columns: str, rows: str) -> dict[str, dict[str, str]]:
    names = columns.split()
    found = {}
    for line in rows.split("\n"):
        version, *cells = line.split() or [""]
        if version:
            assert len(cells) == len(names), line
            found[f"{engine}=={version}"] = dict(zip(names, cells, strict=True))
    return found


TRUTH = _table("vllm", VLLM_COLUMNS, _VLLM) | _table("sglang", SGLANG_COLUMNS, _SGLANG)
# Columns that were found by calling the shipped functions: they have to come out of level 5 wherever there is DFlash.
BY_CALLING = {
    "vllm": ("dflash", "zlab_ids_v1", "speculators_ids", "zlab_config", "speculators_config", "prefix_drop", "dflash2"),
    "sglang": ("dflash", "zlab_ids", "rope", "dflash2"),
}
