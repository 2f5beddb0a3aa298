"""The plan of links: from a request to the problem (P), its solution within a time, and the answer as plain data.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422). The formulas are those of tideline.numerics; here they are given names and a time limit.

Shapes: N devices; S (N,), T and K (N, N), row i sends and column j receives.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import numpy as np

from tideline.core.errors import ConfigRefused
from tideline.core.settings import Plain
from tideline.numerics.links import bounds as formulas
from tideline.numerics.links import link_problem
from tideline.numerics.links.bounds import Bools, Complexity, Floats, Measured, Unfit
from tideline.numerics.links.link_problem import LINK, Phi, Plan, Problem
from tideline.planning.request import Device, LinksRequest, Matrix, naming_devices, read_links

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


def plan_links(given: Mapping[str, Plain]) -> dict[str, Plain]:
    """The plan for a request, both as plain data. Raises ConfigRefused with `context["path"]` and the devices' names."""
    request = read_links(given)
    until = time.monotonic() + request.seconds
    with in_names(request):
        problem, uneven = problem_of(request)
    plan = solved(problem, request, until)
    plans = list(swept(problem, request, until))
    flags = (*plan.flags, *(["uneven"] * uneven), *(["unswept"] * (len(plans) < len(request.sweep))))
    sweep = [cost(phi, other, saved=plans[0][1].links - other.links) for phi, other in plans]
    return answer_of(request, problem, replace(plan, flags=flags)) | {"sweep": sweep}


def problem_of(request: LinksRequest) -> tuple[Problem, bool]:
    """(P), and whether d was uneven, so that means were taken. Raises Unfit."""
    K = energies(request)
    S, T, uneven = bounds(request, np.isfinite(K))
    phi = Phi(weight(request.phi.source), weight(request.phi.target), weight(request.phi.energy))
    mode: link_problem.EnergyMode = "linear" if request.energy_mode == "linear" else "ratio"
    return Problem(S=S, T=T, K=K, phi=phi, pinned=np.array(request.pinned), energy_mode=mode), uneven


def weight(phi: float) -> float:
    """A weight of the objective; a tiny one becomes 0, for its products would have no logarithm."""
    return phi if phi >= SMALLEST_PHI else 0.0


def energies(request: LinksRequest) -> Floats:
    """K (N, N) in J, all zero if the request has no energies. Raises Unfit, ConfigRefused."""
    N = len(request.devices)
    if request.rates:
        watts = column(request, "watts")
        with np.errstate(over="ignore"):
            K = formulas.transfer_energy(watts, matrix(request.rates, 0.0), request.bits)
        check_energies(K, matrix(request.rates, 0.0))
        return K
    return matrix(request.K, np.inf) if request.K else np.zeros((N, N))


def check_energies(K: Floats, rate: Floats) -> None:
    """Raises ConfigRefused for a link that takes more joules than K may have, such as one of a rate that is next to nothing."""
    for i, j in np.argwhere((K > LARGEST_K) & (rate > 0) & ~np.eye(len(K), dtype=bool)):
        path = f"rates[{i}][{j}]"
        what = f"{path} is {rate[i, j]:g} bit/s, at which a transfer takes more than {LARGEST_K:g} J"
        raise ConfigRefused(what, "Give null where there is no link", path=path)


def bounds(request: LinksRequest, linked: Bools) -> tuple[Floats, Floats, bool]:
    """S (N,) and T (N, N), given or worked out, and whether d was uneven. linked (N, N): where a link may be. Raises Unfit."""
    T = without(matrix(request.T, np.nan), linked) if request.T else None
    if request.devices[0].S is not None:
        assert T is not None
        return column(request, "S"), T, False
    error, count = column(request, "error"), column(request, "count")
    complexity = cast(Complexity, request.complexity)  # it has been checked
    if T is not None:
        rad = formulas.rademacher(count, complexity)
        return formulas.source_bound(error, rad, formulas.confidence(count, request.delta)), T, False
    d = without(matrix(request.d, np.nan), linked | linked.T)
    of = Measured(error, count, column(request, "labelled"), d)
    S, T = formulas.bounds(of, delta=request.delta, complexity=complexity, divergence_scale=request.divergence_scale)
    return S, T, of.uneven


def column(request: LinksRequest, key: str) -> Floats:
    return np.array([getattr(device, key) for device in request.devices], np.float64)


def matrix(given: Matrix, missing: float) -> Floats:
    return np.array([[missing if each is None else each for each in row] for row in given], np.float64)


def without(given: Floats, linked: Bools) -> Floats:
    """A matrix (N, N) with zeros where there is no link, so nothing was measured."""
    zeroed: Floats = np.where(linked, given, 0)
    return zeroed


@contextmanager
def in_names(request: LinksRequest) -> Iterator[None]:
    """Refusals of formulas, which have indices, get a path and the devices' names. Raises ConfigRefused."""
    with naming_devices(request.names):
        try:
            yield
        except Unfit as error:
            raise refused(request, error) from None


def refused(request: LinksRequest, error: Unfit) -> ConfigRefused:
    """The refusal of an input, at its place in the request."""
    path, todo = place_of(request, error)
    # Of an entry its path says which devices these are.
    who = {} if "[" in path else {"devices": [request.names[i] for i in error.devices]}
    return ConfigRefused(f"{path}: {in_words(error.why, request.devices)}", TODO.get(todo, "Correct the value"), path=path, **who)


def place_of(request: LinksRequest, error: Unfit) -> tuple[str, str]:
    """The path in the request of a formula's field and indices, and the key of TODO for it."""
    at = error.devices
    if error.field in DEVICES:
        key = DEVICES[error.field]
        return (f"devices[{at[0]}].{key}", key) if len(at) == 1 else ("devices", "devices")
    if error.field in ("d", "T") and len(at) == 2:
        return f"{error.field}[{at[0]}][{at[1]}]", error.field
    key = "rates" if error.field == "K" and request.rates else CALLED.get(error.field, error.field)
    return key, "K" if error.field == "K" else key


def in_words(why: str, devices: Sequence[Device]) -> str:
    """A reason with names instead of indices, and without indices that only repeat the path."""
    bare = re.sub(r" \((device \d+|from \d+ to \d+)\)$", "", why)
    return re.sub(r"\bdevice (\d+)", lambda found: devices[int(found[1])].name, bare)


def solved(problem: Problem, request: LinksRequest, until: float) -> Plan:
    """The plan by the requested solver and weights, with a bound that holds for every plan."""
    left = max(until - time.monotonic(), 0.0)
    best = link_problem.exact(problem, time_limit=left if request.solver == "exact" else SHARE_FOR_BOUND * left)
    found = best if request.solver == "exact" else approximated(problem, until)
    made = weighed(problem, request, found)
    bound = min(best.objective if best.bound is None else best.bound, made.objective)
    gap = (made.objective - bound) / made.objective if made.objective > 0 else 0.0
    ended = {name: getattr(found, name) for name in ("status", "flags", "iterations", "objectives")}
    return replace(made, bound=bound, gap=gap, **ended)


def weighed(problem: Problem, request: LinksRequest, found: Plan) -> Plan:
    """A plan's sources and targets with the requested weights."""
    if request.weights == "single":
        return link_problem.single(problem, found.psi)
    return link_problem.power(problem, found.psi, request.exponent) if request.weights == "power" else found


def approximated(problem: Problem, until: float) -> Plan:
    """Algorithm 2; if its time is up, the plan so far, with the status limit."""
    # Imported here, since few plans need it.
    from tideline.numerics.links import signomial

    return signomial.sca(problem, time_limit=max(until - time.monotonic(), 0.0))


def swept(problem: Problem, request: LinksRequest, until: float) -> Iterator[tuple[float, Plan]]:
    """Plans at other phi_E, the smallest first, as long as there is time."""
    for phi in sorted(request.sweep):
        if time.monotonic() >= until:
            return
        yield phi, solved(replace(problem, phi=replace(problem.phi, energy=weight(phi))), request, until)


def cost(phi: float, plan: Plan, saved: int) -> dict[str, Plain]:
    """What a plan of the sweep costs; saved: links, against the first."""
    found = {"phi_energy": phi, "joules": plan.energy, "links": plan.links, "sources": int((plan.psi == 0).sum())}
    return {**found, "status": plan.status, "saved": saved}


def answer_of(request: LinksRequest, problem: Problem, plan: Plan) -> dict[str, Plain]:
    """A plan with names; matrices in the order of the devices, null on the diagonal and where there is no link."""
    names = request.names
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
    """Joules in percent of those needed if each source sends to each target that it reaches."""
    between = problem.usable & (plan.psi == 0)[:, None] & (plan.psi == 1)[None, :]
    return link_problem.normalised((plan.energy, float(problem.K[between].sum())))[0]


def nullable(given: Floats, linked: Bools) -> list[list[float | None]]:
    there = linked & ~np.eye(len(given), dtype=bool)
    return [[v if ok else None for v, ok in zip(row, line, strict=True)] for row, line in zip(given.tolist(), there, strict=True)]
