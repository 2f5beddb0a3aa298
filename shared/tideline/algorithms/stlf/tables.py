"""What people are told of links: divergences, weights, joules, how the solver went, and how rules compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tideline.algorithms.stlf.client import MAIN
from tideline.algorithms.stlf.messages import Chosen, State
from tideline.core.phase import MOST_VALUES, Table
from tideline.core.run import ClientId
from tideline.numerics.links.link_problem import LINK, normalised

Rows = tuple[tuple[float, ...], ...]
MOST_NAMES = int((MOST_VALUES / 5) ** 0.5)  # beyond so many devices their matrices are not told


def of_links(state: State) -> dict[str, Table]:
    """Tables of one round, those that there is something for."""
    main = state.plans[0]
    made: dict[str, Table] = {}
    if len(state.names) <= MOST_NAMES:
        made["divergence"] = Table(state.names, state.names, rows(state.d.tolist()))
        made["weight of each source in each target"] = Table(state.names, state.names, rows(main.alpha.tolist()), drawn="graph")
        made["devices"] = Table(state.names, ("source", "error", "rows", "labelled"), devices(state, main))
    made["links"] = links_table(state, main)
    if any(state.rates.values()):
        made["measured Mbit/s, from each to each"] = measured(state)
    if state.objectives:
        columns = tuple(str(i + 1) for i in range(len(state.objectives)))
        made["objective by iteration"] = Table(("objective",), columns, (state.objectives,))
    if state.sweep is not None:
        made["what links cost by phi_E"] = sweep(state)
    return {name: table for name, table in made.items() if table.rows}


def rows(values: Iterable[Iterable[float]]) -> Rows:
    """Numbers of a table."""
    return tuple(tuple(map(float, row)) for row in values)


def devices(state: State, main: Chosen) -> Rows:
    """What each device told of itself, and what it became."""
    told = zip(state.names, main.psi.tolist(), strict=True)
    return rows((1 - psi, state.error[n], state.count[n], state.labelled[n]) for n, psi in told)


def links_table(state: State, main: Chosen) -> Table:
    """Each link with its weight, and the joules of its transfer."""
    found = [(i, j) for i in range(len(state.names)) for j in range(len(state.names)) if main.alpha[i, j] > LINK]
    of = [float(main.alpha[i, j]) for i, j in found]
    names = tuple(f"{state.names[i]} to {state.names[j]}" for i, j in found)
    return Table(
        names[: MOST_VALUES // 4], ("weight", "joules"), rows(zip(of, cost(state, found), strict=True))[: MOST_VALUES // 4]
    )


def cost(state: State, found: list[tuple[int, int]]) -> list[float]:
    """Joules of links."""
    at = {name: i for i, name in enumerate(state.roster)}
    return [float(state.K[at[state.names[i]], at[state.names[j]]]) for i, j in found]


def measured(state: State) -> Table:
    """How fast what each device (rows) had sealed came from the coordinator to each other (columns); 0: not measured."""
    names = state.names[:MOST_NAMES]
    return Table(names, names, rows((state.rates.get(j, {}).get(i, 0.0) / 1e6 for j in names) for i in names))


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
    told = [(plan, accuracy) for plan, accuracy in found if accuracy is not None]
    if not told:
        return {}
    shares = normalised([plan.joules for plan, _ in told])
    values = rows((a, plan.joules, share, plan.links) for (plan, a), share in zip(told, shares, strict=True))
    columns = ("target accuracy", "joules", "% of the largest", "links")
    return {"links compared": Table(tuple(plan.rule for plan, _ in told), columns, values)}


def mean_accuracy(state: State, plan: Chosen, metrics: Mapping[ClientId, Mapping[str, float]]) -> float | None:
    """Over a rule's targets."""
    name = "accuracy" if plan.rule == MAIN else f"accuracy_{plan.rule}"
    targets = [ClientId(n) for n, psi in zip(state.names, plan.psi.tolist(), strict=True) if psi]
    values = [metrics[n][name] for n in targets if name in metrics.get(n, {})]
    return sum(values) / len(values) if values else None
