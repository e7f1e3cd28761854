"""The cost model: the analytic bound times what the ensemble learned, adapted to what a run measures."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from felix_mlir.cost.inputs import NestInputs
from felix_mlir.cost.network import HIDDEN, MEMBERS, Ensemble
from felix_mlir.errors import RequestError

SHIPPED = Path(__file__).with_name("weights.safetensors")
FORMAT = "felix-cost-model-1"
# Variance of a log latency around the best prediction the output layer could make, noise of timing included.
_NOISE = 0.15**2
# How many measured candidates of the op at hand all the training data count as, once it is adapted to.
_REPLAY_WEIGHT = 16.0
_RIDGE = 1e-2


@dataclass(frozen=True)
class Prediction:
    """Log seconds per launch [n] as the mean of the members, and its standard deviation [n]."""

    mean: Tensor
    deviation: Tensor


class CostModel:
    """Predicts the seconds a launch takes from `NestInputs`.

    `gram` [members, HIDDEN + 1, HIDDEN + 1] is the mean product of what the output layer saw in training, a one
    appended: all that adapting needs of the training data. `card` says where the model comes from (its tasks, data,
    error, date, host).
    """

    def __init__(self, network: Ensemble, gram: Tensor | None = None, card: Mapping[str, Any] | None = None) -> None:
        self.network = network.eval()
        self.gram = torch.zeros(MEMBERS, HIDDEN + 1, HIDDEN + 1) if gram is None else gram
        self.card = dict(card or {})

    @property
    def tasks(self) -> frozenset[str]:
        """Ids of the tasks it was trained on."""
        return frozenset(self.card.get("tasks", []))

    @staticmethod
    def untrained(seed: int = 0) -> CostModel:
        """Return the bound alone."""
        return CostModel(Ensemble(seed))

    def save(self, path: Path) -> None:
        """Write the model to one safetensors file, whole or not at all."""
        tensors = {f"network.{name}": tensor.contiguous() for name, tensor in self.network.state_dict().items()}
        tensors["gram"] = self.gram.contiguous()
        temporary = path.with_name(f".{path.name}.tmp")
        save_file(tensors, temporary, {"format": FORMAT, "card": json.dumps(self.card)})
        temporary.replace(path)

    @staticmethod
    def load(path: Path = SHIPPED) -> CostModel:
        """Read what `save` wrote; raises RequestError for any other file."""
        try:
            with safe_open(path, "pt") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            if header.get("format") != FORMAT:
                raise RequestError(f"{path} is no cost model of the format {FORMAT}: train it again")
            network = Ensemble(0)
            weights = {n.removeprefix("network."): t for n, t in tensors.items() if n.startswith("network.")}
            network.load_state_dict(weights)
            return CostModel(network, tensors["gram"], json.loads(header["card"]))
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise RequestError(f"cannot read the cost model {path}: {error}") from error


class AdaptedModel:
    """A cost model whose output layer has been fitted to what was measured; the rest of the network stays.

    The fit has a closed form: least squares on the measured candidates [n], with `weights` [n] each, and on all
    training data, where the wanted output is the trained one. Nothing depends on the order of what was measured.
    """

    def __init__(self, model: CostModel, inputs: Sequence[NestInputs], log_latency: Tensor, weights: Tensor) -> None:
        self._network = model.network
        output = model.network.output
        self._trained = torch.cat([output.weight[..., 0], output.bias[..., 0]], dim=1).detach()  # [members, HIDDEN + 1]
        # Few measurements leave the equations badly conditioned: in single precision their order would be seen.
        precision = _REPLAY_WEIGHT * model.gram.double() + _RIDGE * torch.eye(HIDDEN + 1, dtype=torch.float64)
        change = torch.zeros_like(self._trained)
        if inputs:
            with torch.no_grad():
                basis = torch.cat([model.network.basis(batch) for batch in inputs], dim=1).double()
            bounds = torch.cat([batch.log_bound for batch in inputs])
            residual = log_latency - bounds - torch.einsum("mnh,mh->mn", basis, self._trained.double())
            weighted = basis * weights[None, :, None]
            precision = precision + weighted.transpose(1, 2) @ basis
            change = torch.linalg.solve(precision, (weighted.transpose(1, 2) @ residual[..., None]))[..., 0]
        self._change = change.float()
        self._covariance = (_NOISE * torch.linalg.inv(precision)).float()

    def predict(self, inputs: NestInputs) -> Prediction:
        """Predict schedules, differentiably in the inputs."""
        basis = self._network.basis(inputs)
        members = inputs.log_bound + torch.einsum("mnh,mh->mn", basis, self._trained + self._change)
        of_weights = torch.einsum("mnh,mhk,mnk->mn", basis, self._covariance, basis).mean(dim=0)
        return Prediction(members.mean(dim=0), torch.sqrt(members.var(dim=0) + of_weights.clamp(min=0.0)))

    def double(self) -> AdaptedModel:
        """Return the model in double precision, for inputs in it: few measurements can leave weights that cancel."""
        doubled = copy.copy(self)
        doubled._network = copy.deepcopy(self._network).double()
        doubled._trained, doubled._change = self._trained.double(), self._change.double()
        doubled._covariance = self._covariance.double()
        return doubled
