"""Comparing searchers: what tools/bench_search.py is made of.

`pool` is what a searcher sees of a table, `replay` runs searchers on pools, `holdout` finds or trains the cost model
that has not seen a table's op, `metrics` turns measurements into figures, `output` and `plot` show them.

`live` tunes ops for real and times the results beside eager torch, `live_output` shows them.
"""

from __future__ import annotations
