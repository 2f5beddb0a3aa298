"""docs/models.md says what each method ends in, and its example runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.docs.manual import DOCS, blocks, section, tables
from tideline import nets
from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.asked.world import World
from tideline.learning.model_file import About, Model, Origin, packed

PAGE = DOCS / "models.md"


def row(name: str) -> list[str]:
    """What a method declares, in the words of the page."""
    method = resolve(METHODS, name)
    run, sites = method.run_model, method.site_models
    shown = run or sites
    assert shown is not None, f"{name} ends in no model: say so on the page"
    where = [word for word, there in (("site", sites and sites.of), ("coordinator", sites and sites.known)) if there]
    roles = ", ".join(sites.roles) if sites else "none"
    return [f"`{name}`", "yes" if run else "no", roles, ", ".join(where) or "none", f"`{shown.form}`"]


def test_the_table_is_what_methods_declare() -> None:
    """A row for each, in the order of the registry."""
    assert tables(section(PAGE, "What each method ends in"))[0] == [row(name) for name, _ in METHODS]


def test_the_keys_of_a_file() -> None:
    """The page names each key of the metadata, and each of the origin."""
    text = section(PAGE, "The file")
    fields = [*About.__dataclass_fields__, *Origin.__dataclass_fields__]
    assert [name for name in fields if f"`{name}`" not in text] == []


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As it is printed, on a file of a small model."""
    world = World(inputs=(8,), classes=3, model="mlp", class_names=("ant", "bee", "wasp"))
    torch.manual_seed(0)
    (tmp_path / "model.safetensors").write_bytes(packed(Model(world, nets.weights_of(nets.build(world)))))
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(PAGE, "python")
    exec(compile(block, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("('ant', 'bee', 'wasp') (")
