"""Names of the attributes that tie a payload, a script and the tiled IR together.

In a payload every compute op carries `OP` (its number in the dispatch) and, in a symbolic one, every call that yields
a knob's value `KNOB` (its name). A script marks the loops it makes with `LEVEL`, the op it tiled (`ANCHOR`) and which
of that op's loops they walk, in order (`LOOPS`). `COPY` is 1 for an op in or for the root op's reduction loops where
there is another, for everyone else, outside (0).
"""

from __future__ import annotations

OP = "felix.op"
KNOB = "felix.knob"
LEVEL = "felix.level"
ANCHOR = "felix.anchor"
LOOPS = "felix.loops"
COPY = "felix.copy"
