"""What a run asks of its scorings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tideline.core.settings import setting


class Scores(StrEnum):
    """Which scorings tell more than an accuracy."""

    LAST = "last"
    EVERY = "every"
    ACCURACY = "accuracy"


class Selection(StrEnum):
    """The score by which a run's best round is found. All but the last two need labels."""

    NONE = "none"
    ACCURACY = "accuracy"
    BALANCED_ACCURACY = "balanced_accuracy"
    MACRO_F1 = "macro_f1"
    AUROC = "auroc"
    ECE = "ece"
    ENTROPY = "entropy"
    INFORMATION = "information"

    @property
    def labels(self) -> bool:
        """Whether it is of rows whose labels are known."""
        return self not in (Selection.NONE, Selection.ENTROPY, Selection.INFORMATION)

    @property
    def least(self) -> bool:
        """Whether the least value is the best."""
        return self in (Selection.ECE, Selection.ENTROPY)


class Prior(StrEnum):
    """At which shares of the classes a target's predictions are made.

    SOURCE  those of the rows that the model learnt from: predictions stay as they are
    EM      its own, which it estimates from predictions for its training rows, without labels
    """

    SOURCE = "source"
    EM = "em"


@dataclass(frozen=True)
class Scoring:
    """What a run asks of its scorings.

    scores     which of them tell all scores; the others tell an accuracy
    selection  the score of validation rows that each tells beside; such a run does not train on these rows
    outputs    whether targets keep what the last of them predicts, for training rows and held-out ones; it stays where it is
    prior      at which shares of the classes targets predict
    """

    scores: Scores = setting(Scores.LAST, doc="which scorings tell all scores")
    selection: Selection = setting(Selection.NONE, doc="the score of validation rows by which the best round is found")
    outputs: bool = setting(False, doc="whether targets keep what the last of them predicts")
    prior: Prior = setting(Prior.SOURCE, doc="at which shares of the classes targets predict: source or em")


NO_MORE = Scoring(scores=Scores.ACCURACY)  # also of a run that was recorded before there was a choice
