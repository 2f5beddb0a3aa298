"""What a program asks for, as an experiment: a mapping, a file's path, or keywords."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tideline.core.algorithm import REGISTRY, Methods, load_methods
from tideline.core.errors import ConfigRefused, kind_of
from tideline.core.settings import Plain, plain
from tideline.written.files import ExperimentText, read_file

Asked: TypeAlias = Mapping[str, Plain] | str | Path | None
NAME = "experiment"


def text_of(experiment: object, settings: Mapping[str, Plain]) -> ExperimentText:
    """An experiment with its keywords over it. Raises ConfigRefused."""
    if isinstance(experiment, (str, Path)):
        text = read_file(Path(experiment).expanduser())
    elif experiment is None or isinstance(experiment, Mapping):
        text = ExperimentText(NAME, dict(plain(experiment or {})), {})
    else:
        what = f"The experiment is {kind_of(experiment)}"
        raise ConfigRefused(what, "Give a dict, the path of a YAML file, or keywords: method='fedavg'")
    given = {name: str(value) if isinstance(value, Path) else plain(value) for name, value in settings.items()}
    places = dict.fromkeys(given, NAME)
    return ExperimentText(text.name, {**text.value, **given}, {**text.places, **places})


def methods_of(methods: Methods | str | None) -> Methods:
    """The built-in methods, and those of MODULE:TUPLE or of a tuple's rows (name, "module:attribute"). Raises ConfigRefused."""
    if methods is None or isinstance(methods, str):
        return load_methods(methods or REGISTRY)
    known = load_methods()
    if taken := sorted(dict(known).keys() & dict(methods).keys()):
        what = f"methods adds {taken[0]!r}, and there is such a method: methods are added, never replaced"
        raise ConfigRefused(what, "Give it a name of its own", path="methods")
    return (*known, *methods)
