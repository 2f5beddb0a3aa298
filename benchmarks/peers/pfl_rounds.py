"""The same rounds with pfl (pfl-research): python pfl_rounds.py CLIENTS ROUNDS [COHORT], in an environment that has it.

Every round trains the cohort on its 20 rows and scores the new model on each client's 4 held-out rows. pfl trains by plain SGD.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from sklearn.datasets import load_digits

TRAIN, HELD_OUT, BATCH, RATE = 20, 4, 10, 0.05


class Net(torch.nn.Module):
    """64-64-10, with what pfl asks of a network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def forward(self, x: Any) -> Any:
        return self.layers(torch.as_tensor(x))

    def loss(self, x: Any, y: Any, eval: bool = False) -> Any:  # noqa: A002 - the name that pfl passes
        return torch.nn.functional.cross_entropy(self(x), torch.as_tensor(y))

    @torch.no_grad()
    def metrics(self, x: Any, y: Any, eval: bool = False) -> dict[str, Any]:  # noqa: A002 - as above
        right = int((self(x).argmax(1) == torch.as_tensor(y)).sum())
        return {"accuracy": Weighted(right, len(y))}


class Stopwatch(TrainingProcessCallback):
    """When each round ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int) -> tuple[bool, Metrics]:
        self.ends.append(time.perf_counter())
        return False, Metrics()


def federated(clients: int, start: int, size: int) -> FederatedDataset:
    """Each client's rows, as benchmarks/simulation.py draws them."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16.0).astype(np.float32)

    def rows(client: int) -> Dataset:
        drawn = np.random.RandomState(client).choice(len(x), TRAIN + HELD_OUT, replace=False)[start : start + size]
        return Dataset((torch.tensor(x[drawn]), torch.tensor(y[drawn])), user_id=str(client))

    made = [rows(client) for client in range(clients)]
    return FederatedDataset(lambda client: made[client], get_user_sampler("minimize_reuse", range(clients)))


def main() -> None:
    """Run, and print the seconds of a round, the median of those after the first."""
    clients, rounds, *rest = map(int, sys.argv[1:])
    cohort = rest[0] if rest else clients
    torch.set_num_threads(1)
    net, watch = Net(), Stopwatch()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    backend = SimulatedBackend(training_data=federated(clients, 0, TRAIN), val_data=federated(clients, TRAIN, HELD_OUT))
    params = NNAlgorithmParams(
        central_num_iterations=rounds + 2, evaluation_frequency=1, train_cohort_size=cohort, val_cohort_size=cohort
    )
    FederatedAveraging().run(
        algorithm_params=params,
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=RATE, local_num_epochs=1, local_batch_size=BATCH, local_max_grad_norm=None
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=HELD_OUT),
        callbacks=[watch],
    )
    took = [after - before for before, after in zip(watch.ends, watch.ends[1:], strict=False)]
    print(json.dumps({"seconds": statistics.median(took[1:]), "memory_mb": float("nan")}))


if __name__ == "__main__":
    main()
