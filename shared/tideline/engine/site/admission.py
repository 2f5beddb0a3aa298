"""Whether a site's owner lets a run run there, and what a run is to its owner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tideline.core.asked.normalise import Scaling
from tideline.core.asked.private import ROW
from tideline.core.asked.world import plain_world
from tideline.core.errors import PolicyRefused
from tideline.core.privacy import contract_digest
from tideline.core.rows import Augment, Flip
from tideline.core.run import Digest
from tideline.core.settings import Plain, nearest, plain
from tideline.engine.model.access.projects import DEFAULT
from tideline.engine.model.brief import Brief
from tideline.engine.model.orders import hashed
from tideline.engine.site.rules import InitialWeights, SiteRules, bound_of

LONGEST = 60  # characters of a setting that are shown
ASK = "Ask the site's owner, who can allow it in the site's policy file: {rules}"


def check_run(rules: SiteRules, brief: Brief) -> None:
    """Raises PolicyRefused with all that the owner does not allow, and the lines of the policy that would."""
    found = list(objections(rules, brief))
    if found:
        lines = list(dict.fromkeys(line for _, line in found))
        what = "The owner of this site does not allow it: " + "; ".join(dict.fromkeys(words for words, _ in found))
        raise PolicyRefused(what, ASK.format(rules=", ".join(lines)), rules=lines)


def objections(rules: SiteRules, brief: Brief) -> Iterator[tuple[str, str]]:
    """What the owner has against a run, in words, each with the line of the policy that says so."""
    runs = rules.runs
    if runs.methods and brief.method not in runs.methods:
        yield f"the method {brief.method}{nearest(brief.method, runs.methods)}", "[runs] methods"
    if runs.users and brief.intent.by not in runs.users:
        yield f"runs of {brief.intent.by or 'a user without a name'}", "[runs] users"
    if runs.projects and brief.intent.project not in runs.projects:
        yield f"runs of the project {brief.intent.project}", "[runs] projects"
    yield from protection_refused(rules, brief)
    yield from weights_refused(rules, brief)
    if brief.world.scaling.kind is Scaling.GIVEN and not runs.constants:
        yield "rows that are normalised by numbers of the run's user", "[runs] constants"
    if 0 < brief.intent.sites < rules.least.sites:
        yield f"{brief.intent.sites} sites, where {rules.least.sites} are wanted at least", "[least] sites"
    for path, value in numbers_in(brief.config):
        most = bound_of(rules.bounds, path.rsplit(".", 1)[-1])
        if most is not None and value > most:
            yield f"config.{path} of {value:g}, which is bound to {most:g}", f"[bounds] {path.rsplit('.', 1)[-1]}"


def protection_refused(rules: SiteRules, brief: Brief) -> Iterator[tuple[str, str]]:
    """A run that protects no rows where the owner requires it, and a budget whose delta is too large for the run's rows."""
    if unprotected(rules, brief):
        yield f"a run of {brief.method} without a section privacy", "[privacy] require"
    limit, unit = rules.privacy.limit, rules.privacy.unit
    if brief.privacy is not None and brief.privacy.whose != unit and (limit is not None or unit != ROW):
        yield f"a run that protects each {brief.privacy.whose}, where each {unit} is to be protected", "[privacy] unit"
    if brief.privacy is not None and limit is not None and limit.delta * brief.privacy.rows >= 1:
        words = (
            f"a budget at delta {limit.delta:g} for {brief.privacy.rows} {unit}s, as the run says, where less than one over them"
        )
        yield f"{words} protects any", "[privacy] delta"


def unprotected(rules: SiteRules, brief: Brief) -> bool:
    """Whether a run protects no rows where the owner requires it."""
    return brief.privacy is None and rules.privacy.requires(brief.method)


def weights_refused(rules: SiteRules, brief: Brief) -> Iterator[tuple[str, str]]:
    """Weights that a user brings can be made so that an update of them is made of single rows."""
    found = {each for each in (brief.intent.weights, brief.base) if each is not None}
    if rules.runs.weights is InitialWeights.ANY or brief.intent.weights in rules.runs.digests or carried(rules, brief):
        return
    for digest in sorted(found.difference(rules.runs.digests)):
        yield f"weights that a user brings ({digest})", "[runs] weights and digests"


def carried(rules: SiteRules, brief: Brief) -> bool:
    """Whether frozen weights may be those of a package that is installed here: a trainer, which can read them, sees to it."""
    built_in = rules.runs.weights is InitialWeights.BUILT_IN and brief.base is not None
    return built_in and brief.base not in rules.runs.digests and brief.intent.weights in (None, brief.base)


def numbers_in(config: Mapping[str, Plain], at: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a method's settings by their path; those of a list by the path of the list."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from numbers_in(value, f"{at}{name}.")
        elif isinstance(value, (list, tuple)):
            yield from (each for one in value for each in numbers_in({name: one}, at))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{at}{name}", float(value)


def intent_digest(brief: Brief) -> Digest:
    """The digest of what an owner approves: two runs that ask for the same, by the same user and in the same role, have one.

    Seeds, ids and places in the run do not enter.
    """
    return Digest(
        hashed(
            "intent",
            brief.intent.by,
            brief.role.value,
            brief.method,
            plain(brief.config),
            plain_world(brief.world),
            plain(brief.scoring),
            contract_digest(brief.contract),
            brief.intent.weights,
            brief.base,
            *([plain(brief.augment)] if brief.augment.on else []),
            *(() if brief.computing is None else (plain(brief.computing),)),
            *([{"wire": plain(brief.wire)}] if brief.wire.on else []),
            *([{"privacy": plain(brief.privacy)}] if brief.privacy else []),
            *([{"secure_sums": plain(brief.secure_sums)}] if brief.secure_sums else []),
            *(() if brief.intent.project == DEFAULT else (f"project {brief.intent.project}",)),
        )
    )


def facts_of(brief: Brief) -> dict[str, Plain]:
    """A run as its owner's ledger has it: who asks for what, in which role, and the digests of all that is long."""
    rehearses = {"rehearses": brief.rehearses} if brief.rehearses else {}
    augment = {"augment": plain(brief.augment)} if brief.augment.on else {}
    computing = {} if brief.computing is None else {"computing": plain(brief.computing)}
    wire = {"wire": plain(brief.wire)} if brief.wire.on else {}
    privacy = {"privacy": plain(brief.privacy)} if brief.privacy else {}
    return {
        **brief.intent.plain(),
        "intent": intent_digest(brief),
        "method": brief.method,
        "config": plain(brief.config),
        "role": brief.role.value,
        "contract": contract_digest(brief.contract),
        **rehearses,
        **augment,
        **computing,
        **wire,
        **privacy,
        **({"secure_sums": plain(brief.secure_sums)} if brief.secure_sums else {}),
    }


def in_words(augment: Augment) -> str:
    """What of the settings is on."""
    said = {name: value for name, value in plain(augment).items() if value not in (None, Flip.NONE.value)}
    return ", ".join(f"{name}: {shown(value)}" for name, value in said.items())


def shown(value: Plain) -> str:
    """A setting as far as a line has room."""
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def brief_in_words(brief: Brief) -> Sequence[str]:
    """What a run is and sends, a line each, for the owner who is asked to approve it."""
    return (*work_in_words(brief), *(clause.sentence() for clause in brief.contract))


def work_in_words(brief: Brief) -> Sequence[str]:
    """What a run is, a line each, without what it sends."""
    project = "" if brief.intent.project == DEFAULT else f" in the project {brief.intent.project}"
    who, sites = brief.intent.by or "a user without a name", brief.intent.sites or "some"
    weights = [f"begins from weights that the user brings: {brief.intent.weights}"] if brief.intent.weights else []
    settings = ", ".join(f"{name}: {shown(value)}" for name, value in brief.config.items())
    computing = ", ".join(f"{name}: {value}" for name, value in plain(brief.computing).items()) if brief.computing else ""
    wire = ", ".join(f"{name}: {value}" for name, value in plain(brief.wire).items()) if brief.wire.on else ""
    privacy = ", ".join(f"{name}: {value}" for name, value in plain(brief.privacy).items() if value) if brief.privacy else ""
    sums = ", ".join(f"{name}: {value}" for name, value in plain(brief.secure_sums).items() if value) if brief.secure_sums else ""
    return (
        f"asked for by {who}{project}; method {brief.method}; this site is a {brief.role.value}, one of {sites} sites",
        *weights,
        *([f"settings: {settings}"] if settings else []),
        *([f"images are changed at random to train on: {in_words(brief.augment)}"] if brief.augment.on else []),
        *([f"computing: {computing}"] if computing else []),
        *([f"weights travel: {wire}"] if wire else []),
        *([f"rows are protected: {privacy}"] if privacy else []),
        *([f"values are added up under masks: {sums}"] if sums else []),
    )
