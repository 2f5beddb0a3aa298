"""FedDaDiL: federated dataset dictionary learning (Fernandes Montesuma, Espinoza Castellon, Ngolè Mboula, Mayoue, Souloumiac,
Gouy-Pailler: Dataset Dictionary Learning in a Wasserstein Space for Federated Domain Adaptation, 2024).

Every site's data are seen as a Wasserstein barycenter of K labelled clouds, the atoms, which all sites learn together; a site's
barycentric coordinates alpha stay with it. A site without labels reconstructs itself from the labelled atoms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

from tideline.algorithms.averaging import mean_as
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.averaging.sums import alike, mean_of
from tideline.algorithms.feddadil import client, server, target
from tideline.algorithms.feddadil.messages import Heads, Mine, State
from tideline.algorithms.feddadil.target import keepsakes
from tideline.core.algorithm import Algorithm, SiteModels
from tideline.core.phase import Phase, Plan, Turn, to, to_all, unchanged
from tideline.core.record import Nothing
from tideline.core.run import Role
from tideline.core.settings import BATCH, ELSEWHERE, EPOCHS, RATE, ROUNDS, Plain, pull, setting
from tideline.learning.local_training import TrainingOptions
from tideline.learning.scoring.judging import judged
from tideline.nets.forms import COMMITTEE
from tideline.numerics.alignment import feature_maps
from tideline.numerics.transport.dictionary import OPTIMISERS

CHOICES = ("guard", target.NONE, target.OWN, target.R, target.E, target.COMMITTEE)


@dataclass(frozen=True)
class Config:
    """Settings of FedDaDiL. Symbols are those of the paper."""

    rounds: int = setting(40, low=1, high=100_000, sizes=ROUNDS, doc="passes over the dictionary, R")
    atoms: int = setting(3, low=1, high=1000, doc="atoms of the dictionary, K")
    points: int = setting(200, low=1, doc="points of each atom, n; rounded up to as many for each class")
    batch: int = setting(100, low=1, sizes=BATCH, doc="points of each atom in a mini-batch, n_b; rounded up likewise")
    epochs: int = setting(1, low=1, sizes=EPOCHS, doc="local epochs a pass, E")
    rate: float = setting(
        0.3, low=0.0, sizes=RATE, doc="learning rate of the points; features have a mean square near 1 when scaled"
    )
    label_rate: float = setting(0.1, low=0.0, sizes=RATE, doc="learning rate of the label logits, in units of rate")
    alpha_rate: float = setting(0.1, low=0.0, sizes=RATE, doc="learning rate of the coordinates, in units of rate")
    optimiser: str = setting("adam", choices=OPTIMISERS, doc="adam; rows: Adam on the rows of the mini-batch alone; sgd")
    beta: float | None = setting(
        None, low=0.0, doc="weight of the labels in the ground cost (eq. 6); unset: the largest distance"
    )
    init: str = setting(
        "class_gaussian", choices=("normal", "class_gaussian"), doc="first atoms: N(0, 1), or from class moments of the sources"
    )
    spread: float = setting(0.5, low=0.1, doc="class_gaussian: standard deviation of the points, in units of the told one")
    label_confidence: float = setting(0.9, low=0.01, high=0.9999, doc="p0: first probability of a point's own class")
    start: str = setting("atom", choices=("atom", "normal"), doc="where the barycenter's iterations begin")
    iterations: int = setting(10, low=1, doc="iterations of the barycenter, at most")
    entropy: float = setting(0.0, low=0.0, doc="0: exact transport; else Sinkhorn with this share of the mean cost")
    scaling: str = setting("rows", choices=feature_maps.KINDS, doc="how each site scales its features by its own statistics")
    classifier_l2: float | None = setting(
        None, low=0.0, sizes=ELSEWHERE, doc="weight decay of the classifiers; unset: min(1, d / n)"
    )
    adapt_every: int = setting(10, low=1, doc="passes between two adaptations of a target; the last three are averaged")
    choice: str = setting("guard", choices=CHOICES, doc="what a target predicts with; guard: decided there, without labels")
    stable: float = setting(0.05, low=0.0, high=1.0, doc="guard: share s of rows that may hinge on how sources are weighed")
    convincing: float = setting(0.2, doc="guard: rho from which the neighbours of changed rows convince")
    neighbours: int = setting(5, low=1, doc="guard: rows that are a row's neighbours")
    distil: tuple[int, ...] = setting((1, 5, 10, 20), low=1, doc="samples per class of the labelled summaries; [] for none")
    wire: str = setting("float32", choices=tuple(server.WIRE), doc="type of the atoms on the wire")
    line: bool = setting(
        False, doc="tell the loss along the line between two sites' atoms (figure 2a), which shows them to all sites"
    )
    encoder_rounds: int = setting(
        12, low=0, sizes=ROUNDS, doc="rounds of averaging that learn the encoder; 0 where data are features"
    )
    encoder_epochs: int = setting(1, low=1, sizes=EPOCHS, doc="local epochs of such a round")
    encoder_batch: int = setting(32, low=1, sizes=BATCH, doc="rows in a mini-batch of the encoder's SGD")
    encoder_rate: float = setting(1e-2, low=0.0, sizes=RATE, doc="learning rate of the encoder's SGD")
    encoder_momentum: float = setting(0.9, low=0.0, high=1.0, doc="momentum of the encoder's SGD")
    encoder_weight_decay: float = setting(5e-4, low=0.0, sizes=pull("encoder_rate"), doc="weight decay of the encoder's SGD")
    encoder: TrainingOptions = setting(TrainingOptions(), doc="how else the encoder is trained")
    head_rounds: int = setting(
        60, low=0, sizes=ROUNDS, doc="steps of the descent that learns linear layers on the features; 0 for none"
    )


def plan(c: Config) -> Plan[Config, State]:
    """Encode and embed (step 1), learn (step 2) with an adaptation now and then (step 3), score."""
    # Eq. 9: the unweighted mean over the sources.
    sources, means = to(Turn.sources, Model), mean_of(alike)
    encode: Phase[Config, State] = Phase("encode", client.train_encoder, ask=sources, fold=mean_as("model"), sums=means)
    embed: Phase[Config, State] = Phase("embed", client.embed, ask=to_all(Model), fold=unchanged)
    layers = to(Turn.sources, lambda state, turn: state.heads)
    head = Phase("head", client.slope, ask=layers, fold=server.descend, sums=server.SLOPES)
    describe = Phase("describe", client.describe, ask=to(Turn.sources, Nothing), fold=server.first_atoms)
    learn = Phase("learn", client.learn, ask=to(server.both, server.atoms), fold=server.average_atoms, sums=server.SUMS)
    last = replace(learn, step=client.learn_shown, sums=None) if c.line else learn
    adapt: Phase[Config, State] = Phase("adapt", target.adapt, ask=to(Role.TARGET, server.dictionary_of), fold=unchanged)
    line: Phase[Config, State] = Phase("line", client.walk, ask=server.line_to_all, fold=unchanged)
    names = (*target.ACCURACIES, "adapted", "evidence_s", "evidence_rho", *(f"distilled_{spc}" for spc in c.distil))
    heads = to(server.both, lambda state, turn: state.heads)
    grade: Phase[Config, State] = judged(target.judge, heads, takes=Heads, keeps=Mine, others=names)
    encoded = (encode,) * c.encoder_rounds + (embed,) * (c.encoder_rounds > 0)
    describes = c.init == "class_gaussian" or c.head_rounds > 0
    ready = (describe,) * describes + (head,) * c.head_rounds
    learnt = chain.from_iterable((learn, adapt) if r in target.passes(c) else (learn,) for r in range(1, c.rounds))
    return (*encoded, *ready, *learnt, last, adapt, *(line,) * c.line, grade)


def table_5(points: int, atoms: int, batch: int) -> Mapping[str, Plain]:
    """A row of the paper's table 5."""
    return {"points": points, "atoms": atoms, "batch": batch}


# Atoms: neither as many as classes nor as anything else in a small world.
FEW: Mapping[str, Plain] = {"rounds": 2, "atoms": 4, "points": 12, "batch": 6, "adapt_every": 1, "distil": [1]}
PRESETS: Mapping[str, Mapping[str, Plain]] = {
    "demo": {"rounds": 20, "adapt_every": 5, "encoder_rounds": 8, "encoder_rate": 0.03, "head_rounds": 30},
    "tiny": {**FEW, "encoder_rounds": 1, "encoder_batch": 16, "encoder_rate": 0.05, "head_rounds": 1},
    "imageclef": table_5(840, 6, 240),
    "imageclef_e": table_5(1440, 5, 180),
    "caltech_office10": table_5(500, 3, 100),
    "caltech_office10_e": table_5(500, 3, 50),
    "office31": table_5(2170, 3, 465),
    "office31_e": table_5(1550, 3, 465),
    "office_home": table_5(1950, 3, 520),
    "office_home_e": table_5(1950, 2, 325),
    "adaptiope": table_5(3690, 4, 615),
    "adaptiope_e": table_5(3690, 4, 615),
}

CLAIMS = (
    "Coordinates alpha, features and labels are never sent.",
    "Not claimed: that alpha cannot be inferred. With optimiser: sgd the sizes of the atoms' movements give it exactly.",
    "Under Adam they do not, but an atom that does not move at all has the coordinate zero.",
    "Not claimed: that atoms tell nothing about rows. They are points learnt from the data.",
    "The first atoms are drawn around the class means of one source each, and go to all sites.",
    "Not claimed: that rare classes are hidden. The first gradient of the layers tells each class's rows and summed features.",
)

feddadil = Algorithm(
    name="feddadil",
    paper="Fernandes Montesuma et al.: Dataset Dictionary Learning in a Wasserstein Space for Federated Domain Adaptation, 2024",
    summary="A dictionary of labelled point clouds that adapts sites without labels",
    config=Config,
    state=State,
    begin=server.begin,
    plan=plan,
    memory=Mine,
    prepare=client.prepare,
    fits=server.needs_both,
    keepsakes=keepsakes,
    result=(SiteModels(target.model_of, form=COMMITTEE, options=lambda config: {"scaling": config.scaling}),),
    notes=server.notes,
    sizes=server.sizes,
    claims=CLAIMS,
    unprotected="transport plans are between all rows of a site at once: what one row adds depends on the others",
    presets=PRESETS,
)
