"""The sites' true domains, filled into a result by who owns the data, and how well the groups fit them."""

from __future__ import annotations

from collections.abc import Mapping

from tideline.client.answers import RunResult
from tideline.report.maps import last_groups


def fill_in(result: RunResult, domains: Mapping[str, str]) -> None:
    """Write each site's domain into a result, and the last grouping's adjusted Rand index, where there are groups."""
    for client in result["clients"]:
        client["domain"] = domains.get(client["name"])
    if result["groups"]:
        result["groups"]["adjusted_rand_index"] = adjusted_rand_index(last_groups(result), domains)


def adjusted_rand_index(groups: Mapping[str, str], domains: Mapping[str, str]) -> float | None:
    """How well groups fit domains, over the sites that have both: 1 the same, about 0 as by chance; None of fewer than two."""
    both = sorted(groups.keys() & domains.keys())
    if len(both) < 2:
        return None
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score([domains[site] for site in both], [groups[site] for site in both]))
