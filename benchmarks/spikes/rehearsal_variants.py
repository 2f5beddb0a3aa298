"""Rules that were tried beside the shipped ones; what they gain stands in benchmarks/README.md.

Each weighs the candidates' predictions (m,) by rehearsals at s sites. The first candidate is no adaptation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from benchmarks.spikes.rehearsal_rules import Case

Array: TypeAlias = NDArray[np.float64]
FEW = 0.005  # of the rows changed: of fewer no gain of each is told


def soft(score: Array, tau: float) -> Array:
    """Those above 0, and no adaptation, by exp(score / tau)."""
    helps = score > 0
    helps[0] = True
    w = np.where(helps, np.exp((score - score[helps].max()) / tau), 0)
    made: Array = w / w.sum()
    return made


def of_errors(case: Case, tau: float, least: float) -> Array:
    """By the mean share of the errors that went: a point counts more where few are left."""
    return soft((case.gains / (1 - case.accuracies[:, :1] + least)).mean(0), tau)


def log_odds(case: Case, tau: float) -> Array:
    """By the mean gain of the log-odds of being right."""
    rows = np.array([[len(each.y)] for each in case.rehearsals])
    right = case.accuracies * rows
    odds = np.log((right + 1) / (rows - right + 1))
    return soft((odds - odds[:, :1]).mean(0), tau)


def spread_of_means(case: Case) -> tuple[Array, Array]:
    """Each candidate's mean gain (m - 1,), and that mean's variance: over sites, half its own and half of all, or by its rows."""
    gains = case.gains[:, 1:]
    own = gains.var(0, ddof=1) if len(gains) > 1 else np.zeros(gains.shape[1])
    return gains.mean(0), np.maximum((own + own.mean()) / 2, case.by_rows[:, 1:].mean(0) + 1e-6) / len(gains)


def pooled(case: Case, tau: float, least: float) -> Array:
    """Mean gains shrunk to that of all candidates, as far as their spread is one of few sites (empirical Bayes)."""
    means, noise = spread_of_means(case)
    between = max(means.var(ddof=1) - noise.mean(), least**2)
    share = between / (between + noise)
    return soft(np.append(0, share * means + (1 - share) * means.mean()), tau)


def in_noise(case: Case, k: float, least: float) -> Array:
    """Softer where mean gains are less sure."""
    means, noise = spread_of_means(case)
    return soft(np.append(0, means), k * float(np.sqrt(noise.mean() + least**2)))


def with_mean(case: Case, tau: float, share: float) -> Array:
    """The vote, and a share of the weight for the mean of all candidates."""
    w = soft(case.gains.mean(0), tau)
    made: Array = (1 - share) * w + share / len(w)
    return made


def of_losers_too(case: Case, tau: float) -> Array:
    """The vote of all candidates, those that lost on average too."""
    score = case.gains.mean(0)
    w = np.exp((score - score.max()) / tau)
    made: Array = w / w.sum()
    return made


def of_changes(case: Case, tau: float, share: float) -> Array:
    """By the mean gain, and by that of each changed prediction times the share that the candidate changes at the target."""
    changed = np.stack([each.changed for each in case.rehearsals])
    each = np.clip((case.gains / np.maximum(changed, FEW)).mean(0), -1, 1) * case.target.changed
    return soft((1 - share) * case.gains.mean(0) + share * each, tau)
