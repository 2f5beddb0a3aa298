"""The exchange: the coordinator asks some clients something, each answers, the coordinator folds the answers in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from tideline.core.asked.scoring import Selection
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.record import is_record, specs
from tideline.core.run import ClientId, Role, Roster, RunId
from tideline.core.settings import EMPTY, setting
from tideline.core.step import AnyStep

if TYPE_CHECKING:
    from torch import Generator, Tensor

G = TypeVar("G", covariant=True)
S = TypeVar("S")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
C_contra = TypeVar("C_contra", contravariant=True)
DRAWN = ("", "graph")  # how a table may ask to be drawn
MOST_TABLES, MOST_VALUES = 32, 10_000  # that are kept of one round, so that no method fills the database
# The two tables of a scoring that tells confidences: a row for each site, a column for each of the bins of equal width over
# [0, 1], held-out rows in the cells. Whoever reads results knows them by these names.
RIGHT, WRONG = "confidence of right predictions", "confidence of wrong predictions"
# The tables of a scoring that tells all scores: one for each score, with a row for each site; and one with a row for each class,
# of all sites together. And that of validation rows: a row for each site.
SCORE_NAMES = ("accuracy", "balanced_accuracy", "macro_f1", "auroc", "ece")
SCORE_COLUMNS = ("value", "low", "high", "rows")  # a score, its 95 % interval, and the number of rows
# The tables of a rehearsal: by site and candidate; of each target what is expected there, and the weight of each candidate.
ACCURACIES, GAINS, GAIN_OF = "rehearsed accuracy", "rehearsed gain", "rehearsed gain of each candidate"
EXPECTED, WEIGHT_OF = "expected at targets", "weight of each candidate"
GAIN_COLUMNS, ACCURACY_COLUMNS = ("gain", "gain low", "gain high"), ("accuracy", "accuracy low", "accuracy high")
EXPECTED_COLUMNS = ("gain is known", "accuracy is known", *GAIN_COLUMNS, *ACCURACY_COLUMNS, "distance", "unlike", "changed")
SCORE, RECALLS, VALIDATION = "score: ", "recall of each class", "validation"


@dataclass(frozen=True)
class Turn(Generic[C_co]):
    """What `ask` and `fold` see beside the state. `rng` is seeded from run, purpose and cursor. run: its name, which no numbers
    may depend on.
    """

    config: C_co
    world: World
    roster: Roster
    round: int
    rng: Generator
    run: RunId = RunId("")

    def members(self, *roles: Role) -> tuple[ClientId, ...]:
        """The clients with one of these roles, sorted; all of them where no role is named."""
        return tuple(sorted(m.id for m in self.roster if not roles or m.role in roles))

    def labelled(self, *roles: Role) -> tuple[ClientId, ...]:
        """The clients whose training rows carry labels, sorted; those with one of these roles, where roles are named."""
        return tuple(sorted(m.id for m in self.roster if m.labelled and (not roles or m.role in roles)))

    def sources(self) -> tuple[ClientId, ...]:
        """The sources with labels, sorted."""
        return self.labelled(Role.SOURCE)


class Lazy(Mapping[ClientId, G], Generic[G]):
    """Values by client, iterated in sorted order, each made when it is looked at."""

    def __init__(self, load: Mapping[ClientId, Callable[[], G]]) -> None:
        self._load = load

    def __getitem__(self, client: ClientId) -> G:
        return self._load[client]()

    def __iter__(self) -> Iterator[ClientId]:
        return iter(sorted(self._load))

    def __len__(self) -> int:
        return len(self._load)


class Replies(Lazy[G]):
    """The answers of one exchange, each decoded when it is looked at. marks: what was changed of them, as in Folded."""

    def __init__(
        self,
        load: Mapping[ClientId, Callable[[], G]],
        metrics: Mapping[ClientId, Mapping[str, float]] = EMPTY,
        marks: Mapping[str, tuple[ClientId, ...]] = EMPTY,
    ) -> None:
        super().__init__(load)
        self.metrics, self.marks = metrics, marks

    def loader(self, client: ClientId) -> Callable[[], G]:
        """What makes a client's value."""
        return self._load[client]


class Each(Lazy[G]):
    """What an `ask` gives that has a message of its own for each client: make(client), each made when it is looked at."""

    def __init__(self, clients: Iterable[ClientId], make: Callable[[ClientId], G]) -> None:
        super().__init__({client: partial(make, client) for client in clients})


@dataclass(frozen=True)
class To:
    """An `ask` that is made by `to`: whom it asks can be known without a state."""

    whom: Role | Callable[[Turn[Any]], Iterable[ClientId]]
    message: Callable[..., Any]

    def __call__(self, state: Any, turn: Turn[Any]) -> dict[ClientId, Any]:
        clients = self.clients(turn)
        if is_record(self.message):
            return dict.fromkeys(clients, self.message(*(getattr(state, spec.name) for spec in specs(self.message))))
        return dict.fromkeys(clients, self.message(state, turn))

    def clients(self, turn: Turn[Any]) -> tuple[ClientId, ...]:
        return turn.members(self.whom) if isinstance(self.whom, Role) else tuple(self.whom(turn))


def to(
    whom: Role | Callable[[Turn[C]], Iterable[ClientId]], message: Callable[..., G]
) -> Callable[[S, Turn[C]], dict[ClientId, G]]:
    """An `ask` that sends the same message to all clients of a role, or to those that whom(turn) gives.

    message: a record type, whose fields take the values of the state's fields of the same name; or a function of state and turn.
    """
    return To(whom, message)


def to_all(message: Callable[..., G]) -> Callable[[S, Turn[C]], dict[ClientId, G]]:
    """An `ask` that sends every client the same message, as `to` makes it."""
    return to(Turn.members, message)


def unchanged(state: S, replies: Replies[Any], turn: Turn[C]) -> S:
    """A `fold` that keeps the state as it is."""
    return state


@dataclass(frozen=True)
class Table:
    """Numbers by row and column, such as a weight for each site and model: values[i][j] is that of rows[i] and columns[j].

    admins: it is part of results for API keys of the role admin alone; who owns the journal, as a simulation does, sees it.
    drawn: how reports draw it, where its shape does not say so. graph: rows send, columns receive, values are weights, and one
    above zero is an arrow. What an arrow costs is in a table of the name `links` in the same round: rows `A to B`, a column
    `joules`.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    admins: bool = setting(False, doc="for admins only")
    drawn: str = setting("", choices=DRAWN, doc="how it is drawn: by its shape, or as a graph")


@dataclass(frozen=True)
class Folded(Generic[S]):
    """What a `fold` gives that has more for users than its state: of single sites, of groups of them, or numbers.

    marks   a word -> the clients, such as {"chosen": ("bert",), "left out": ("anna", "carl")}
    groups  a group's name -> its members, such as {"cluster 1": ("anna",)}; a client is in one of them at most
    tables  a table's name -> the table

    They are in the closed round's entry of the run's result, and no site gets them. Those of a phase without a step are dropped.
    Of one round there are at most MOST_TABLES of MOST_VALUES in all; engine.model.fold_report checks their names.
    """

    state: S
    marks: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    groups: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    tables: Mapping[str, Table] = field(default_factory=lambda: EMPTY)


def marked(words: Mapping[str, Iterable[ClientId]]) -> dict[str, tuple[ClientId, ...]]:
    """Marks for a Folded, without the words that no client has."""
    return {word: clients for word, named in words.items() if (clients := tuple(named))}


def folded(given: S | Folded[S]) -> Folded[S]:
    return given if isinstance(given, Folded) else Folded(given)


@dataclass(frozen=True)
class Tells:
    """What a scoring is asked beyond an accuracy.

    whole: all scores. selection: a score of validation rows. outputs: that targets keep what is predicted.
    """

    whole: bool = False
    selection: Selection = Selection.NONE
    outputs: bool = False


@dataclass(frozen=True)
class Sums(Generic[C_contra, S]):
    """What a fold needs of replies, where it needs no more than sums over sites.

    shapes  of what a site gives, by name, from the order, and from settings and world; the same for all sites
    of      a site's numbers, from its reply, the order and the site: float tensors, between -1 and 1 in each place but for those
            that are too large and are clipped there
    fold    the next state from their sums over the sites that have answered
    alike   names of what all sites give the same of, where they weigh alike: the rest can be shortened, and get noise. None: no
            noise can be added
    differs whether sites may be asked for different things; then each learns of the others' orders by digest
    lone    what of the sums may be one site's alone, in a clause of the contract: then whoever may get a reply may get that
    """

    shapes: Callable[[Any, Any, World], Mapping[str, tuple[int, ...]]]
    of: Callable[[Any, Any, Any, SecureSums], Mapping[str, Tensor]]
    fold: Callable[[Mapping[str, Tensor], S, Turn[C_contra], SecureSums], S | Folded[S]]
    alike: tuple[str, ...] | None = None
    differs: bool = False
    lone: str = ""


@dataclass(frozen=True)
class Phase(Generic[C_contra, S]):
    """One exchange. Without a step it is a computation on the coordinator: `fold` gets no replies.

    `fold` gives the next state, or a Folded. `floor` is the least number of replies that it can work with, whatever the run's
    waiting rules say, and `needs` says for users what needs so many. With a floor of 0 it can work with none, where those rules
    have `min_replies`: a phase that asks one client at a time. `sampled`: a run may ask only some of those that
    `ask` names, `floor` of them or more: the fold works with their replies, and the others can be left out of that round.
    report(phase, tells): of a scoring, the same phase that tells more. asks: roles, if nobody else is ever asked: in a run that
    protects rows others do not pay for it. sums: what `fold` needs, where that is sums over sites alone: then a run may have them
    added up so that nobody sees a single reply. masks: it is there for the masks of such sums, and left out where nothing is
    masked.
    """

    name: str
    step: AnyStep | None
    ask: Callable[[S, Turn[C_contra]], Mapping[ClientId, Any]] = lambda state, turn: EMPTY
    fold: Callable[[S, Replies[Any], Turn[C_contra]], S | Folded[S]] = unchanged
    floor: int | None = None
    needs: str = ""
    skip: Callable[[S], bool] = lambda state: False
    sampled: bool = False
    report: Callable[[AnyPhase, Tells], AnyPhase] | None = None
    asks: tuple[Role, ...] = ()
    sums: Sums[C_contra, S] | None = None
    masks: bool = False


Plan: TypeAlias = tuple[Phase[C_contra, S], ...]
AnyPhase: TypeAlias = Phase[Any, Any]
AnyPlan: TypeAlias = tuple[AnyPhase, ...]
