"""Sites of one style, half of which see it upside down."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tideline.learning.datasets.digits import load
from tideline.learning.datasets.turned import turned, write_sites

ROLES = ("source", "source", "target", "target")


def test_each_site_without_labels_has_a_labelled_one_that_sees_alike() -> None:
    """Not the one in its own place, so that an order of names gives nothing away; one labelled site has nobody to differ from."""
    assert turned(ROLES) == [False, True, True, False]
    assert turned(("source", "target", "target")) == [False] * 3
    assert turned(("source", "source", "target")) == [False, True, True]


def test_rows_are_dealt_once_and_turned(tmp_path: Path) -> None:
    """All rows of the style, each at one site, on one side; of a turned site by half a turn. The same again at each writing."""
    folders = [tmp_path / str(i) for i in range(4)]
    written = write_sites(folders, "mnist", ROLES)
    raw, sites = load("mnist"), [np.load(folder / "mnist.npz", allow_pickle=False) for folder in folders]
    seen = [site["x"][:, ::-1, ::-1] if half_turn else site["x"] for site, half_turn in zip(sites, turned(ROLES), strict=True)]
    assert sorted(x.tobytes() for own in seen for x in own) == sorted(x.tobytes() for x in raw.x)
    assert [len(site["test_idx"]) for site in sites] == [each["held_out"] for each in written] == [125, 125, 312, 312]
    assert sum(sum(each.values()) for each in written) == len(raw.x)
    again = [tmp_path / f"again {i}" for i in range(4)]
    assert write_sites(again, "mnist", ROLES) == written
    assert (again[1] / "mnist.npz").read_bytes() == (folders[1] / "mnist.npz").read_bytes()
