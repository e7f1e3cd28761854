"""Models as iree-compile reads them, from MLIR files, PyTorch modules and torch.export archives.

`load_model` turns any source a user may name into a `Model`: MLIR on disk whose public function is `@main`
(for an MLIR file, whatever it holds), the weights in an archive beside it, and, when the source is PyTorch,
example inputs with the outputs eager torch has for them. It raises RequestError, with one line on what to do,
for every source it cannot turn into one; whether a given MLIR file is valid is left to iree-compile.
`random_inputs` makes inputs for models that bring none.
"""

from __future__ import annotations

from felix_mlir.importers.load import load_model
from felix_mlir.importers.model import PARAMETER_SCOPE, Model
from felix_mlir.importers.random_inputs import random_inputs

__all__ = ["PARAMETER_SCOPE", "Model", "load_model", "random_inputs"]
