"""Features of a frozen encoder: computed once, kept whole, and never taken for those of other rows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.frozen.played import FEATURES, drawn
from tests.synthetic import blobs
from tideline import nets
from tideline.core.asked.world import World, world_in
from tideline.core.errors import DataRefused
from tideline.core.rows import MemoryRows
from tideline.core.run import Digest, Role
from tideline.core.step import View
from tideline.engine.compute import feature_files
from tideline.engine.compute.feature_files import HEADER, read
from tideline.engine.compute.features import Encoder
from tideline.engine.compute.opened import encoded_site
from tideline.learning.formats.holdings import Holdings
from tideline.learning.rows.scratch import MappedRows
from tideline.nets import registry

WHOLE = world_in({**FEATURES, "trains": "head"})
ROWS = blobs(11, 0, 1).x


def encoder(folder: Path | None, seed: int = 3, world: World = WHOLE) -> Encoder:
    return Encoder(world=world, weights=drawn(FEATURES, seed), device="cpu", threads=1, base=Digest("ba5e"), folder=folder)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_they_are_what_the_encoder_gives(tmp_path: Path) -> None:
    """In memory and in a file, bit by bit, in evaluation mode."""
    net = nets.loaded(replace(WHOLE, trains=World().trains), drawn())
    expected = nets.features(net, ROWS)
    for folder in (None, tmp_path):
        assert torch.equal(encoder(folder).rows(ROWS).all(), expected)


def test_they_are_computed_once(tmp_path: Path) -> None:
    """Where the file is there it is mapped, and not written again: it would be another one."""
    first = encoder(tmp_path).rows(ROWS).all()
    (made,) = files(tmp_path)
    before = made.stat().st_ino
    found = encoder(tmp_path).rows(ROWS)
    assert isinstance(found, MappedRows) and found.plain and torch.equal(found.all(), first)
    assert files(tmp_path) == [made] and made.stat().st_ino == before


def test_other_rows_weights_and_places_have_files_of_their_own(tmp_path: Path) -> None:
    """A changed number of one row is enough."""
    changed = ROWS.all().clone()
    changed[3, 2] += 1e-6
    for each, rows in (
        (encoder(tmp_path), ROWS),
        (encoder(tmp_path), MemoryRows(changed)),
        (encoder(tmp_path, 4), ROWS),
        (replace(encoder(tmp_path), threads=2), ROWS),
    ):
        each.rows(rows)
    assert len(files(tmp_path)) == 4 and all(file.name.startswith("ba5e.") for file in files(tmp_path))
    assert feature_files.forget_but(tmp_path, {"ba5e"}) == 0 and len(files(tmp_path)) == 4
    assert feature_files.forget_but(tmp_path, {"other"}) > 0 and not files(tmp_path)


def test_a_network_whose_code_has_changed_has_another_file(tmp_path: Path) -> None:
    """Its weights are the same, and what it makes of rows is not."""
    made = list[torch.Tensor]()
    for act in (torch.nn.ReLU, torch.nn.Tanh):

        def build(world: World, act: type[torch.nn.Module] = act) -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.Linear(8, 4), act(), torch.nn.Linear(4, world.classes))

        with registry.beside({"mine": build}):
            its = world_in({**FEATURES, "model": "mine", "trains": "head"})
            weights = nets.template(replace(its, trains=World().trains))
            ones = {name: torch.ones(like.shape) for name, like in weights.items()}
            made.append(replace(encoder(tmp_path, world=its), weights=ones).rows(ROWS).all())
    assert len(files(tmp_path)) == 2 and not torch.equal(*made)


@pytest.mark.parametrize("spoil", ["cut", "flipped", "headless", "longer", "empty"])
def test_a_damaged_file_is_made_again(tmp_path: Path, spoil: str) -> None:
    """Cut, changed, without a header, longer, or empty: none of it is used."""
    whole = encoder(tmp_path).rows(ROWS).all()
    (file,) = files(tmp_path)
    content = file.read_bytes()
    spoilt = {
        "cut": content[:-7],
        "flipped": content[: HEADER + 9] + bytes([content[HEADER + 9] ^ 1]) + content[HEADER + 10 :],
        "headless": b"x" * HEADER + content[HEADER:],
        "longer": content + b"\0",
        "empty": b"",
    }[spoil]
    file.write_bytes(spoilt)
    assert read(file, len(ROWS), 64) is None
    assert torch.equal(encoder(tmp_path).rows(ROWS).all(), whole) and file.read_bytes() == content


def test_what_a_killed_process_left_is_never_used(tmp_path: Path) -> None:
    """A temporary file has no name that is looked for."""
    encoder(tmp_path).rows(ROWS)
    (file,) = files(tmp_path)
    file.rename(tmp_path / f".{file.name}.tmp")
    encoder(tmp_path).rows(ROWS)
    assert file.exists()


def test_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    """It may be as large as the features; what another process is writing stays."""
    (tmp_path / ".left.tmp").write_bytes(b"x" * 1000)
    descriptor, writing = feature_files.opened_alone(tmp_path)
    encoder(tmp_path).rows(ROWS)
    assert {file.name for file in files(tmp_path) if file.suffix == ".tmp"} == {writing.name}
    os.close(descriptor)
    feature_files.forget_but(tmp_path, {"ba5e"})
    assert [file.suffix for file in files(tmp_path)] == [".features"]


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is computed; nothing is left."""
    monkeypatch.setattr(feature_files.shutil, "disk_usage", lambda path: SimpleNamespace(free=5))
    with pytest.raises(DataRefused, match="cannot be written") as refusal:
        encoder(tmp_path).rows(ROWS)
    assert refusal.value.todo.startswith("Make room there") and not files(tmp_path)


def test_features_that_were_not_used_for_longest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They can be computed again; a run that is asked for now comes first, and no more go than need be."""
    for age, seed in enumerate((3, 4, 5)):
        encoder(tmp_path, seed).rows(ROWS)
        newest = max(files(tmp_path), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, (1000.0 + age, 1000.0 + age))
    oldest, *others = sorted(files(tmp_path), key=lambda file: file.stat().st_mtime)
    room = 3 * oldest.stat().st_size

    def usage(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=room - sum(file.stat().st_size for file in files(tmp_path)))

    monkeypatch.setattr(feature_files.shutil, "disk_usage", usage)
    encoder(tmp_path, 6).rows(ROWS)
    assert not oldest.exists() and all(file.exists() for file in others) and len(files(tmp_path)) == 3


def test_files_that_were_not_used_for_long_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_files, "KEPT", 2)
    for seed in range(4):
        encoder(tmp_path, seed).rows(ROWS)
    assert len(files(tmp_path)) == 2


def test_features_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    """Rows and weights are finite, and their products are not; nothing is kept."""
    vast = replace(encoder(tmp_path), weights={name: w * 1e30 for name, w in drawn().items()})
    with pytest.raises(DataRefused, match="gives features that are not finite"):
        vast.rows(MemoryRows(ROWS.all() * 1e30))
    assert not files(tmp_path)


def test_a_sites_views_are_features(tmp_path: Path) -> None:
    """Labels, domains and the split stay as they are; no rows give no features; rows without labels are encoded too."""
    train, held_out = blobs(41, 0, 1), blobs(9, 0, 2)
    site = encoded_site(Holdings(replace(train, bare=ROWS), held_out), encoder(tmp_path))
    plain = Holdings(train, held_out)
    for view in View:
        seen, like = site.view(view, Role.SOURCE), plain.view(view, Role.SOURCE)
        assert seen.x.shape == (64,) and len(seen) == len(like) and torch.equal(seen.y, like.y)  # type: ignore[arg-type]
    bare = site.view(View.TRAIN, Role.SOURCE).bare
    assert bare is not None and bare.shape == (64,) and len(bare) == 11
    assert site.view(View.LEARN, Role.TARGET).y is None
    assert encoder(tmp_path).rows(MemoryRows(torch.empty(0, 8))).all().shape == (0, 64)
    assert len(files(tmp_path)) == 3
