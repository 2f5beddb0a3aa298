"""Methods described, and experiments checked before anybody is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Generator

from tideline.archive.parts import Parts
from tideline.core.algorithm import AnyAlgorithm, Methods, contract, resolve, where_summed
from tideline.core.asked.scoring import Scoring, Selection
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import HeadWorld, World, checked_world
from tideline.core.errors import ConfigRefused, Refused
from tideline.core.phase import Turn
from tideline.core.privacy import contract_digest
from tideline.core.record import Nothing
from tideline.core.run import Digest, Roster, RunId
from tideline.core.settings import Settings, plain, unsaid
from tideline.engine.compute.configured import Configured, check_computing, check_selection, taking
from tideline.engine.compute.facts import facts_of, settings_of
from tideline.engine.compute.initial_weights import check_start, seen
from tideline.engine.compute.private.metering import able, check_asked, private_world, promised, settled_privacy
from tideline.engine.compute.private.pricing import charges_of
from tideline.engine.compute.sums.phases import check_noise, check_sites, check_sums, summed_in, unsummed
from tideline.engine.compute.turns.cohort import check_sampling, notes_of
from tideline.engine.ports import compute
from tideline.learning.around.class_shares import check_prior
from tideline.learning.around.clipping import adapting
from tideline.learning.in_world import in_world, normalised_world
from tideline.learning.loading.augmented import check_augment
from tideline.nets import of_features, played, settled
from tideline.nets.fingerprint import print_of


@contextmanager
def of_a_part(whole: World, seen: World) -> Iterator[None]:
    """What a method refuses of a network of which a part is frozen says so."""
    try:
        yield
    except Refused as error:
        rest = "sees the features and the head alone" if isinstance(seen, HeadWorld) else "sees the tensors that train alone"
        what = f"With world.trains {' '.join(whole.trains)} a method {rest}: {error.what}"
        raise type(error)(what, f"{error.todo}; or write trains: all", **error.context) from None


class Drafts:
    """The methods of a coordinator, and what experiments with them would be. parts: where initial weights lie."""

    def __init__(self, parts: Parts, methods: Methods) -> None:
        self.parts, self._methods = parts, methods

    def methods(self) -> tuple[compute.MethodSummary, ...]:
        found = [resolve(self._methods, name) for name, _ in self._methods]
        return tuple(compute.MethodSummary(a.name, a.summary, a.paper) for a in found)

    def describe(self, method: str, preset: str | None = None, secure_sums: bool = False) -> compute.MethodFacts:
        """One method's settings with their bounds, its presets, and the contract of its defaults or a preset.

        secure_sums: of runs with secure sums, by their defaults; what is still seen of single sites is among its claims then.
        Raises ConfigRefused for a method that has none.
        """
        algorithm = self.played(method, secure_sums)
        config = algorithm.configure({}, preset)
        played, seen_still = self.in_sums(algorithm, config) if secure_sums else (algorithm, ())
        clauses = contract(played, config, Scoring())
        return compute.MethodFacts(
            name=algorithm.name,
            summary=algorithm.summary,
            paper=algorithm.paper,
            settings=settings_of(algorithm.config),
            presets=algorithm.presets,
            cast=algorithm.cast,
            unlike=algorithm.unlike,
            extra_rounds=algorithm.extra_rounds,
            network=algorithm.network,
            contract=clauses,
            sentences=tuple(c.sentence() for c in clauses),
            claims=(*algorithm.claims, *seen_still),
            weights=algorithm.initial_weights is not None,
            sample=Configured(algorithm, algorithm.configure({}, preset)).sampled,
            augments=algorithm.augments,
            digest=contract_digest(clauses),
        )

    def draft(self, asked: compute.DraftRequest) -> compute.Draft:
        """Check an experiment before anybody is asked. Raises Refused errors with `context["path"]`."""
        algorithm, whole = self.played(asked.method, asked.secure_sums), settled(checked_world(asked.world))
        settings = algorithm.configure(asked.config, asked.preset)
        if asked.privacy:
            whole = private_world(whole)
        whole = normalised_world(algorithm, settings, whole, asked.roster, bool(asked.initial_weights))
        check_prior(asked.scoring, asked.roster)
        check_augment(asked.augment, whole, of_features(played(whole)), algorithm)
        check_computing(asked.computing, algorithm)
        own = algorithm.plan(settings)
        selects = asked.scoring.selection is not Selection.NONE
        algorithm = summed_in(algorithm, asked.secure_sums, asked.privacy is not None, selects)
        algorithm = in_world(algorithm, whole.scaling, asked.scoring.prior, whole.fills)
        algorithm = adapting(algorithm, asked.privacy is not None and asked.privacy.follows)
        roster, takes, world = asked.roster, algorithm.initial_weights is not None, seen(self.parts, whole, asked.initial_weights)
        if not whole.frozen:
            self.fits(algorithm, bool(asked.initial_weights))(settings, world, roster)
        start = check_start(self.parts, whole, asked.initial_weights, takes)
        if whole.frozen:
            with of_a_part(whole, world):
                self.fits(algorithm, start.begins)(settings, world, roster)
        notes = (*algorithm.notes(settings, world), *start.notes)
        if start.begins and algorithm.initial_weights:
            notes = (*notes, *algorithm.initial_weights.notes(settings, world, roster))
        check_selection(method := Configured(algorithm, settings, asked.scoring, asked.wire, sums=asked.secure_sums))
        check_sums(algorithm, method.plan, asked.secure_sums, self.summed_methods)
        at_first = Turn(config=settings, world=world, roster=roster, round=1, rng=Generator(), run=RunId(""))
        check_sites(own, asked.secure_sums, selects, at_first)
        noised = check_noise(own, asked.secure_sums, self.noised_methods)
        notes = (*notes, *unsummed(method.plan, own, asked.secure_sums), *noised)
        privacy, epsilon = None, None
        if asked.privacy:
            check_asked(whole, asked.scoring, asked.augment)
            privacy, epsilon = settled_privacy(asked.privacy, method, world, self.private_methods)
            method = dataclasses.replace(method, privacy=privacy)
            notes = (*notes, promised(privacy, epsilon), *algorithm.privately)
        if asked.sampling:
            check_sampling(asked.sampling, method, roster, self.sampled_methods)
            notes = (*notes, *notes_of(asked.sampling, method.plan))
        clauses = method.contract
        return compute.Draft(
            config=plain(settings),
            world=whole,
            plan=facts_of(method),
            contract=clauses,
            digest=contract_digest(clauses),
            keeps=algorithm.memory is not Nothing,
            notes=(*notes, *method.wire_notes),
            kept=unsaid(settings),
            admins=algorithm.admins,
            initial_weights=Digest(asked.initial_weights) if asked.initial_weights else None,
            initial_weights_bytes=start.size,
            network=print_of(whole),
            privacy=privacy,
            epsilon=epsilon,
            charges=charges_of(method) if privacy else None,
        )

    def played(self, method: str, sums: object) -> AnyAlgorithm:
        """The method of a name as a run plays it. sums: what the run says of secure ones. Raises NotFound, ConfigRefused."""
        return where_summed(resolve(self._methods, method), sums)

    def in_sums(self, algorithm: AnyAlgorithm, config: Settings, private: bool = False) -> tuple[AnyAlgorithm, tuple[str, ...]]:
        """The method as it is played with secure sums by their defaults, and what is still seen of single sites. Raises
        ConfigRefused for one that has none.
        """
        asked = SecureSums()
        made = summed_in(algorithm, asked, private)
        check_sums(algorithm, made.plan(config), asked, self.summed_methods)
        return made, unsummed(made.plan(config), algorithm.plan(config), asked)

    def sampled_methods(self) -> list[str]:
        """The names of the methods whose rounds may ask a part of the sites."""
        found = [resolve(self._methods, name) for name, _ in self._methods]
        return [each.name for each in found if Configured(each, each.configure({})).sampled]

    def summed_methods(self) -> list[str]:
        """The names of the methods of which, by their defaults, some exchange needs sums alone."""
        found = [self.played(name, True) for name, _ in self._methods]
        return [each.name for each in found if any(phase.sums for phase in each.plan(each.configure({})))]

    def noised_methods(self) -> list[str]:
        """The names of the methods of which, by their defaults, all sums can have noise."""
        found = [self.played(name, True) for name, _ in self._methods]
        sums = {each.name: [phase.sums for phase in each.plan(each.configure({})) if phase.sums] for each in found}
        return [name for name, own in sums.items() if own and all(each.alike is not None for each in own)]

    def private_methods(self) -> list[str]:
        """The names of the methods that can protect rows."""
        return able(self._methods)

    def fits(self, algorithm: AnyAlgorithm, weights: bool) -> Callable[[Settings, World, Roster], None]:
        """What holds world and roster to the method, with weights or without. Raises ConfigRefused where it takes none."""
        if not weights:
            return taking(algorithm, algorithm.fits, self._methods)
        if algorithm.initial_weights is None:
            takers = [name for name, _ in self._methods if resolve(self._methods, name).initial_weights is not None]
            instead = f", or use one of: {', '.join(takers)}" if takers else ""
            what = f"{algorithm.name} takes no initial weights"
            raise ConfigRefused(what, f"Leave weights out{instead}", path="weights")
        return taking(algorithm, algorithm.initial_weights.fits, self._methods)
