"""The command that follows runs and writes them into an experiment tracker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.options import REGISTRY, Connect, Methods, Networks, remote, use_networks
from tideline.client.output import clean, warn
from tideline.core.errors import ConfigRefused

if TYPE_CHECKING:
    from tideline.client.answers import RunLine
    from tideline.client.http import Client
    from tideline.tracking.following import Asked
    from tideline.tracking.outputs import Wanted
    from tideline.tracking.pages import Tracker

Run = Annotated[str | None, typer.Argument(metavar="ID", help="The run's id, see `tideline run list`.", show_default=False)]
To = Annotated[str, typer.Option("--to", metavar="TRACKER", help="mlflow, tensorboard, trackio or wandb.")]
Everything = Annotated[bool, typer.Option("--all", help="Follow every run whose experiment names this tracker, without end.")]
Uri = Annotated[
    str | None,
    typer.Option("--uri", metavar="URI", help="Where it is: an address, or a folder. [default: by its own settings]"),
]
Experiment = Annotated[
    str | None, typer.Option(metavar="NAME", help="The experiment, or project, that runs are put into. [default: tideline]")
]
Register = Annotated[str, typer.Option(metavar="NAME", help="mlflow, wandb: make each model a version of this registered model.")]
NoFollow = Annotated[bool, typer.Option("--no-follow", help="Write what is there and end, without waiting for more.")]
NoModel = Annotated[bool, typer.Option("--no-model", help="Leave out the model of a completed run.")]
Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="Of the model: safetensors, torch or onnx.")]


class Pace:
    """This machine's time."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@remote
def track(
    connect: Connect,
    run: Run = None,
    *,
    to: To,
    everything: Everything = False,
    uri: Uri = None,
    experiment: Experiment = None,
    register: Register = "",
    no_follow: NoFollow = False,
    no_model: NoModel = False,
    kind: Format = "safetensors",
    methods: Methods = REGISTRY,
    networks: Networks = None,
) -> None:
    """Write a run, and those that belong to it, into an experiment tracker. Started again, it goes on where it was."""
    from tideline.tracking.opening import Options, check_tracker, open_tracker

    if (run is None) != everything:
        raise ConfigRefused("Either one run is followed or all", "Give a run's id, or --all", path="run")
    check_tracker(to)
    wanted = wanted_of(not no_model, kind, methods, networks)
    tracker = open_tracker(to, Options(uri, experiment, register))
    with connect() as client:
        if run is None:
            follow_all(client, tracker, wanted, not no_follow)
        else:
            follow_one(client, tracker, wanted, run, not no_follow)


def wanted_of(model: bool, kind: str, methods: str, networks: list[str] | None) -> Wanted:
    """Which model is written. Raises ConfigRefused."""
    from tideline.core.algorithm import load_methods
    from tideline.tracking.outputs import Wanted, check_kind

    check_kind(kind)
    use_networks(networks)
    return Wanted(load_methods(methods) if model else (), kind)


def follow_one(client: Client, tracker: Tracker, wanted: Wanted, run: str, follow: bool) -> None:
    """One run with those that belong to it. What is wrong at the start ends it: an address may be."""
    from tideline.cli.coordinator.runs import quoted
    from tideline.tracking.following import Follower

    status = client.run(quoted(run))["status"]
    follower = Follower(client, tracker, wanted, pace=Pace(), say=warn, alone=True)

    def asked(line: RunLine) -> bool:
        return line["id"] == run

    left = follower.poll(asked)
    if left and follow:
        warn(f"Run {run} is {status}; following it until it is over. Ctrl-C ends this, and the same command goes on")
        follower.follow(asked, forever=False)
    typer.echo(clean(f"Run {run} stands in {tracker.name}" + (" as far as it is" if left and not follow else "")))


def follow_all(client: Client, tracker: Tracker, wanted: Wanted, follow: bool) -> None:
    """Every run that names the tracker, and those that belong to it."""
    from tideline.tracking.following import Follower

    follower = Follower(client, tracker, wanted, pace=Pace(), say=warn)

    def asked(line: RunLine) -> bool:
        return tracker.name in line.get("track", ())

    chosen: Asked = asked
    if not follow:
        follower.poll(chosen)
        typer.echo(f"All runs that name {tracker.name} stand there as far as they are")
        return
    warn(f"Following every run that names {tracker.name} in `track`")
    follower.follow(chosen, forever=True)
