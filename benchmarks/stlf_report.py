"""What a run of ST-LF is asked for, and what its result tells: for `benchmarks/stlf.py` and `benchmarks/stlf_network.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tideline.algorithms.stlf.settings import GIVEN, RULES

SETTINGS = ("rounds", "epochs", "alone", "batch", "rate", "momentum", "divergence", "exchanges", "share", "sweep")


def settings(args: Any) -> dict[str, Any]:
    """The method's settings."""
    given = {name: getattr(args, name) for name in SETTINGS}
    given["sweep"] = [float(phi) for phi in args.sweep.split(",") if phi]
    more = json.loads(args.config)
    return {**given, "compare": [r for r in RULES if r not in GIVEN or "attention" in more], **more}


def compared(result: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy in percent, joules, percent of the largest and links of each rule; and the sweep."""
    found = {name: report for phase in result["phases"] for name, report in phase["tables"].items()}
    of = found["links compared"]
    keys = ("accuracy", "joules", "share", "links")
    report = zip(of["rows"], of["values"], strict=True)
    row: dict[str, Any] = {"rules": {rule: dict(zip(keys, (100 * each[0], *each[1:]), strict=True)) for rule, each in report}}
    if (swept := found.get("what links cost by phi_E")) is not None:
        row["sweep"] = dict(zip(swept["rows"], swept["values"], strict=True))
    return row


def traffic(result: Mapping[str, Any]) -> dict[str, float]:
    """Megabytes to and from all devices, in all and for the divergences alone."""

    def mb(phases: Sequence[Mapping[str, Any]]) -> float:
        return float(round(sum(phase["bytes_up"] + phase["bytes_down"] for phase in phases) / 1e6, 2))

    apart = [phase for phase in result["phases"] if phase["name"] in ("separate", "measure", "describe")]
    return {"mb": mb(result["phases"]), "divergence_mb": mb(apart)}
