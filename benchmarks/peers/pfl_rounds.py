"""The same rounds with pfl (pfl-research): python pfl_rounds.py CLIENTS ROUNDS [COHORT], in an environment that has it.

Every round trains the cohort on its rows and scores the model with as many clients. pfl takes the clients of a cohort in turn. It
scores a round's model at the beginning of the next; its last round scores what the round before it made.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from common import BATCH, DECAY, HELD_OUT, MOMENTUM, RATE, Net, asked_for, grown, report, rows
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Population
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, TrainMetricName, Weighted, get_overall_value
from pfl.model.pytorch import PyTorchModel

SCORE = TrainMetricName("accuracy", Population.VAL, after_training=False)


class PflNet(Net):
    """The network, with what pfl asks of one."""

    def loss(self, x: Any, y: Any, eval: bool = False) -> Any:  # noqa: A002 - the name that pfl passes
        return torch.nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Any, y: Any, eval: bool = False) -> dict[str, Any]:  # noqa: A002 - as above
        return {"accuracy": Weighted(int((self(x).argmax(1) == y).sum()), len(y))}


class Shuffled(Dataset):
    """Training rows, in another order in every epoch; pfl's own keep theirs."""

    def iter(self, batch_size: int | None) -> Iterator[list[torch.Tensor]]:
        for own in torch.randperm(len(self)).split(batch_size or len(self)):
            yield [part[own] for part in self.raw_data]


class Averaging(FederatedAveraging):
    """Without scoring the training rows before and after each training, which pfl does when it scores at all."""

    def get_next_central_contexts(self, *args: Any, **kwargs: Any) -> Any:
        contexts, model, metrics = super().get_next_central_contexts(*args, **kwargs)
        return contexts and tuple(map(unscored, contexts)), model, metrics


def unscored(context: Any) -> Any:
    """Without scores, where it trains."""
    return dataclasses.replace(context, do_evaluation=context.population != Population.TRAIN)


class Stopwatch(TrainingProcessCallback):
    """When each round ended, and the last accuracy."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.accuracy = float("nan")

    def after_central_iteration(self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int) -> tuple[bool, Metrics]:
        self.ends.append(time.perf_counter())
        self.accuracy = float(get_overall_value(aggregate_metrics[SCORE]))
        return False, Metrics()


def train_rows(client: int) -> Dataset:
    return Shuffled(rows(client)[0], user_id=str(client))


def held_out(client: int) -> Dataset:
    return Dataset(rows(client)[1], user_id=str(client))


def federated(made: list[Dataset]) -> FederatedDataset:
    """Clients by number, taken in turn."""
    return FederatedDataset(lambda client: made[client], get_user_sampler("minimize_reuse", range(len(made))))


def main() -> None:
    """Run, and print the seconds of a round, the median of those after the first."""
    clients, rounds, cohort = asked_for()
    torch.set_num_threads(1)
    net, watch = PflNet(), Stopwatch()
    local = partial(torch.optim.SGD, momentum=MOMENTUM, weight_decay=DECAY)
    model = PyTorchModel(net, local, torch.optim.SGD(net.parameters(), lr=1.0))
    training, scoring = (federated([made(client) for client in range(clients)]) for made in (train_rows, held_out))
    run = partial(
        Averaging().run,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 2, evaluation_frequency=1, train_cohort_size=cohort, val_cohort_size=cohort
        ),
        backend=SimulatedBackend(training_data=training, val_data=scoring),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=RATE, local_num_epochs=1, local_batch_size=BATCH, local_max_grad_norm=None
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=HELD_OUT),
        callbacks=[watch],
    )
    memory, _ = grown(run)
    report(watch.ends[1:], memory, watch.accuracy)


if __name__ == "__main__":
    main()
