"""Settings that were published: those of a method by default, and those of its presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve

# Of the comparison in the paper of hFedF: 200 rounds of two epochs, by Adam at the sites.
COMPARED: Mapping[str, Any] = {"rounds": 200, "epochs": 2, "batch": 64, "rate": 1e-3}
SETS = ("pacs", "office_home", "vlcs")
FEDSR = {**COMPARED, "a_cmi": 5e-4, "optimiser": "adam", "draws": 20}
HFEDF = {**COMPARED, "weight_decay": 1e-3, "server_rate": 1e-3, "ema": 0.75}
PFEDHN = {
    "optimiser": "adam",
    "server_optimiser": "adam",
    "batches": 0,
    "epochs": 2,
    "rate": 1e-3,
    "rounds": 600,
    "evaluate_every": 3,
}
PUBLISHED: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("fedavg", "tiny"): {"rounds": 2},
    ("fedavg", "demo"): {"rounds": 8},
    ("feddadil", "office_home_e"): {"points": 1950, "atoms": 2, "batch": 325},
    **{
        ("fedgma", name): {**COMPARED, "weight_decay": 1e-4, "optimiser": "adam", "tau": tau, "server_rate": rate}
        for name, tau, rate in zip(SETS, (0.7, 0.3, 0.5), (1.0, 0.01, 0.01), strict=True)
    },
    ("fedsr", ""): {"a_l2r": 1e-2, "a_cmi": 5e-4, "rate": 1e-2, "momentum": 0.9, "weight_decay": 5e-4},
    **{
        ("fedsr", name): {**FEDSR, "a_l2r": a_l2r, "weight_decay": decay}
        for name, a_l2r, decay in zip(SETS, (1e-1, 1e-1, 1e-2), (1e-5, 1e-4, 1e-4), strict=True)
    },
    ("hfedf", "pacs"): {"unseen": "each"},
    ("hfedf", "office_home"): {**HFEDF, "server_weight_decay": 1e-5},  # table 10
    ("hfedf", "vlcs"): {**HFEDF, "server_weight_decay": 1e-3},
    ("pfedhn", ""): {
        "batches": 50,
        "rate": 5e-3,
        "momentum": 0.9,
        "weight_decay": 5e-5,
        "clip_gradient": 50.0,
        "server_rate": 1e-2,
        "server_momentum": 0.9,
        "server_weight_decay": 1e-3,
        "server_clip": 50.0,
    },
    **{
        ("pfedhn", name): {**PFEDHN, "server_rate": rate, "server_weight_decay": server_decay, "weight_decay": decay}
        for name, rate, server_decay, decay in (("pacs", 1e-2, 1e-3, 1e-5), *((s, 1e-3, 1e-4, 1e-4) for s in SETS[1:]))
    },
}


def test_settings_are_those_that_were_published(subtests: pytest.Subtests) -> None:
    for (method, preset), expected in PUBLISHED.items():
        with subtests.test(f"{method} {preset}"):
            config = resolve(METHODS, method).configure({}, preset) if preset else resolve(METHODS, method).configure({})
            assert {name: getattr(config, name) for name in expected} == expected


def test_only_unseen_sites_differ_from_the_defaults_of_hfedf() -> None:
    method = resolve(METHODS, "hfedf")
    assert method.configure({}, "pacs") == method.configure({"unseen": "each"})


def test_every_row_of_table_5_is_a_preset_of_feddadil() -> None:
    presets = resolve(METHODS, "feddadil").presets
    assert {"imageclef", "caltech_office10", "office31", "office_home", "adaptiope"} <= set(presets)
