"""Experiments that a method refuses before anybody is asked: each with its place, what is wrong and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.laws.stage import Stage
from tests.synthetic import FEATURES, IMAGES, NAMES, experiment, sites
from tideline.algorithms import METHODS
from tideline.algorithms.gaussian_heads import MOST_FEATURES
from tideline.algorithms.stlf.settings import GIVEN
from tideline.core.errors import Refused

Given = Mapping[str, Any]
TWO = {"anna": "source", "bert": "source", "carl": "target"}
THREE = {"anna": "source", "bert": "source", "carl": "source", "dora": "target"}
ONE = {"anna": "source", "bert": "target", "carl": "target", "dora": "target", "emil": "target"}
LINKED = {"anna": "peer", "bert": "source", "carl": "target", "dora": "target"}
CROWD = dict.fromkeys(NAMES, "source")
HYPER, STYLES = ("hfedf", "pfedhn"), ("ladd", "ladd_pl")
SOURCE_FREE = ("source_model", "shot", "fedavg_shot", "fedprox_pl", "fedamp_pl", "ifca_pl", "fedwca", "fedpcl_pl")
ROSTERS: Mapping[str, Given] = {
    **dict.fromkeys((*SOURCE_FREE, *STYLES, "adabn"), ONE),
    **dict.fromkeys((*HYPER, "kd3a", "fdan"), THREE),
    "stlf": LINKED,
}
NORMED, LINEAR, LENET = {**IMAGES, "model": "lenet_bn"}, {**FEATURES, "model": "linear"}, {**FEATURES, "model": "lenet"}
LARGE = {"inputs": [3, 64, 64], "classes": 10, "model": "resnet18"}
GROUPS = {"bert": "x", "carl": "x", "dora": "y", "emil": "y"}

GENERATED: list[tuple[Given, str, str]] = [
    ({"generate": ["clasifier.*"]}, "generate", r"'clasifier.\*', which no tensor of mlp fits"),
    ({"generate": []}, "generate", "nothing would be generated"),
    ({"memory_limit": 1e-4}, "memory_limit", "Generating 771 numbers of mlp takes"),
    ({"heads": "chunked", "head_init": "matched"}, "head_init", "which is of linear heads"),
    ({"heads": "wide"}, "heads", "wide"),
    ({"roles": ["target"]}, "roles", "config.roles is target"),
    ({"roles": []}, "roles", "config.roles is empty"),
]
# Of a method its settings: the settings, which of them is at fault, and words of the refusal.
SETTINGS: Mapping[str, list[tuple[Given, str, str]]] = {
    "central": [
        ({"most_rows": 0}, "most_rows", "at least 1"),
        ({"most_rows": 1.5}, "most_rows", "whole number"),
        ({"weighting": "uniform"}, "weighting", "not a known setting"),
        ({"optimiser": "rmsprop"}, "optimiser", "one of sgd, adam"),
    ],
    "fada": [
        ({"mode": "grad"}, "steps", "the gradient of one mini-batch, and config.steps is 0"),
        ({"critic": "features", "parts": "I"}, "critic", "nothing that they are for"),
        ({"critic": "features", "lambda_adv": 0.0}, "critic", "nothing that they are for"),
        ({"identify_rate": 1e7}, "identify_rate", "at most"),
        ({"parts": "IV"}, "parts", "one of I, II, III"),
        (
            {"batch": 15},
            "batch",
            "config.batch is 15; it should be at least 16",
        ),
        ({"identify_batch": 15}, "identify_batch", "config.identify_batch is 15; it should be at least 16"),
    ],
    "fdan": [({"batch": 31}, "batch", "at least 32"), ({"features": 321}, "features", "multiple of 5")],
    "feddadil": [
        ({"atoms": 0}, "atoms", "atoms is 0; it should be at least 1"),
        ({"points": 0}, "points", "points is 0"),
        ({"batch": 0}, "batch", "batch is 0"),
        ({"optimiser": "adamw"}, "optimiser", "adam, rows, sgd"),
        ({"wire": "int8"}, "wire", "float32, float16, bfloat16"),
        ({"distil": [0]}, "distil[0]", r"distil\[0\] is 0"),
        ({"label_confidence": 0.2}, "label_confidence", "label_confidence is 0.2; with 3 classes"),  # it would turn labels round
        ({"head_rounds": 0, "choice": "committee"}, "choice", "which needs the sources' linear layers"),
        ({"head_rounds": 0, "choice": "none", "encoder_rounds": 0}, "choice", "choice is 'none'"),
    ],
    "fedgma": [
        ({"tau": 1.1}, "tau", "at most 1"),
        ({"tau": -0.1}, "tau", "at least 0"),
        ({"server_rate": -1.0}, "server_rate", "at least 0"),
        ({"server_rate": 11}, "server_rate", "at most 10"),
        ({"server_rate": float("nan")}, "server_rate", "finite"),
        ({"weighting": "equal"}, "weighting", "samples, uniform"),
        ({"robust": "median"}, "robust", "not a known setting"),
    ],
    "fedsr": [
        ({"a_l2r": -1.0}, "a_l2r", "at least 0"),
        ({"a_cmi": -1.0}, "a_cmi", "at least 0"),
        ({"l2r": "square"}, "l2r", "did you mean squared"),
        ({"draws": -1}, "draws", "at least 0"),
        ({"draws": 0.5}, "draws", "whole number"),
        ({"weighting": "samples"}, "weighting", "not a known setting"),
    ],
    "fedwca": [
        ({"clustering": "given", "given": {"bert": "x"}}, "given.carl", "has no group for carl"),
        ({"clustering": "given", "given": {**GROUPS, "zoe": "x"}}, "given.zoe", "no target of this run"),
        ({"given": GROUPS}, "given", "makes its own"),
        ({"clustering": "agglomerative"}, "clusters", "is 0"),
        ({"clustering": "agglomerative", "clusters": 5}, "clusters", "there are 4 targets"),
        ({"clusters": 2}, "clusters", "finch"),
        ({"cluster_on": "conv9"}, "cluster_on", "no such layer"),
        ({"clustering": "finsh"}, "clustering", "finch"),
    ],
    **dict.fromkeys(HYPER, GENERATED),
    "ifca_pl": [({"k": 0}, "k", "at least 1")],
    "local": [({"unseen": "yes"}, "unseen", "true or false"), ({"optimiser": "lbfgs"}, "optimiser", "sgd")],
    "stlf": [
        ({"watts": {"anna": 0.0}}, "", "config.watts.anna is 0 W; a device sends with a power above 0"),
        ({"watts": {"anna": -1.0}}, "", "config.watts.anna is -1.0; it should be at least 0"),
        ({"watts": {"ann": 0.2}}, "", "'ann', which is not on the roster.*did you mean anna"),
        ({"rates": {"anna": {"bert": -5.0}}}, "", "config.rates.anna.bert is -5.0; it should be at least 0"),
        ({"rates": {"anna": {"emil": 5.0}}}, "", "config.rates.anna is a mapping with 'emil'"),
        ({"compare": ["fedavg"]}, "", "the rule 'fedavg', which there is not.*fedavg_alpha"),
        ({"compare": [GIVEN[1]]}, "", "the rule 'attention_psi', and no weights are given"),
        ({"attention": {"carl": {"anna": 1.0}}}, "", "gives weights that no rule looks at"),
        ({"compare": [GIVEN[0]], "attention": {"carl": {"emil": 1.0}}}, "", "config.attention.carl is a mapping with 'emil'"),
        ({"compare": ["random_psi", "random_psi"]}, "", "names a rule twice"),
        ({"phi_energy": -1.0}, "", "config.phi_energy is -1.0; it should be at least 0"),
        ({"measured": True, "divergence": "shared"}, "", "nothing is sent from site to site"),
        ({"share": 0.0}, "", "config.share is 0.0; it should be at least 0.001"),
    ],
}
# Of federated averaging by five teachers.
FOLDS: list[tuple[Given, str, str]] = [
    ({"robust": "kurm"}, "robust", "did you mean krum"),
    ({"robust": "krum"}, "byzantine", "robust is krum, but config.byzantine is 0"),
    ({"robust": "multi_krum"}, "byzantine", "would bear no wrong site"),
    ({"robust": "trimmed_mean"}, "byzantine", "Set byzantine to the number"),
    ({"byzantine": 1}, "byzantine", "robust is none, which counts no wrong sites"),
    ({"robust": "clip", "byzantine": 1}, "byzantine", "robust is clip, which counts no wrong sites"),
    ({"robust": "median", "clip_norm": 2.0}, "clip_norm", "clip_norm is 2, but config.robust is median"),
    ({"robust": "clip", "clip_norm": -1.0}, "clip_norm", "at least 0"),
    ({"robust": "median", "byzantine": -1}, "byzantine", "at least 0"),
]
WORLDS: list[tuple[str, Given, Given, str, str]] = [
    ("central", {}, LENET, "world.inputs", "takes images"),
    ("fedsr", {}, LENET, "world.inputs", "takes images"),
    ("fedsr", {}, LINEAR, "world.model", "no linear layer before its classifier"),
    ("fada", {"critic": "features", "parts": "II", "source_rounds": 0}, LINEAR, "world.model", "would be the rows themselves"),
    *((method, {}, LINEAR, "world.model", "nothing below its classifier") for method in ("fdan", "kd3a", "shot")),
    ("feddadil", {"encoder_rounds": 0}, IMAGES, "config.encoder_rounds", "encoder_rounds is 0"),
    ("gaussian_heads", {}, FEATURES, "", "which learns its features"),
    ("gaussian_heads", {}, IMAGES, "", "trains: head"),
    ("gaussian_heads", {}, {**LINEAR, "inputs": [MOST_FEATURES + 1]}, "", "a network with a bottleneck"),
    ("gaussian_heads", {"project": 4000}, LINEAR, "config.project", r"config\.project is 4000"),
    *(
        (method, {"server_optimiser": "adam"}, LARGE, "config.memory_limit", "GB with its gradient and moments")
        for method in HYPER
    ),
    *(("adabn", {}, world, "world.model", "no batch norm whose statistics.*lenet_bn") for world in (FEATURES, IMAGES)),
    *((method, {}, FEATURES, "world.inputs", "takes images") for method in STYLES),
    *((method, {}, {**NORMED, "model": "linear"}, "world.model", "nothing below its classifier") for method in STYLES),
    *((method, {"bootstrap": -1}, NORMED, "config.bootstrap", "at least 0") for method in STYLES),
    *((m, {"cluster_layers": ["classifier"]}, NORMED, "config.cluster_layers[0]", "no such layer") for m in STYLES),
    *((m, {"cluster_layers": ["batch_norm", "conv9"]}, NORMED, "config.cluster_layers[1]", "no such layer") for m in STYLES),
]
NOBODY_TEACHES = {"anna": "target", "carl": "target"}
REFUSED_ROSTERS: list[tuple[str, Given, Given, str]] = [
    *((method, {}, NOBODY_TEACHES, "No member can teach") for method in ("central", "fedgma", "fedsr", "self_training")),
    ("gaussian_heads", {"world": LINEAR}, NOBODY_TEACHES, "No member can teach"),
    ("fedavg", {"config": {"roles": ["peer"]}}, {"anna": "source", "bert": "target"}, "at least one peer with labels"),
    ("self_training", {}, {"anna": "source"}, "nobody labels"),
    ("fada", {}, {"anna": "source"}, "No member of the roster is a target"),
    ("fada", {}, {"carl": "target"}, "No member of the roster is a source"),
    ("fada", {}, {"anna": "source", "bert": "peer", "carl": "target"}, "bert is a peer"),
    ("feddadil", {}, {"carl": "target"}, "at least one source with labels; the roster has carl"),
    ("feddadil", {}, {"anna": "source"}, "at least one target; the roster has anna"),
    *((method, {}, {**THREE, "carl": "target"}, "carl, dora are targets.*adapts to one") for method in ("fdan", "kd3a")),
    *((method, {}, {**THREE, "carl": "peer"}, "carl is a peer") for method in ("fdan", "kd3a")),
    *((method, {}, {"anna": "source"}, "nobody adapts") for method in ("fdan", "kd3a")),
    *((method, {}, {"dora": "target"}, "nobody can teach") for method in ("fdan", "kd3a")),
    *((method, {}, NOBODY_TEACHES, "at least one source or peer with labels") for method in HYPER),
    ("adabn", {"world": NORMED}, {"anna": "source"}, ""),
    ("adabn", {"world": NORMED}, {"bert": "target"}, ""),
    ("ladd", {"world": NORMED}, {"bert": "target"}, "brings no source model"),
    *((method, {}, {"bert": "target", "carl": "target"}, "weights: FILE") for method in SOURCE_FREE),
    *((method, {}, {"anna": "source"}, "as target") for method in SOURCE_FREE),
    *((method, {}, {**ONE, "emil": "peer"}, "source or a target") for method in SOURCE_FREE),
    ("stlf", {}, dict.fromkeys(LINKED, "target"), r"No device has labels.*anna \(target, no labels\)"),
    ("stlf", {}, {"anna": "peer"}, "A link wants two devices; the roster has 1"),
    (
        "stlf",
        {"config": {"rates": {"anna": {"dora": 0.0}, "bert": {"dora": 0.0}}}},
        LINKED,
        "No device with labels has a link to dora",
    ),
    *(
        (
            "fedavg",
            {"config": {"robust": rule, "byzantine": 1}},
            {name: "source" if i < least - 1 else "target" for i, name in enumerate(NAMES)},
            f"{rule} with byzantine: 1 needs the models of {least} sites; {least - 1} of the roster can train",
        )
        for rule, least in (("krum", 5), ("multi_krum", 5), ("median", 3), ("trimmed_mean", 3))
    ),
]


def cases() -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield every experiment with the place and the words of its refusal; an empty place is not looked at."""
    for method, several in SETTINGS.items():
        for config, setting, words in several:
            path = f"config.{setting}" if setting else ""
            yield experiment(method, ROSTERS.get(method, TWO), config=dict(config)), path, words
    for config, setting, words in FOLDS:
        yield experiment("fedavg", CROWD, config=dict(config)), f"config.{setting}", words
    for method, config, world, path, words in WORLDS:
        yield experiment(method, ROSTERS.get(method, TWO), config=dict(config), world=dict(world)), path, words
    for method, more, roster, words in REFUSED_ROSTERS:
        yield experiment(method, roster, **more), "", words


def test_what_does_not_fit_is_refused(subtests: pytest.Subtests) -> None:
    """Nothing was begun then."""
    stage = Stage(METHODS, sites(NAMES))
    for given, path, words in cases():
        with subtests.test(f"{given['method']}: {words}", given=given):
            with pytest.raises(Refused) as refusal:
                stage.start(given)
            assert re.search(words, f"{refusal.value.what} {refusal.value.todo}"), refusal.value
            assert refusal.value.todo
            assert not path or refusal.value.context["path"] == path
    assert stage.journal.run_ids() == ()
