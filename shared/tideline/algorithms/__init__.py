"""Every method, by name, and those that adapt a site unless a user names others. Nothing else knows a method's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tideline.core.algorithm import Methods
from tideline.core.settings import Plain

METHODS: Methods = (
    ("fedavg", "tideline.algorithms.averaging:fedavg"),
    ("fedprox", "tideline.algorithms.averaging:fedprox"),
    ("fedgma", "tideline.algorithms.fedgma:fedgma"),
    ("fedsr", "tideline.algorithms.fedsr:fedsr"),
    ("gaussian_heads", "tideline.algorithms.gaussian_heads:gaussian_heads"),
    ("self_training", "tideline.algorithms.self_training:self_training"),
    ("local", "tideline.algorithms.personal:local"),
    ("central", "tideline.algorithms.central:central"),
    ("feddadil", "tideline.algorithms.feddadil:feddadil"),
    ("hfedf", "tideline.algorithms.hfedf:hfedf"),
    ("pfedhn", "tideline.algorithms.pfedhn:pfedhn"),
    ("source_model", "tideline.algorithms.source_free:source_model"),
    ("shot", "tideline.algorithms.source_free:shot"),
    ("fedavg_shot", "tideline.algorithms.source_free:fedavg_shot"),
    ("fedprox_pl", "tideline.algorithms.source_free:fedprox_pl"),
    ("fedamp_pl", "tideline.algorithms.fedamp_pl:fedamp_pl"),
    ("ifca_pl", "tideline.algorithms.ifca_pl:ifca_pl"),
    ("fedpcl_pl", "tideline.algorithms.fedpcl_pl:fedpcl_pl"),
    ("ladd", "tideline.algorithms.ladd:ladd"),
    ("ladd_pl", "tideline.algorithms.ladd:ladd_pl"),
    ("fedwca", "tideline.algorithms.fedwca:fedwca"),
    ("stlf", "tideline.algorithms.stlf:stlf"),
    ("fada", "tideline.algorithms.fada:fada"),
    ("fdann", "tideline.algorithms.fada:fdann"),
    ("kd3a", "tideline.algorithms.kd3a:kd3a"),
    ("adabn", "tideline.algorithms.adabn:adabn"),
    ("fdan", "tideline.algorithms.fdan:fdan"),
)

# What is rehearsed unless an experiment names candidates: simple adaptations of a linear classifier on features, of the head of a
# frozen encoder, and of a network that trains as a whole. Those that cannot play an experiment's roster and world are left out.
FEATURES: Sequence[Mapping[str, Plain]] = (
    {"label": "site", "method": "fedavg", "world": {"normalise": "site"}},
    {"label": "gauss", "method": "gaussian_heads"},
    {"label": "site + gauss", "method": "gaussian_heads", "world": {"normalise": "site"}},
    {"label": "self-training", "method": "self_training"},
    {"label": "site + self-training", "method": "self_training", "world": {"normalise": "site"}},
)
OF_ENCODER: Mapping[str, Plain] = {"normalise": {"kind": "site", "at": "features"}}
CANDIDATES: Mapping[str, Sequence[Mapping[str, Plain]]] = {
    "features": FEATURES,
    "encoder": [{**each, "world": OF_ENCODER} if "world" in each else each for each in FEATURES],
    "images": (
        {"label": "site", "method": "fedavg", "world": {"normalise": "site"}},
        {"label": "adabn", "method": "adabn"},
        {"label": "shot", "method": "shot"},
        {"label": "self-training", "method": "self_training"},
        {"label": "site + self-training", "method": "self_training", "world": {"normalise": "site"}},
    ),
}
