"""The models that a run ended in: of a coordinator's run, or of a simulation, by what its method declares."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tideline.archive.checks import LAX
from tideline.archive.digests import check_digest
from tideline.archive.folder import FolderParts
from tideline.archive.parts import Parts
from tideline.archive.reader import decode, tensors_in
from tideline.client.answers import RunResult, ValidatedData
from tideline.client.http import Client
from tideline.core.algorithm import AnyAlgorithm, Methods, RunModel, SiteModels, resolve, where_summed
from tideline.core.asked.scoring import Prior
from tideline.core.asked.world import ALL, World, world_in
from tideline.core.errors import NotFound, Refused
from tideline.core.record import Weights
from tideline.core.run import Digest, Role
from tideline.core.settings import nearest
from tideline.engine.model.runs import Status
from tideline.experiments.chosen import Chosen, chosen_for, chosen_model
from tideline.learning.around.class_shares import UNCORRECTED, correction_in, shares_in
from tideline.learning.around.clipping import adapting
from tideline.learning.around.medians import medians_in
from tideline.learning.around.sums import SUMS
from tideline.learning.frozen import base_of, whole
from tideline.learning.in_world import in_world, statistics_in
from tideline.learning.model_file import BEST, FINAL, Model, Origin
from tideline.learning.normalising import constants, copied
from tideline.learning.rows.filled import copied as copied_medians
from tideline.learning.weights import state_dict_in
from tideline.nets import played

AT_SITE = "tideline site export --home HOME --run {run} model{which} --out model.safetensors"
SHOWN = 5  # sites in a sentence
BY_GIVEN = "It normalises by the mean and spread of the rows that it is given, as each site did by its own"
WAIT = "Wait for it: tideline run watch {run}"
NEXT = {
    Status.STALLED: "See why with `tideline run show {run}`, and when that is mended: tideline run resume {run}",
    Status.FAILED: "See why with `tideline run show {run}`, and start another run",
    Status.CANCELLED: "Start another run",
}


class Ended:
    """A completed run, and what its method declares of its models. Raises Refused for a run that has not completed.

    which: its last models, or those of its best round. Raises NotFound for a run that has none. parts: where the files of that
    state are, the frozen part of its network among them; who asks for no model needs none.
    """

    def __init__(self, result: RunResult, methods: Methods, which: str = FINAL, parts: Parts | None = None) -> None:
        self.result, self.run, self.which, self._parts = result, result["run"], which, parts
        if result["status"] != Status.COMPLETED:
            what = f"Run {self.run} is {result['status']}, and only a completed run has a final model"
            raise Refused(what, NEXT.get(Status(result["status"]), WAIT).format(run=self.run), path="run")
        self.whole: World = world_in(result["world"])
        self.prior = Prior(result.get("prior", Prior.SOURCE))
        method = where_summed(resolve(methods, result["method"]), result.get("secure_sums"))
        if result.get("secure_sums"):
            method = replace(method, state=SUMS.of(method.state))
        method = in_world(method, self.whole.scaling, self.prior, self.whole.fills)
        self.method: AnyAlgorithm = adapting(method, (result.get("privacy") or {}).get("quantile") is not None)
        self.config = self.method.configure(result["config"])
        self.world = played(self.whole, self.base, str(result["weights"]))
        self.roles = {client["name"]: client["role"] for client in result["clients"]}
        self.best = best_in(result) if which == BEST else None

    def check(self, site: str | None) -> None:
        """Raises Refused where no model could be in the final state, before it is fetched."""
        if site is not None and site not in self.roles:
            what = f"Run {self.run} has no site {site!r}"
            raise NotFound(what, f"Its sites: {', '.join(self.roles)}{nearest(site, list(self.roles))}", path="site")
        run, sites = self.method.run_model, self.method.site_models
        if self.method.no_model:
            raise NotFound(self.method.no_model, "See what it sends and keeps: `--state` writes the run's final state")
        if (site is None and run is None) or (site is not None and sites is None):
            raise self.elsewhere(site)
        if site is not None and sites is not None and (sites.known is None or self.roles[site] not in sites.roles):
            raise self.elsewhere(site)

    def elsewhere(self, site: str | None) -> NotFound:
        """The sentence that says where the models are."""
        run, sites = self.method.run_model, self.method.site_models
        name = self.method.name
        if sites is None:
            return NotFound(f"With {name} a run has one model, and no site has its own", "Leave --site out")
        names = [each for each, role in self.roles.items() if role in sites.roles]
        if site is not None and site not in names:
            roles = " and ".join(f"{role.value}s" for role in sites.roles)
            whole = "; leave --site out for the run's model" if run else ""
            return NotFound(
                f"{site} is a {self.roles[site]}; with {name} {roles} have models", f"Name one of these: {named(names)}{whole}"
            )
        what = f"With {name} each site has a model of its own"
        if sites.known is not None:
            return NotFound(what, f"Name one: --site {' or '.join(names[:SHOWN])}", path="site")
        asked = "" if self.which == FINAL else f" --which {self.which}"
        there = f"at {site or named(names)}: {AT_SITE.format(run=self.run, which=asked)}"
        return NotFound(f"{what}, which the coordinator does not have", f"Its owner writes it {there}", path="site")

    def chosen(self, state: object, site: str | None) -> Model:
        """The run's model, or a site's that the coordinator knows. Raises NotFound where there is none."""
        self.check(site)
        model = self.of_run(state) if site is None else self.of_site(state, site)
        if model is not None:
            return model
        if site is None and self.method.site_models is not None:
            raise self.elsewhere(None)
        raise NotFound(f"{site or 'The run'} has no model in run {self.run}", "It took no part in the training of one")

    def of_run(self, state: object) -> Model | None:
        """The run's model; None where it has none."""
        run = self.method.run_model
        if run is None:
            return None
        corrects = self.prior is Prior.EM
        notes = run.differs(self.config), BY_GIVEN if self.whole.scaling.kind.own else "", UNCORRECTED if corrects else ""
        note = " ".join(filter(None, notes))
        return self.made(run.of(self.config, self.world, state), run, self.origin(None, note), state)

    def of_site(self, state: object, site: str) -> Model | None:
        """A site's own model as the coordinator knows it; None where it knows none."""
        sites = self.method.site_models
        if sites is None or sites.known is None or self.roles[site] not in sites.roles:
            return None
        corrects = self.prior is Prior.EM and self.roles[site] == Role.TARGET
        note = " ".join(filter(None, (BY_GIVEN if self.whole.scaling.kind.own else "", UNCORRECTED if corrects else "")))
        return self.made(sites.known(self.config, self.world, state, site), sites, self.origin(site, note), state)

    def of_memory(self, memory: object, site: str) -> Model | None:
        """A site's own model from its memory; None where that holds none."""
        sites = self.method.site_models
        if sites is None or sites.of is None or self.roles[site] not in sites.roles:
            return None
        return self.made(sites.of(self.config, self.world, memory), sites, self.origin(site), memory)

    def made(
        self, weights: Weights, by: RunModel[Any, Any] | SiteModels[Any, Any, Any], origin: Origin, found: object
    ) -> Model | None:
        """found: the state or memory that the weights are of; beside them are what rows are normalised by, and predictions
        corrected.
        """
        if not weights:
            return None
        if self.whole.frozen:
            weights = whole(self.whole, self.base(), weights, by.form)
        return Model(
            world=replace(self.whole, trains=ALL, normalise=None),
            weights=weights,
            form=by.form,
            options=by.options(self.config),
            origin=origin,
            scaling=self.whole.scaling.named,
            statistics=constants(self.whole.scaling) or statistics_in(found),
            correction=correction_in(found),
            source_shares=shares_in(found),
            medians=medians_in(found),
        )

    def base(self) -> Weights:
        """The file of the run that has what is frozen."""
        assert self._parts is not None, "models over frozen tensors are made whole from the run's files"
        return base_of(self.whole, state_dict_in(tensors_in(self._parts.view(Digest(str(self.result["weights"]))))))

    def origin(self, site: str | None, note: str = "") -> Origin:
        selection = self.result.get("selection")
        return Origin(
            method=self.method.name,
            run=self.run,
            which=self.which,
            round=self.result["rounds"] if self.best is None else self.best["round"],
            selected={} if self.best is None or selection is None else {selection["score"]: self.best["value"]},
            site=site or "",
            state_digest="" if self.best else self.result["state_digest"] or "",
            metrics=self.metrics(site) if self.best is None else self.metrics_at(self.best["cursor"], site),
            note=note,
        )

    def metrics(self, site: str | None) -> Mapping[str, float]:
        """A site's last metrics; of the run the mean accuracy over the sites that were scored."""
        clients = self.result["clients"]
        if site is not None:
            return {k: v for c in clients if c["name"] == site for k, v in c.get("metrics", {}).items()}
        known = [c["accuracy"] for c in clients if c["accuracy"] is not None]
        return {"accuracy": sum(known) / len(known)} if known else {}

    def metrics_at(self, cursor: int, site: str | None) -> Mapping[str, float]:
        """A site's accuracy at a scoring, or the mean over the sites that were scored."""
        points = [each for each in self.result["curve"] if each["cursor"] == cursor and (site is None or each["client"] == site)]
        return {"accuracy": sum(each["accuracy"] for each in points) / len(points)} if points else {}


def from_state(model: Model, root: Digest) -> Model:
    """The same model, which says of which state of the run it is."""
    return replace(model, origin=replace(model.origin, state_digest=root))


def best_in(result: RunResult) -> ValidatedData:
    """The best scoring of a run. Raises NotFound for one that does not select, or whose sites told no such score."""
    run, selection = result["run"], result.get("selection")
    if selection is None:
        what = f"Run {run} selects by no score, so none of its rounds is the best"
        raise NotFound(what, "Leave --which out, or start a run with `selection`, such as accuracy", path="which")
    best = selection["best"]
    if best is None:
        what = f"No site of run {run} told {selection['score']} of its validation rows, so none of its rounds is the best"
        raise NotFound(what, "Leave --which out; the run's notes say more", path="which")
    return best


def hint_of(result: RunResult) -> str:
    """What whoever gets the last model of a run should know: that another one is the best. Empty where it is the best itself."""
    selection = result.get("selection")
    best = None if selection is None else selection["best"]
    if selection is None or best is None or best == selection["last"]:
        return ""
    return f"This is the last model; the best by {selection['score']} is of round {best['round']}: --which best writes it"


def named(sites: list[str]) -> str:
    more = f" and {len(sites) - SHOWN} more" if len(sites) > SHOWN else ""
    return f"{', '.join(sites[:SHOWN])}{more}" if sites else "no site of this run"


def remote_model(client: Client, run: str, site: str | None, methods: Methods, which: str = FINAL) -> tuple[Model, str]:
    """The model of a coordinator's run, or of one of its sites, and what to know of it (`hint_of`).

    Raises Refused errors that say where it is.
    """
    result = client.run(quote(run, safe=""))
    if result.get("verdict"):
        of = chosen_for(result, site)
        return chosen_model(result, of, partial(model_for, client, methods, which)), f"Chosen for {of.target}: {said_of(of)}"
    with tempfile.TemporaryDirectory(prefix="tideline-") as folder:
        parts = FolderParts(Path(folder), durable=False)
        ended = Ended(result, methods, which, parts)
        ended.check(site)
        root = fetch(client, ended.run, parts, which)
        model = from_state(ended.chosen(decode(ended.method.state, root, parts, LAX), site), root)
        # The tensors are maps of files that go with the folder.
        weights, shares = {name: w.clone() for name, w in model.weights.items()}, model.source_shares
        made = replace(model, weights=weights, statistics=copied(model.statistics), medians=copied_medians(model.medians))
        made = made if shares is None else replace(made, source_shares=shares.clone())
        return made, hint_of(ended.result) if which == FINAL else ""


def model_for(client: Client, methods: Methods, which: str, run: str, target: str) -> Model:
    """The model that a run has for a target: its own, where the coordinator knows it, or the run's. Raises Refused errors."""
    found = client.run(quote(run, safe=""))
    sites = where_summed(resolve(methods, found["method"]), found.get("secure_sums")).site_models
    known = sites is not None and sites.known is not None and Role.TARGET in sites.roles
    return remote_model(client, run, target if known else None, methods, which)[0]


def said_of(of: Chosen) -> str:
    """What votes, with its share."""
    return " and ".join(f"{name} ({100 * share:.0f} %)" if share < 1 else name for name, share in of.weights.items())


def fetch(client: Client, run: str, parts: FolderParts, which: str = FINAL) -> Digest:
    """Every file of the final state, or of the best round's, each checked against its digest; the root's."""
    listed = client.get(f"/runs/{run}/files{'' if which == FINAL else f'?which={which}'}")
    for digest, size in listed["files"]:
        with contextlib.closing(parts.upload(Digest(check_digest(digest)), int(size))) as upload:
            for chunk in client.download(f"/parts/{digest}?run={run}"):
                upload.write(chunk)
            upload.commit()
    return Digest(check_digest(listed["root"]))
