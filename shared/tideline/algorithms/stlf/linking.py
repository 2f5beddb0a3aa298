"""From what devices reported to the problem (P), its plan, the rules that it is compared with, and the result's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Generator, Tensor

from tideline.algorithms.stlf.client import MAIN
from tideline.algorithms.stlf.messages import Chosen, Curve, State
from tideline.algorithms.stlf.settings import STLF
from tideline.core.errors import RosterRefused
from tideline.core.phase import MOST_VALUES, Replies, Table, Turn
from tideline.core.record import Nothing
from tideline.core.run import ClientId, Roster
from tideline.numerics.alignment.divergences import from_curves, separability
from tideline.numerics.links import baselines, bounds, link_problem
from tideline.numerics.links.baselines import between
from tideline.numerics.links.bounds import LARGEST_DIVERGENCE, Bools, Floats
from tideline.numerics.links.link_problem import LINK, EnergyMode, Phi, Plan, Problem, normalised

NO_LINK = -1.0  # joules: what is kept is finite
MOST_NAMED = 10  # devices in an error
Rows = tuple[tuple[float, ...], ...]
MOST_NAMES = int((MOST_VALUES / 5) ** 0.5)  # beyond so many devices their matrices are left out


@dataclass(frozen=True, eq=False)
class Beside:
    """What rules look at beside the problem: counts (N,) of rows, attention (N, N) of each source in each target's model."""

    count: Floats
    attention: Floats


Rule = Callable[[Problem, Plan, np.random.Generator, Beside], Plan]


def by_count(of: Problem, given: Plan, rng: np.random.Generator, beside: Beside) -> Plan:
    return baselines.count_weights(of, given, beside.count)


def by_attention(of: Problem, given: Plan, rng: np.random.Generator, beside: Beside) -> Plan:
    """Weights that were given; of a target to whose sources none was given, equal ones."""
    kept = np.where(between(of, given), beside.attention, 0)
    return baselines.weighted(of, given, np.where(kept.sum(0) > 0, kept, 1))


def drawn(draw: Callable[[Problem, Plan, np.random.Generator], Plan]) -> Rule:
    """A rule that looks at nothing beside."""
    return lambda of, given, rng, beside: draw(of, given, rng)


def thinned(then: Rule, of: Problem, given: Plan, rng: np.random.Generator, beside: Beside) -> Plan:
    """Each source stays one with probability 0.75; weights by another rule."""
    return then(of, baselines.thinned(of, given, rng), rng, beside)


RANDOM = drawn(baselines.random_weights)
BY_RULE: Mapping[str, Rule] = {
    "random_alpha": RANDOM,
    "fedavg_alpha": by_count,
    "attention_alpha": by_attention,
    "average_degree": drawn(baselines.random_degree),
    "single_matching": drawn(baselines.one_each),
    "random_psi": partial(thinned, RANDOM),
    "fedavg_psi": partial(thinned, by_count),
    "attention_psi": partial(thinned, by_attention),
}


def numpy_rng(rng: Generator) -> np.random.Generator:
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=rng)))


def joules(config: STLF, roster: Roster, bits: float, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """P (n,) and K (n, n), K_ij = P_i M / R_ij, in the roster's order. What is not given is drawn; what is changes no draw."""
    names = [member.id for member in roster]
    power, rate = bounds.draw_power(len(names), rng), bounds.draw_rate(len(names), rng)
    for i, sender in enumerate(names):
        power[i] = config.watts.get(sender, power[i])
        for j, receiver in enumerate(names):
            rate[i, j] = config.rates.get(sender, {}).get(receiver, rate[i, j])
    K = bounds.transfer_energy(power, rate, bits)
    return torch.from_numpy(power), torch.from_numpy(np.where(np.isinf(K), NO_LINK, K))


def measured(state: State, bits: float) -> State:
    """K from the transfers that were measured: from i by way of the coordinator to j at 1 / (1 / sent_i + 1 / fetched_ij) bit/s.

    Links of which nothing was measured, and those that there are not, stay as they are.
    """
    K, at = state.K.clone(), {name: i for i, name in enumerate(state.roster)}
    for receiver, rates in state.rates.items():
        for sender, rate in rates.items():
            i, j = at[sender], at[receiver]
            if sender in state.sent and K[i, j] != NO_LINK:
                K[i, j] = float(state.watts[i]) * bits * (1 / state.sent[sender] + 1 / rate)
    return replace(state, K=K)


def size_in_bits(model: Mapping[str, Tensor]) -> float:
    return 8.0 * sum(w.nbytes for w in model.values())


def errors_of(sent: Mapping[str, Curve], known: Mapping[str, int]) -> dict[str, Curve]:
    """Curves of shares, for devices that there are."""
    return {name: Curve(curve.above.double().clamp(max=1)) for name, curve in sent.items() if name in known}


def names_of(state: State, divergence: str) -> tuple[str, ...]:
    """The devices that can be linked: those that were not lost, and sent what divergences are made of. Sorted."""
    there = sorted(set(state.count) - set(state.lost))
    known = state.moments if divergence == "statistics" else state.errors
    return tuple(name for name in there if name in known) if len(there) > 1 else tuple(there)


def divergences(state: State, names: tuple[str, ...], config: STLF) -> Tensor:
    """d (N, N) float64, zero on the diagonal."""
    if config.divergence == "statistics":
        rows = [state.moments[name] for name in names]
        return separability(torch.stack([r.mean for r in rows]), torch.stack([r.variance for r in rows]))
    d = torch.zeros(len(names), len(names), dtype=torch.float64)
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            if i < j:
                d[i, j] = d[j, i] = pair_divergence(state, one, other, config)
    return d


def pair_divergence(state: State, one: str, other: str, config: STLF) -> float:
    """d of a pair; of one that a device reported nothing of, 2: as far apart as can be."""
    if other not in state.errors[one] or one not in state.errors[other]:
        return LARGEST_DIVERGENCE
    mine, theirs = state.errors[one][other].above, state.errors[other][one].above
    return float(from_curves(mine, theirs, config.calibrated, config.one_sided))


def problem(state: State, names: tuple[str, ...], d: Tensor, turn: Turn[STLF], phi_energy: float | None = None) -> Problem:
    """(P) of the devices. Raises RosterRefused where those that are left cannot be linked."""
    c, order = turn.config, [m.id for m in turn.roster]
    at = [order.index(ClientId(name)) for name in names]
    columns = (state.error, state.count, state.labelled)
    error, count, labelled = (np.array([column[name] for name in names], np.float64) for column in columns)
    K = state.K[at][:, at].numpy()
    K = np.where(K == NO_LINK, np.inf, K)
    check_left(state, names, labelled > 0, np.isfinite(K))
    reported = bounds.Measured(error, count, labelled, d.numpy())
    S, T = bounds.bounds(
        reported, delta=c.delta, complexity=cast(bounds.Complexity, c.complexity), divergence_scale=c.divergence_scale
    )
    phi = Phi(c.phi_source, c.phi_target, c.phi_energy if phi_energy is None else phi_energy)
    return Problem(S, T, K, phi, reported.pinned, cast(EnergyMode, c.energy_mode))


def check_left(state: State, names: Sequence[str], able: Bools, reaches: Bools) -> None:
    """Raises RosterRefused where devices cannot be linked, with those that were lost before. able (N,), reaches (N, N)."""
    lonely = [n for j, n in enumerate(names) if not able[j] and not (able & reaches[:, j]).any()]
    if len(names) < 2:
        what = f"A link wants two devices, and {listed(names) or 'none'} is left"
    elif not able.any():
        what = f"No device with labels is left, only {listed(names)}"
    elif lonely:
        what = f"No device with labels is left that has a link to {listed(lonely)}"
    else:
        return
    lost = sorted({*state.roster} - {*names})
    todo = f"Begin again when {listed(lost)} can answer in time, or with a longer deadline" if lost else "Add devices with labels"
    raise RosterRefused(f"{what}{f'; {listed(lost)} gave no answer, or none of use' if lost else ''}", todo, lost=lost)


def listed(names: Sequence[str]) -> str:
    """Names for messages, the first of them where they are many."""
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def solved(of: Problem, config: STLF) -> Plan:
    """The plan by the solver and the weights that are asked for."""
    if config.solver == "sca":
        from tideline.numerics.links.signomial import sca

        found = sca(of)
    else:
        found = link_problem.exact(of)
    if config.weights == "solver":
        return found
    made = link_problem.polished(of, found) if config.weights == "single" else link_problem.power(of, found.psi, config.exponent)
    return replace(made, objectives=found.objectives, iterations=found.iterations, status=found.status, flags=found.flags)


def formed(state: State, replies: Replies[Nothing], turn: Turn[STLF]) -> State:
    """The state with divergences, the plan, the rules to compare it with, and the sweep over phi_E."""
    if turn.config.measured:
        state = measured(state, turn.config.bits or size_in_bits(state.model))
    names = names_of(state, turn.config.divergence)
    d = divergences(state, names, turn.config)
    of, rng = problem(state, names, d, turn), numpy_rng(turn.rng)
    main = solved(of, turn.config)
    count = np.array([state.count[name] for name in names], np.float64)
    attention = turn.config.attention
    beside = Beside(count, np.array([[attention.get(target, {}).get(source, 0.0) for target in names] for source in names]))
    others = [chosen(rule, BY_RULE[rule](of, main, rng, beside)) for rule in turn.config.compare]
    swept = [costs(state, names, d, turn, phi) for phi in turn.config.sweep]
    return replace(
        state,
        names=names,
        d=d,
        plans=(chosen(MAIN, main), *others),
        objectives=main.objectives,
        sweep=torch.tensor(swept, dtype=torch.float64) if swept else None,
        moments={},
    )


def chosen(rule: str, plan: Plan) -> Chosen:
    """A plan as the state stores it."""
    psi, alpha = torch.from_numpy(plan.psi.copy()), torch.from_numpy(plan.alpha.copy())
    return Chosen(rule, psi, alpha, plan.energy, plan.links, plan.objective)


def costs(state: State, names: tuple[str, ...], d: Tensor, turn: Turn[STLF], phi_energy: float) -> list[float]:
    """phi_E, joules, links and sources of the plan at another weight of energy."""
    plan = solved(problem(state, names, d, turn, phi_energy), turn.config)
    return [phi_energy, plan.energy, float(plan.links), float((plan.psi == 0).sum())]


def of_links(state: State) -> dict[str, Table]:
    """Tables of one round, those that there is something for."""
    main = state.plans[0]
    made: dict[str, Table] = {}
    if len(state.names) <= MOST_NAMES:
        made["divergence"] = Table(state.names, state.names, rows(state.d.tolist()))
        made["weight of each source in each target"] = Table(state.names, state.names, rows(main.alpha.tolist()), drawn="graph")
        each = zip(state.names, main.psi.tolist(), strict=True)
        reported = rows((1 - psi, state.error[n], state.count[n], state.labelled[n]) for n, psi in each)
        made["devices"] = Table(state.names, ("source", "error", "rows", "labelled"), reported)
    made["links"] = links_table(state, main)
    if any(state.rates.values()):
        # How fast what each device (rows) had sealed came from the coordinator to each other (columns); 0: not measured.
        names = state.names[:MOST_NAMES]
        speeds = rows((state.rates.get(j, {}).get(i, 0.0) / 1e6 for j in names) for i in names)
        made["measured Mbit/s, from each to each"] = Table(names, names, speeds)
    if state.objectives:
        columns = tuple(str(i + 1) for i in range(len(state.objectives)))
        made["objective by iteration"] = Table(("objective",), columns, (state.objectives,))
    if state.sweep is not None:
        made["what links cost by phi_E"] = sweep(state)
    return {name: table for name, table in made.items() if table.rows}


def rows(values: Iterable[Iterable[float]]) -> Rows:
    return tuple(tuple(map(float, row)) for row in values)


def links_table(state: State, main: Chosen) -> Table:
    """Each link with its weight, and the joules of its transfer."""
    found = [(i, j) for i in range(len(state.names)) for j in range(len(state.names)) if main.alpha[i, j] > LINK]
    of = [float(main.alpha[i, j]) for i, j in found]
    at = {name: i for i, name in enumerate(state.roster)}
    joules = [float(state.K[at[state.names[i]], at[state.names[j]]]) for i, j in found]
    names = tuple(f"{state.names[i]} to {state.names[j]}" for i, j in found)
    return Table(names[: MOST_VALUES // 4], ("weight", "joules"), rows(zip(of, joules, strict=True))[: MOST_VALUES // 4])


def sweep(state: State) -> Table:
    """Figure 6: what is saved by a larger weight of energy."""
    assert state.sweep is not None
    swept = state.sweep[state.sweep[:, 0].argsort()]
    saved = swept[0, 2] - swept[:, 2]
    values = rows((*row[1:].tolist(), float(less)) for row, less in zip(swept, saved, strict=True))
    return Table(tuple(f"{phi:g}" for phi in swept[:, 0].tolist()), ("joules", "links", "sources", "saved links"), values)


def comparison(state: State, metrics: Mapping[ClientId, Mapping[str, float]]) -> dict[str, Table]:
    """The mean accuracy over each rule's targets (those with labels to score by), joules, and percent of the largest."""
    found = [(plan, mean_accuracy(state, plan, metrics)) for plan in state.plans]
    scored = [(plan, accuracy) for plan, accuracy in found if accuracy is not None]
    if not scored:
        return {}
    shares = normalised([plan.joules for plan, _ in scored])
    values = rows((a, plan.joules, share, plan.links) for (plan, a), share in zip(scored, shares, strict=True))
    columns = ("target accuracy", "joules", "% of the largest", "links")
    return {"links compared": Table(tuple(plan.rule for plan, _ in scored), columns, values)}


def mean_accuracy(state: State, plan: Chosen, metrics: Mapping[ClientId, Mapping[str, float]]) -> float | None:
    """Over a rule's targets."""
    name = "accuracy" if plan.rule == MAIN else f"accuracy_{plan.rule}"
    targets = [ClientId(n) for n, psi in zip(state.names, plan.psi.tolist(), strict=True) if psi]
    values = [metrics[n][name] for n in targets if name in metrics.get(n, {})]
    return sum(values) / len(values) if values else None
