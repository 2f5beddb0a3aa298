"""Trackers by their names. A tracker's package is loaded when it is asked for, and by its own module alone."""

from __future__ import annotations

from dataclasses import dataclass

from tideline.core.errors import ConfigRefused
from tideline.core.settings import nearest
from tideline.engine.model.experiment import TRACKERS
from tideline.tracking.pages import Tracker


@dataclass(frozen=True)
class Options:
    """Where to write. None, or empty: as the tracker's own settings say."""

    uri: str | None = None
    experiment: str | None = None
    registered: str = ""


def check_tracker(name: str) -> None:
    """Raises ConfigRefused for a name that is none."""
    if name not in TRACKERS:
        todo = f"Use one of: {', '.join(TRACKERS)}{nearest(name, TRACKERS)}"
        raise ConfigRefused(f"--to is {name[:80]!r}, which is no tracker", todo, path="to")


def open_tracker(name: str, options: Options) -> Tracker:
    """Raises ConfigRefused for an unknown tracker, one whose package is not installed, and options that it does not have."""
    check_tracker(name)
    if name == "mlflow":
        from tideline.tracking import to_mlflow

        return to_mlflow.opened(options.uri, options.experiment, options.registered)
    if name == "wandb":
        from tideline.tracking import to_wandb

        return to_wandb.opened(options.uri, options.experiment, options.registered)
    if options.registered:
        raise ConfigRefused(f"--register is for mlflow and wandb; {name} has no registry here", "Leave it out", path="register")
    if name == "tensorboard":
        if options.experiment:
            raise ConfigRefused("--experiment is not for tensorboard: its folders have none", "Leave it out", path="experiment")
        from tideline.tracking import to_tensorboard

        return to_tensorboard.opened(options.uri)
    from tideline.tracking import to_trackio

    return to_trackio.opened(options.uri, options.experiment)
