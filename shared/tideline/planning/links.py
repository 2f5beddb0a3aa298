"""The plan of links: from what was asked to the problem (P), its solution within a time, and the answer as plain data.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422). The formulas are those of tideline.numerics; here they are given names and a time limit.

Shapes: N devices; S (N,), T and K (N, N), row i sends and column j receives.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tideline.core.errors import ConfigRefused
from tideline.numerics.links import link_problem
from tideline.numerics.links.bounds import Bools, Floats, Measured, Unfit, confidence, rademacher, source_bound
from tideline.numerics.links.bounds import bounds as bounds_of
from tideline.numerics.links.link_problem import LINK, Phi, Plan, Problem
from tideline.numerics.links.wireless import saved, transfer_energy
from tideline.planning.asked import Device, LinksAsked, Matrix, read_links, told_by_name

SHARE_FOR_BOUND = 0.2  # of the time, for the bound that another solver's plan is measured by
LARGEST_K = 1e12  # J
SMALLEST_PHI = 1e-100
# What the formulas call an input, where it is called otherwise here: of a device, or as a whole.
DEVICES = {"error": "error", "count": "count", "labelled": "labelled", "S": "S", "power": "watts"}
CALLED = {"rate": "rates", "n": "exponent", "pinned": "pins"}
TODO: Mapping[str, str] = {
    "devices": "Let a device have labels",
    "T": "Give a number for each link that there is; null where K or rates have none",
    "d": "Give a number in [0, 2] for each pair that a link joins; null where K or rates have none",
    "K": "Give it a link, or leave it out",
    "pins": "Leave one out, or let a device have labels",
    "watts": "Give the power in watts, above 0",
}


@dataclass(frozen=True)
class Bounded:
    """Bounds S (N,) and T (N, N), and whether d was uneven."""

    S: Floats
    T: Floats
    uneven: bool = False


def plan_links(given: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for what is asked in plain data, as plain data. Raises ConfigRefused with `context["path"]` and the names."""
    asked = read_links(given)
    until = time.monotonic() + asked.seconds
    with in_names(asked):
        problem, uneven = problem_of(asked)
    plan = solved(problem, asked, until)
    rows = list(swept(problem, asked, until))
    flags = (*plan.flags, *(["uneven"] * uneven), *(["unswept"] * (len(rows) < len(asked.sweep))))
    return told(asked, problem, replace(plan, flags=flags)) | {"sweep": with_saved(rows)}


def problem_of(asked: LinksAsked) -> tuple[Problem, bool]:
    """(P), and whether d was uneven, so that means were taken. Raises Unfit."""
    K = energies(asked)
    bounded = bounds(asked, np.isfinite(K))
    phi = Phi(*map(weight, (asked.phi.source, asked.phi.target, asked.phi.energy)))
    mode: link_problem.EnergyMode = "linear" if asked.energy_mode == "linear" else "ratio"
    return Problem(S=bounded.S, T=bounded.T, K=K, phi=phi, pinned=np.array(asked.pinned), energy_mode=mode), bounded.uneven


def weight(phi: float) -> float:
    """A weight of the objective. One that is next to nothing is nothing: its products would have no logarithm."""
    return phi if phi >= SMALLEST_PHI else 0.0


def energies(asked: LinksAsked) -> Floats:
    """K (N, N) in J, zero throughout where energy is not told. Raises Unfit, ConfigRefused."""
    N = len(asked.devices)
    if asked.rates:
        watts = column(asked, "watts")
        with np.errstate(over="ignore"):
            K = transfer_energy(watts, matrix(asked.rates, 0.0), asked.bits)
        check_energies(K, matrix(asked.rates, 0.0))
        return K
    return matrix(asked.K, np.inf) if asked.K else np.zeros((N, N))


def check_energies(K: Floats, rate: Floats) -> None:
    """Raises ConfigRefused for a link that takes more joules than K may have, such as one of a rate that is next to nothing."""
    for i, j in np.argwhere((K > LARGEST_K) & (rate > 0) & ~np.eye(len(K), dtype=bool)):
        path = f"rates[{i}][{j}]"
        what = f"{path} is {rate[i, j]:g} bit/s, at which a transfer takes more than {LARGEST_K:g} J"
        raise ConfigRefused(what, "Give null where there is no link", path=path)


def bounds(asked: LinksAsked, linked: Bools) -> Bounded:
    """S and T, given or worked out; linked (N, N): where there may be a link. Raises Unfit."""
    T = without(matrix(asked.T, np.nan), linked) if asked.T else None
    if asked.devices[0].S is not None:
        assert T is not None
        return Bounded(column(asked, "S"), T)
    error, count = column(asked, "error"), column(asked, "count")
    if T is not None:
        rad = rademacher(count, complexity_of(asked))
        return Bounded(source_bound(error, rad, confidence(count, asked.delta)), T)
    d = without(matrix(asked.d, np.nan), linked | linked.T)
    of = Measured(error, count, column(asked, "labelled"), d)
    S, T = bounds_of(of, delta=asked.delta, complexity=complexity_of(asked), divergence_scale=asked.divergence_scale)
    return Bounded(S, T, of.uneven)


def complexity_of(asked: LinksAsked) -> Any:
    """The word for a Rademacher bound, which has been checked."""
    return asked.complexity


def column(asked: LinksAsked, key: str) -> Floats:
    """One number of each device (N,)."""
    return np.array([getattr(device, key) for device in asked.devices], np.float64)


def matrix(given: Matrix, missing: float) -> Floats:
    """A matrix (N, N) with a number for what is null."""
    return np.array([[missing if each is None else each for each in row] for row in given], np.float64)


def without(given: Floats, linked: Bools) -> Floats:
    """A matrix (N, N) with zeros where there is no link: nothing can have been measured there."""
    zeroed: Floats = np.where(linked, given, 0)
    return zeroed


@contextmanager
def in_names(asked: LinksAsked) -> Iterator[None]:
    """What the formulas refuse by index is refused by place and name. Raises ConfigRefused."""
    with told_by_name(asked.names):
        try:
            yield
        except Unfit as error:
            raise refused(asked, error) from None


def refused(asked: LinksAsked, error: Unfit) -> ConfigRefused:
    """An input that no link can be made of, at its place in what was asked."""
    path, todo = place_of(asked, error)
    # Of an entry its path says which devices these are.
    who = {} if "[" in path else {"devices": [asked.names[i] for i in error.devices]}
    return ConfigRefused(f"{path}: {in_words(error.why, asked.devices)}", TODO.get(todo, "Correct the value"), path=path, **who)


def place_of(asked: LinksAsked, error: Unfit) -> tuple[str, str]:
    """The path of what the formulas call by a field and indices, and the word for what to do about it."""
    at = error.devices
    if error.field in DEVICES:
        key = DEVICES[error.field]
        return (f"devices[{at[0]}].{key}", key) if len(at) == 1 else ("devices", "devices")
    if error.field in ("d", "T") and len(at) == 2:
        return f"{error.field}[{at[0]}][{at[1]}]", error.field
    key = "rates" if error.field == "K" and asked.rates else CALLED.get(error.field, error.field)
    return key, "K" if error.field == "K" else key


def in_words(why: str, devices: Sequence[Device]) -> str:
    """A reason without indices: where these only repeat the place they are left out, elsewhere they are names."""
    bare = re.sub(r" \((device \d+|from \d+ to \d+)\)$", "", why)
    return re.sub(r"\bdevice (\d+)", lambda found: devices[int(found[1])].name, bare)


def solved(problem: Problem, asked: LinksAsked, until: float) -> Plan:
    """The plan by the solver and the weights that are asked for, with a bound that holds for every plan."""
    left = max(until - time.monotonic(), 0.0)
    best = link_problem.exact(problem, time_limit=left if asked.solver == "exact" else SHARE_FOR_BOUND * left)
    found = best if asked.solver == "exact" else approximated(problem, until)
    made = weighed(problem, asked, found)
    bound = min(best.objective if best.bound is None else best.bound, made.objective)
    gap = (made.objective - bound) / made.objective if made.objective > 0 else 0.0
    ended = {name: getattr(found, name) for name in ("status", "flags", "iterations", "objectives")}
    return replace(made, bound=bound, gap=gap, **ended)


def weighed(problem: Problem, asked: LinksAsked, found: Plan) -> Plan:
    """A plan's sources and targets with the weights that are asked for."""
    if asked.weights == "solver":
        return found
    return (
        link_problem.single(problem, found.psi)
        if asked.weights == "single"
        else link_problem.power(problem, found.psi, asked.exponent)
    )


def approximated(problem: Problem, until: float) -> Plan:
    """Algorithm 2; where its time is up, what it has come to, with the status limit."""
    # Imported here, since few plans need it.
    from tideline.numerics.links import signomial

    return signomial.sca(problem, time_limit=max(until - time.monotonic(), 0.0))


def swept(problem: Problem, asked: LinksAsked, until: float) -> Iterator[dict[str, Any]]:
    """What plans cost at other phi_E, the smallest first; none for which there is no time left."""
    for phi in sorted(asked.sweep):
        if time.monotonic() >= until:
            return
        plan = solved(replace(problem, phi=replace(problem.phi, energy=weight(phi))), asked, until)
        sources = int((plan.psi == 0).sum())
        yield {"phi_energy": phi, "joules": plan.energy, "links": plan.links, "sources": sources, "status": plan.status}


def with_saved(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the links that each has less than the first."""
    less = saved([row["links"] for row in rows]) if rows else ()
    return [row | {"saved": each} for row, each in zip(rows, less, strict=True)]


def told(asked: LinksAsked, problem: Problem, plan: Plan) -> dict[str, Any]:
    """A plan in names; matrices in the order of the devices, null on the diagonal and where there is no link."""
    names = asked.names
    psi = {name: "target" if each else "source" for name, each in zip(names, plan.psi.tolist(), strict=True)}
    at = zip(*np.nonzero(plan.alpha > LINK), strict=True)
    alpha = [
        {"from": names[i], "to": names[j], "weight": float(plan.alpha[i, j]), "joules": float(problem.K[i, j])} for i, j in at
    ]
    return {
        "devices": list(names),
        "psi": psi,
        "alpha": alpha,
        "objective": plan.objective,
        "bound": plan.bound,
        "gap": plan.gap,
        "energy": plan.energy,
        "normalised_energy": normalised_energy(problem, plan),
        "iterations": plan.iterations,
        "objectives": list(plan.objectives),
        "status": plan.status,
        "flags": list(plan.flags),
        "S": problem.S.tolist(),
        "T": nullable(problem.T, np.isfinite(problem.K)),
        "K": nullable(problem.K, np.isfinite(problem.K)),
    }


def normalised_energy(problem: Problem, plan: Plan) -> float:
    """Joules in percent of those that it takes if each source sends to each target that it reaches."""
    between = problem.usable & (plan.psi == 0)[:, None] & (plan.psi == 1)[None, :]
    return link_problem.normalised((plan.energy, float(problem.K[between].sum())))[0]


def nullable(given: Floats, linked: Bools) -> list[list[float | None]]:
    """A matrix as plain data."""
    there = linked & ~np.eye(len(given), dtype=bool)
    return [[v if ok else None for v, ok in zip(row, line, strict=True)] for row, line in zip(given.tolist(), there, strict=True)]
