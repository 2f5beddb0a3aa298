"""Experiment files: read with their lines, changed by --set, and errors reported with their line."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tideline.core.errors import ConfigRefused, DataRefused, Refused
from tideline.core.settings import Plain
from tideline.engine.model.experiment import DIGEST
from tideline.learning.packages import PACKAGE
from tideline.written.yaml_lines import MAX_VALUES, Document, read_yaml, refuse

MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class ExperimentText:
    """An experiment as plain data, and where each of its dotted paths comes from: FILE:LINE, or the option."""

    name: str
    value: dict[str, Any]
    places: Mapping[str, str]

    @contextmanager
    def located(self) -> Iterator[None]:
        """Refusals raised inside, here or by the coordinator, say where in the file they belong."""
        try:
            yield
        except DataRefused:
            raise  # its path is a file of samples
        except Refused as error:
            raise self.at(error) from None

    def at(self, error: Refused) -> Refused:
        """The error with its place before it."""
        path = error.context.get("path") or ""
        if not path and not isinstance(error, ConfigRefused):
            return error
        place = self.place(str(path))
        file, _, line = place.rpartition(":")
        where = {"file": file, "line": int(line)} if line.isdecimal() else {}
        return type(error)(f"{place}: {error.what}", error.todo, **{**error.context, **where})

    def place(self, path: str) -> str:
        """Where a dotted path, or the nearest thing around it, comes from."""
        while path and path not in self.places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.places[path] if path else self.name

    def folder(self, named: str, path: str) -> Path:
        """The folder that a dotted path names, seen from the experiment's file. Raises ConfigRefused."""
        found = Path(self.name).parent / Path(named).expanduser()
        if not found.is_dir():
            raise ConfigRefused(f"{path}: there is no folder {found}", "Correct the path", path=path)
        return found

    @property
    def weights_file(self) -> Path | None:
        """The file that `weights` names, seen from the experiment's folder or, of --set, from this one; None: it names none.

        `package:NAME` stays as it is: where an installed package has its file is known once it is read.
        """
        named = self.value.get("weights")
        if not isinstance(named, str) or not named or DIGEST.fullmatch(named):
            return None
        if named.startswith(PACKAGE):
            return Path(named)
        beside = Path() if self.place("weights").startswith("--set ") else Path(self.name).parent
        return beside / Path(named).expanduser()

    def with_weights(self, digest: str) -> ExperimentText:
        """With the digest of a file that is there now, in its place."""
        return replace(self, value={**self.value, "weights": digest})

    def changed(self, settings: Iterable[str]) -> ExperimentText:
        """With the values of --set. Raises ConfigRefused."""
        return functools.reduce(ExperimentText.overridden, settings, self)

    def overridden(self, setting: str) -> ExperimentText:
        """With one KEY=VALUE; the value is YAML, so that lists and mappings can be given too."""
        key, equals, text = setting.partition("=")
        steps = key.strip().split(".")
        if not equals or not all(steps):
            raise ConfigRefused(f"--set {setting!r} names no setting", "Write it as KEY=VALUE, such as --set config.rounds=5")
        place = f"--set {setting}"
        given = read_yaml(text, place).value if text.strip() else ""
        path = ".".join(steps)
        places = {p: where for p, where in self.places.items() if p != path and not p.startswith((f"{path}.", f"{path}["))}
        return replace(self, value=put(self.value, steps, given, place), places={**places, path: place})


def put(old: Plain, steps: list[str], value: Plain, place: str) -> dict[str, Plain]:
    """A mapping with one value in it changed; the old one stays as it is."""
    if not isinstance(old, dict):
        raise ConfigRefused(f"{place}: there is no mapping to put {steps[0]!r} into", "Set the whole value instead")
    if len(steps) == 1:
        return {**old, steps[0]: value}
    return {**old, steps[0]: put(old.get(steps[0], {}), steps[1:], value, place)}


def read_file(
    path: Path, what: str = "an experiment", todo: str = "Write keys and values, such as `method: fedavg`", large: bool = False
) -> ExperimentText:
    """An experiment file, YAML or, by its name, JSON. Raises ConfigRefused with the line of what is wrong.

    large: JSON may have so many values that a program must have written it; then mistakes have no line.
    """
    text, name = read_text(path, what), str(path)
    if path.suffix.lower() != ".json":
        document = read_yaml(text, name)
    else:
        document = read_json(text, name, lines=not large or text.count(",") < MAX_VALUES // 2)
    return located_text(document, name, what, todo)


def read_written(text: str, name: str) -> ExperimentText:
    """An experiment that somebody has written, as YAML or JSON. Raises ConfigRefused with the line of what is wrong."""
    return located_text(read_yaml(text, name), name, "an experiment", "Write keys and values, such as `method: fedavg`")


def located_text(document: Document, name: str, what: str, todo: str) -> ExperimentText:
    if not isinstance(document.value, dict):
        raise refuse(name, 1, f"this is not {what}", todo)
    return ExperimentText(name, document.value, {p: f"{name}:{line}" for p, line in document.lines.items() if p})


def read_text(path: Path, what: str) -> str:
    """The text of a file, if it is text and not too long. Raises ConfigRefused."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as cause:
        raise ConfigRefused(f"{path} cannot be read: {cause.strerror}", f"Name a file that contains {what}") from None
    if len(raw) > MAX_BYTES:
        raise ConfigRefused(f"{path} is longer than {MAX_BYTES >> 20} MiB", "No experiment needs that much")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        line = raw.count(b"\n", 0, cause.start) + 1
        raise refuse(str(path), line, "a byte that is not UTF-8", "Save the file as UTF-8") from None


def read_json(text: str, name: str, lines: bool = True) -> Document:
    """A JSON document, with its lines as the reader of YAML, which includes JSON, sees them. Raises ConfigRefused."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as cause:
        raise refuse(name, cause.lineno, f"not JSON: {cause.msg}", "Correct the JSON") from None
    except (RecursionError, ValueError):
        raise refuse(name, 1, "not JSON of moderate depth and numbers", "Correct the JSON") from None
    # Between the values of JSON a tab is like a space; inside a text json.loads has refused it.
    return replace(read_yaml(text.replace("\t", " "), name), value=value) if lines else Document(value, {})
