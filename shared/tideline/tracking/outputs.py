"""The files of a run that is over: its report, result, contract in words and models."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tideline.client.answers import RunResult
from tideline.client.http import Client
from tideline.core.algorithm import Methods
from tideline.core.errors import ConfigRefused, NotFound, Refused
from tideline.report.page import write_all
from tideline.tracking.cards import contract_words, lineage_of
from tideline.tracking.pages import ModelFile

MODELS = "model"  # the folder of models
SUFFIX = {"safetensors": ".safetensors", "torch": ".pt", "onnx": ".onnx"}


@dataclass(frozen=True)
class Outputs:
    """Files below a folder. without: why there is no model; empty if there is one, or none is wanted."""

    folder: Path
    models: tuple[ModelFile, ...]
    without: str


@dataclass(frozen=True)
class Wanted:
    """methods: a registry's, to build models; empty: models are not wanted. kind: their format."""

    methods: Methods = ()
    kind: str = "safetensors"


def check_kind(kind: str) -> None:
    """Raises ConfigRefused for a format that no model is written in."""
    if kind not in SUFFIX:
        raise ConfigRefused(f"--format is {kind[:40]!r}", f"Use one of: {', '.join(SUFFIX)}", path="format")


@contextmanager
def outputs(client: Client, result: RunResult, wanted: Wanted) -> Iterator[Outputs]:
    """The files, for a block. result: with its history."""
    public = for_everybody(result)
    with tempfile.TemporaryDirectory(prefix="tideline-track-") as name:
        folder = Path(name)
        write_all(public, folder)
        (folder / "contract.md").write_text(contract_words(public), encoding="utf-8")
        models, without = written_models(client, result, wanted, folder / MODELS, has_secrets=public != result)
        yield Outputs(folder, models, without)


def for_everybody(result: RunResult) -> RunResult:
    """Without the tables that are for admins: whoever reads the tracker may be none, though the follower's key is one's."""
    public = copy.deepcopy(result)
    for each in public["phases"]:
        each["tables"] = {name: table for name, table in each.get("tables", {}).items() if not table.get("admins")}
    return public


def written_models(
    client: Client, result: RunResult, wanted: Wanted, folder: Path, has_secrets: bool
) -> tuple[tuple[ModelFile, ...], str]:
    """The models that the coordinator has, each in a file; or why there is none."""
    if result["status"] != "completed" or not wanted.methods:
        return (), ""
    if has_secrets:
        return (), "the run's final state is for admins"
    folder.mkdir()
    try:
        return (written(client, result, "", wanted, folder),), ""
    except NotFound as error:
        without = error.what
    except Refused as error:
        return (), error.what
    own = tuple(of_sites(client, result, wanted, folder))
    return own, "" if own else without


def of_sites(client: Client, result: RunResult, wanted: Wanted, folder: Path) -> Iterator[ModelFile]:
    """The models that sites have of their own, as far as the coordinator has them."""
    for each in result["clients"]:
        try:
            yield written(client, result, each["name"], wanted, folder)
        except NotFound:
            continue


def written(client: Client, result: RunResult, site: str, wanted: Wanted, folder: Path) -> ModelFile:
    """One model in its file. Raises Refused errors that say where it is."""
    from tideline.experiments.results import remote_model
    from tideline.learning.exporting import export_model

    model, _ = remote_model(client, result["run"], site or None, wanted.methods)
    path = folder / f"model{f'-{site}' if site else ''}{SUFFIX[wanted.kind]}"
    export_model(model, path, wanted.kind)
    return ModelFile(path, site, lineage_of(result, site))
