"""The same rounds with Flower's simulation: python flower_rounds.py CLIENTS ROUNDS [COHORT], in an environment that has it.

Ray runs two actors, of one core each. Every round trains the clients that are drawn, and scores the new mean with as many.
Flower speaks to nobody but its own processes: no telemetry, and Ray is bound to the loopback.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import cache

os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on any system, Ray keeps to the loopback where it may form no cluster

import torch
from common import BATCH, DECAY, HELD_OUT, MOMENTUM, RATE, TRAIN, Net, asked_for, grown, report, rows
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

JOBS = 2
client = ClientApp()


@cache
def net() -> Net:
    """An actor's network, into which each client's weights are loaded."""
    torch.set_num_threads(1)
    return Net()


def loaded(message: Message) -> Net:
    """The network with the weights that were sent."""
    net().load_state_dict(message.content["arrays"].to_torch_state_dict())
    return net()


@client.train()
def train(message: Message, context: Context) -> Message:
    """An epoch; gives the weights."""
    (x, y), _ = rows(int(context.node_config["partition-id"]))
    model = loaded(message).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    for own in torch.randperm(TRAIN).split(BATCH):
        loss = torch.nn.functional.cross_entropy(model(x[own]), y[own])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": TRAIN})})
    return Message(content=content, reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """The accuracy on held-out rows."""
    _, (x, y) = rows(int(context.node_config["partition-id"]))
    model = loaded(message).eval()
    with torch.no_grad():
        accuracy = float((model(x).argmax(1) == y).float().mean())
    metrics = MetricRecord({"num-examples": HELD_OUT, "accuracy": accuracy})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


class Clocked(FedAvg):
    """The mean, and when each round ended and how well its mean did. Raises RuntimeError where a client failed."""

    def __init__(self, cohort: int) -> None:
        least = {"min_train_nodes": cohort, "min_evaluate_nodes": cohort, "min_available_nodes": cohort}
        super().__init__(fraction_train=1e-9, fraction_evaluate=1e-9, **least)  # so the least is what is drawn
        self.cohort = cohort
        self.ends: list[float] = []
        self.accuracy = float("nan")

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        return super().aggregate_train(server_round, self.whole(replies))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        metrics = super().aggregate_evaluate(server_round, self.whole(replies))
        assert metrics is not None
        self.accuracy = float(metrics["accuracy"])
        self.ends.append(time.perf_counter())
        return metrics

    def whole(self, replies: Iterable[Message]) -> list[Message]:
        """The replies, if they are all there and none is an error."""
        found = list(replies)
        right = sum(not reply.has_error() for reply in found)
        if right < self.cohort:
            raise RuntimeError(f"{right} of {self.cohort} clients answered")
        return found


def main() -> None:
    """Run, and print the seconds of a round, the median of those after the first; the actors' memory counts too."""
    clients, rounds, cohort = asked_for()
    strategy, server = Clocked(cohort), ServerApp()

    @server.main()
    def play(grid: Grid, context: Context) -> None:
        strategy.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=rounds + 1)

    with tempfile.TemporaryDirectory() as folder:
        started = {"num_cpus": JOBS, "include_dashboard": False, "_temp_dir": folder}
        backend = {"init_args": started, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        memory, _ = grown(lambda: run_simulation(server, client, clients, backend_config=backend), children=True)
    report(strategy.ends, memory, strategy.accuracy)


if __name__ == "__main__":
    import flower_rounds  # so that an actor finds the client by its name, and Ray does not write its code with every message

    sys.exit(flower_rounds.main())
