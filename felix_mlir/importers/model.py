"""What every importer hands back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

PARAMETER_SCOPE = "model"
"""The scope under which the MLIR names its weights: `#flow.parameter.named<"model"::"layer.weight">`."""

EMBED_LIMIT_BYTES = 64 * 2**20
"""Total weight bytes up to which weights are compiled into the vmfb.

With its weights inside, a vmfb is one file to ship and run, and the compiler can fold and pack them. Every
build of the model pays for it: 64 MiB of dense layers take 64 MiB more of disk and 0.8 s instead of 0.6 s to
compile on a server core, 256 MiB of them 1.8 s instead of 0.7 s.
"""


@dataclass(frozen=True, eq=False)  # eq=False: `==` of arrays has no truth value, so two models are never equal.
class Model:
    """A model on disk, ready for iree-compile.

    `name` is safe as a file name. `mlir` is text or bytecode. `parameters` is the .irpa archive of the
    weights (scope PARAMETER_SCOPE), None when the weights are in `mlir` or there are none.
    `embed_parameters` says that they are to be compiled into the vmfb; when it is False and `parameters` is
    not None, the vmfb needs `--parameters=model=<parameters>` to run. `inputs` are example inputs of `@main`
    in order, None when the source brings none. `reference` is what eager torch returns for `inputs`, in the
    order of the results of `@main`, None when the source is MLIR; where torch has unsigned integers,
    iree.runtime returns signed ones of the same bits. `keep_f64` says that a PyTorch model has weights,
    inputs or results of f64.
    """

    name: str
    mlir: Path
    parameters: Path | None
    embed_parameters: bool
    inputs: tuple[np.ndarray, ...] | None
    reference: tuple[np.ndarray, ...] | None
    keep_f64: bool = False

    def compile_flags(self) -> tuple[str, ...]:
        """Return the flags iree-compile needs for this model, beside the target's."""
        flags: list[str] = []
        if self.keep_f64:
            # By default iree-compile turns f64 into f32, in the signature too, but not in the archive: what
            # it then writes is a vmfb of 4 GiB that no runtime loads.
            flags.append("--iree-input-demote-f64-to-f32=false")
        if self.parameters is not None and self.embed_parameters:
            flags.append(f"--iree-parameter-import={PARAMETER_SCOPE}={self.parameters}")
            # Without a limit none is imported; no weight of an embedded model exceeds this one.
            flags.append(f"--iree-parameter-import-maximum-size={EMBED_LIMIT_BYTES}")
        return tuple(flags)
