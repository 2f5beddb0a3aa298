"""A line of words on each metric and figure: what it says, and which way is better. What is not known by name gets a plain line.

Numbers are as their method reports them; the method's own page says by which formula.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

OWN = "As the method reports it; the method's page says what it is."
METRICS: Mapping[str, str] = {
    "accuracy": "Share of held-out rows that are predicted right. More is better; by chance it is about 1 / classes.",
    "source_only": "The same of the model of the labelled sites alone, not adapted: what there was without this method.",
    "balanced_accuracy": "Mean over classes of the share that is predicted right of each: rare classes count as much as others.",
    "macro_f1": "Mean over classes of F1: high where most rows of a class are found, and few others are taken for it.",
    "auroc": "How well scores rank the rows of a class before the others: 100 % always, 50 % by chance.",
    "ece": "How far confidences are from being right, on average: at 0, of rows predicted with 80 %, 80 % are right.",
    "first_loss": "Loss of the first mini-batch, before the site has trained: how well what it was sent fits its rows.",
    "loss": "What training makes small, on the site's own rows. It should fall; values of two methods cannot be compared.",
    "samples": "Rows that the site trained on in this exchange.",
    "error": "Share of rows that a model of the method gets wrong. What is trained to be fooled should come near chance.",
    "separation": "Mean loss of the classifiers that tell two sites apart: the lower, the further apart the sites.",
    "alignment": "How far the site's features still are from the others', as the adversary sees it. It should fall.",
    "disentangling": "Loss of the class from features that should not tell it. It should stay near chance.",
    "confusion": "How well classes are hidden from the features that should not tell them. It should fall.",
    "information": "How much two halves of the features tell of each other, at most log n. It should fall.",
    "reconstruction": "How far what is rebuilt or regenerated is from what it should be. It should fall.",
    "missing": "Classes of which the site has no row.",
    "looseness": "How loosely the site's features lie around the clusters they belong to. It should fall.",
    "spread": "Variance of the site's features. Near 0 they have collapsed, and nothing can be told from them.",
    "epsilon": "What has been spent so far, at most, of the protection of a row. Less is better, and it never falls.",
    "agree": "Share of rows to which the two models give the same label. More is better, if they are not wrong together.",
    "collapsed": "1 where the two models could not be weighed against each other and count half each; 0 else.",
    "confident": "Share of rows on which the vote is confident enough to be learnt from.",
    "distilled": "Share of held-out rows that a model of so many distilled points a class predicts right.",
    "adapted": "1 where something other than the model without adaptation was chosen; 0 else.",
    "evidence_s": "Evidence that adapting helps: by how much the chosen labels fit the rows better. More is better.",
    "evidence_rho": "Evidence that adapting helps: how much better labels agree with those of near rows. More is better.",
    "labelled": "Share of rows that got a label of the site's own, and are trained on.",
}
ACCURACIES = "Share of held-out rows that are predicted right, by the model or the rule that its name says."
FIGURES: Mapping[str, str] = {
    "weights of the clients (GradAlign)": "How much each site counts in the common model: the better its step fits, the more.",
    "weights of the clusters' models, v": "How much of each cluster's model a site uses: one dark cell, one model alone.",
    "weights of the clusters' models, mean v of a cluster's sites": "The same, as the mean over the sites of a cluster.",
    "rounds of training that were not taken": "Rounds in which training gave no finite numbers: the model before was kept.",
    "attention, xi": "How much the model of a site (column) counts in that of another (row): alike sites do most.",
    "divergence": "How differently two sites' data look to classifiers that tell them apart: dark pairs are far apart.",
    "weight of each source in each target": "Who teaches whom: an arrow's width is the share of a source in a target.",
    "devices": "Of each site: whether it teaches, its own error, its rows, and the share of them with labels.",
    "links": "Each link that is used: its weight in the receiver's model, and the energy of sending over it.",
    "measured Mbit/s, from each to each": "How fast what one site (column) had sealed came to another (row); 0: not measured.",
    "objective by iteration": "What the choice of links makes small, by iteration of the solver. It should fall and then stay.",
    "what links cost by phi_E": "What is saved if energy counts for more: further right, fewer links and less energy.",
    "links compared": "The chosen links beside simpler rules: accuracy at the targets, and energy.",
    "distance from the target": "How far each source's features are from the target's, by their moments. Less is better.",
    "weight of each site": "How much each site's knowledge counts in the common model.",
    "batch-norm distance": "How far the target's own statistics are from the sources'. It should fall.",
    "embeddings of the clients": "Where the hypernetwork puts each site: sites that lie close get similar models.",
    "spread of the clients' models": "By how much the sites' models differ, layer by layer: 0 would be one model for all.",
    "A-distance of each source (rows) and target": "0: features of both cannot be told apart. 2: they always can.",
    "confusion": "Held-out rows by their class (row) and by what they were taken for (column): right ones lie on the diagonal.",
    "share of each class at each site": "Which classes each site's rows are of: a dark cell is most of a site.",
}
MARKS: Mapping[str, str] = {
    "left out": "its reply was not used, or it sent none",
    "clipped": "its step was longer than allowed, and was made shorter",
    "chosen": "its reply was among those that were folded",
    "lacks classes": "it has no row of some class",
    "linked anew": "it got other teachers, for one of its own was gone",
    "without a model": "nobody was left to teach it",
}
NUMBERED = re.compile(r"accuracy_\w+")
MEMBER = re.compile(r"(.+)_\d{1,9}")  # of a family
END = re.compile(r".+_(?:low|high)")


def metric_line(name: str) -> str:
    """What a metric says."""
    member = MEMBER.fullmatch(name)
    known = METRICS.get(name) or METRICS.get(member[1] if member else "")
    if known is None and END.fullmatch(name):
        return "An end of the 95 % interval of what its name begins with."
    return known or (ACCURACIES if NUMBERED.fullmatch(name) else OWN)


def figure_line(name: str) -> str:
    """What a table that folds reported says."""
    return FIGURES.get(name) or next((line for known, line in FIGURES.items() if name.startswith(f"{known} ")), OWN)


def mark_lines(words: Iterable[str]) -> list[tuple[str, str]]:
    """What each mark says of a site."""
    return [(word, MARKS.get(word, OWN)) for word in words]


def metric_lines(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, metric_line(name)) for name in names]
