"""The responses of the HTTP API, with descriptions for users and for generated clients. Times are seconds since the epoch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, JsonValue, WithJsonSchema

# Plain data by name. It comes from our own records, so its values are not looked at again.
Facts = Annotated[dict[str, JsonValue], GetPydanticSchema(lambda kind, handler: handler(dict[str, object]))]


class Problem(BaseModel):
    """Why a request was not done: the one shape of every error (RFC 9457)."""

    type: str = Field(description="names the kind: urn:tideline:error:KIND", examples=["urn:tideline:error:ConfigRefused"])
    title: str = Field(description="the kind in words", examples=["Config refused"])
    status: int = Field(description="the answer's status", examples=[422])
    detail: str = Field(description="what happened, in words", examples=["config.rounds is -1; it should be at least 0"])
    instance: str | None = Field(None, description="of an unexpected failure: what the coordinator's log has it under")
    request: str | None = Field(None, description="the request's id, as in X-Request-Id and in the coordinator's log")
    kind: str = Field(description="stable name of the error, for programs", examples=["ConfigRefused"])
    todo: str = Field(description="what to do about it", examples=["Correct the value"])
    path: str | None = Field(description="dotted place in the body of what is wrong", examples=["config.rounds"])
    context: Facts = Field(description="more about it, as plain data")


class Started(BaseModel):
    """A run that was started."""

    run: str = Field(description="the run's id", examples=["5f0c1a9be2d4"])
    reference: str | None = Field(description="id of the run to compare with, if the experiment asked for one")
    notes: list[str] = Field(description="what the method will do otherwise than it was asked, such as a number that it rounds")


class CheckedRun(BaseModel):
    """What an experiment would be."""

    experiment: Facts = Field(description="as it was read")
    runs: int = Field(description="how many runs it would be: with its reference, or its rehearsals")
    exchanges: int = Field(description="between coordinator and sites, of all of them")
    sites: list[str] = Field(description="who would be asked")
    notes: list[str] = Field(description="what the method would do otherwise than asked")
    contract: list[Facts] = Field(description="everything that would leave a site, clause by clause")


class RunLine(BaseModel):
    """A run in one line."""

    id: str
    name: str = Field(description="its name in lists")
    method: str
    status: str = Field(description="waiting, running, stalled, completed, failed or cancelled")
    cause: str = Field(description="why it stalled or ended")
    cursor: int = Field(description="exchanges closed so far; -1 while the sites are gathered")
    of: int = Field(description="exchanges in the plan")
    created: float
    ended: float | None
    parent: str | None = Field(description="the run that this one belongs to: its reference, or of its rehearsal")
    project: str = Field(description="whose run it is")
    track: list[str] = Field(description="experiment trackers that are to write it down")


class DeletedRun(BaseModel):
    """What remains of a deleted run."""

    run: str = Field(description="the run's id")
    name: str
    method: str
    status: str = Field(description="how it ended: completed, failed or cancelled")
    created: float
    ended: float | None
    state_digest: str | None = Field(description="BLAKE3 of the final state's root file; null if it did not complete")
    parent: str | None = Field(description="the run that it belonged to")
    project: str = Field(description="the project that it was of")
    deleted: float = Field(description="when it was deleted")
    by: str = Field(description="the name of the key that asked; empty: a rule, or an API without keys")
    rule: str = Field(description="the rule by which it was deleted; empty: a person asked")


class DueRun(BaseModel):
    """A run that is deleted at the next look."""

    run: str = Field(description="the run's id")
    name: str
    ended: float = Field(description="when it was over")


class ProjectAges(BaseModel):
    """The rules of a project that has others than the coordinator."""

    name: str
    runs_days: float
    events_days: float


class RetentionShown(BaseModel):
    """The rules of age, and what they delete next."""

    runs_days: float = Field(description="days after its end that a run is kept; 0: for ever")
    events_days: float = Field(description="days after a run's end that its events are kept; 0: for ever")
    runs: list[DueRun] = Field(description="what goes at the next look, each with the runs that belong to it")
    events: int = Field(description="events of runs that are over and go at the next look")
    projects: list[ProjectAges] = Field(description="projects that have rules of their own")
    audit_days: float = Field(description="days after which entries of the audit log are archived; 0: never")
    audit_entries: int = Field(description="entries that go into the next file")
    audit_trouble: bool = Field(description="whether entries that are due cannot be archived; the coordinator's log says why")


class Groups(BaseModel):
    """The groups into which a method put sites."""

    last: dict[str, list[str]] = Field(
        description="a group's name -> its clients, of the newest closed round that reported groups"
    )
    adjusted_rand_index: float | None = Field(description="null: a coordinator does not know the sites' domains")


class Mean(BaseModel):
    """The mean accuracy of some sites."""

    accuracy: float = Field(description="in 0..1, on held-out rows, as it was scored last")
    sites: int = Field(description="of how many sites it is the mean")


class Generalization(BaseModel):
    """What was learnt from labelled sites, there and on targets that nothing was learnt from."""

    id: Mean = Field(description="in-distribution: on the own held-out rows of the labelled sites that taught")
    ood: Mean = Field(description="out-of-distribution: on unseen targets, which were asked for scores and for nothing else")


class RunResult(BaseModel):
    """A run's result, or as much as there is of it. The same keys as `tideline simulate --json` writes."""

    model_config = ConfigDict(extra="allow")

    run: str
    name: str
    project: str = Field("default", description="whose run it is; of a coordinator's run alone")
    method: str
    config: Facts = Field(description="the method's settings, defaults included")
    world: Facts = Field(description="what all members agree on")
    seed: int
    weights: str | None = Field(description="BLAKE3 of the file of weights that it began from; null: it had none")
    sample: Facts | None = Field(description="which part of the sites was asked each round; null: all that the method names")
    prior: str = Field(description="at which shares of the classes targets predict: source or em")
    augment: Facts | None = Field(None, description="how images were changed at random to train on; null: not at all")
    computing: Facts | None = Field(None, description="how its steps compute; null: the experiment does not say")
    secure_sums: Facts | None = Field(None, description="how values are added up that nobody sees; null: single replies are seen")
    privacy: Facts | None = Field(None, description="how it protects rows, and its epsilon for each; null: it does not")
    wire: Facts | None = Field(None, description="in which numbers its weights travel; null: all as float32")
    track: list[str] = Field(default_factory=list, description="experiment trackers that are to write it down")
    rounds: int | None
    notes: list[str] = Field(description="what it does otherwise than asked, and whom rounds closed without for want of trust")
    status: str
    cause: str
    waits_for: str = Field(description="what an open run waits for, in words")
    awaited: list[Facts] = Field(description="sites that an open run waits for: client, silent_seconds, progress")
    spent: Facts | None = Field(
        None,
        description="what its steps took, as sites report it: gpu_hours, cpu_hours, reported, unreported; null: none says so",
    )
    seconds: float | None
    state_digest: str | None = Field(description="BLAKE3 of the final state's root file; null until completed")
    fingerprint: str = Field(description="what equal bytes depend on: torch, processor, threads")
    reference: str | None
    reference_status: str | None
    clients: list[Facts] = Field(description="per site: role, samples, accuracy, source_only, bytes, failures, computing, spent")
    scores: dict[str, dict[str, dict[str, float]]] = Field(
        default_factory=dict, description="by site and score: value, low, high, rows"
    )
    recall: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="by class, over all sites: value, low, high, rows"
    )
    selection: dict[str, Any] | None = Field(None, description="the best and the last round by the score that selects")
    verdict: Facts | None = Field(None, description="what a rehearsal comes to (docs/rehearsal.md); null for other runs")
    generalization: Generalization | None = Field(
        description="null where no target is unseen, such as where targets adapt, or no labelled site was scored"
    )
    phases: list[Facts] = Field(
        description="the closed rounds: name, round, seconds, replies, clients, marks, groups, tables (those for admins only"
        " admins get), asked, bytes"
    )
    groups: Groups | None = Field(description="the sites' last grouping; null where the method reports none")
    curve: list[Facts] = Field(
        description="accuracy over the rounds, a point per site and scoring; beyond 5,000 points a mean per scoring"
    )
    history: list[Facts] | None = Field(description="every metric, an entry per reply; null unless you ask for it")
    contract: list[Facts] = Field(description="everything that leaves a site, clause by clause")
    plan_length: int
    cursor: int


# A pair, told in words that every reader of schemas knows: some read `prefixItems` as what it was called before.
PAIR = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}
Line = Annotated[tuple[str, int], WithJsonSchema(PAIR)]


class RunFiles(BaseModel):
    """The files of a completed run's final state, or of the one that its best round scored."""

    root: str = Field(
        description="BLAKE3 of the root, which names the others; of the last state equal to the result's state_digest"
    )
    files: list[Line] = Field(description="(digest, bytes), the root first; see /parts/{digest}")


class Weights(BaseModel):
    """A file of weights that is here, for runs to begin from."""

    digest: str = Field(description="BLAKE3 of its bytes, which `weights` of an experiment names")
    bytes: int = Field(description="its size")


class PlannedLink(BaseModel):
    """A source's model that goes to a target."""

    model_config = ConfigDict(populate_by_name=True)

    sender: str = Field(alias="from", description="the source")
    receiver: str = Field(alias="to", description="the target")
    weight: float = Field(description="of the source's model in the target's; those of a target sum to 1")
    joules: float = Field(description="of the transfer")


class SweptPlan(BaseModel):
    """What a plan at another phi_E costs."""

    phi_energy: float
    joules: float
    links: int
    sources: int
    status: str
    saved: int = Field(description="links that it has less than the plan at the smallest phi_E")


class LinkPlan(BaseModel):
    """A plan of links. Matrices have a row and a column per device, in the order of `devices`; null where there is no link."""

    devices: list[str]
    psi: dict[str, str] = Field(description="device -> source or target")
    alpha: list[PlannedLink] = Field(description="the links")
    objective: float = Field(description="of the problem (P), eq. 11")
    bound: float = Field(description="that no plan's objective is below")
    gap: float = Field(description="(objective - bound) / objective")
    energy: float = Field(description="joules of all links")
    normalised_energy: float = Field(description="in percent of what it takes if each source sends to each target")
    iterations: int = Field(description="of the solver sca; of exact, nodes of its search")
    objectives: list[float] = Field(description="of sca, at each iteration")
    status: str = Field(description="proven, limit (the time was up), converged, iterations (no more were allowed) or failed")
    flags: list[str] = Field(description="uneven, unswept, inaccurate, unsettled: docs/links.md says what each means")
    S: list[float] = Field(description="the bound on each device's error as a source, eq. 17")
    T: list[list[float | None]] = Field(description="the bound on each link's part of a target's error, eq. 18")
    K: list[list[float | None]] = Field(description="joules of one transfer")
    sweep: list[SweptPlan] = Field(description="at the other phi_E that were asked for, the smallest first")


class Method(BaseModel):
    """A method in one line."""

    name: str
    summary: str
    paper: str


class MethodDetail(Method):
    """A method's settings and presets."""

    weights: bool = Field(description="whether a run of it may begin from initial weights that you upload")
    sample: bool = Field(description="whether its rounds may ask a part of the sites")
    augments: bool = Field(description="whether its sites train on rows, so that images may be changed at random")
    settings: list[Facts] = Field(description="name, type, default, bounds, choices and a sentence")
    presets: dict[str, Facts] = Field(description="named settings to begin from")
    cast: list[str] = Field(
        description="roles of a demonstration: the first and the last site take theirs, those between the ones between"
    )
    unlike: str = Field(
        description="how the sites of a demonstration differ: by styles of digits, or by which way up they see them"
    )
    extra_rounds: int = Field(description="how many rounds more the averaging beside a demonstration has")
    network: str = Field(description="network of a demonstration")
    digest: str = Field(description="SHA-256 of the default contract")


class MethodContract(BaseModel):
    """What a method makes sites send, derived from the types of its replies."""

    name: str
    digest: str = Field(description="equal meaning, equal digest")
    contract: list[Facts] = Field(description="clauses: phase, step, field, dims, exposure, audience")
    sentences: list[str] = Field(description="the clauses in words, for owners of data")
    claims: list[str] = Field(description="what is and is not claimed of them, in sentences")


class ClientLine(BaseModel):
    """An enrolled agent."""

    name: str
    roles: list[str] = Field(description="the roles that its owner allows")
    labels: dict[str, str] = Field(description="what it was invited with; experiments select by them")
    version: str
    enrolled: float
    seen: float = Field(description="when it was last heard")
    standing: str = Field(description="pending, approved, revoked or doubled")
    doubles: list[str] = Field(default=[], description="of a doubled one: the sessions that showed up, of which one may go on")
    ledger_entries: int | None = Field(default=None, description="how many entries its ledger had when it reported it last")
    ledger_hash: str | None = Field(default=None, description="the hash of the last of them")
    ledger_now: int | None = Field(
        default=None, description="if that entry is not in the ledger any more: how many entries the ledger has"
    )
    revoked: float | None = Field(description="when it was revoked")
    reason: str = Field(description="why it was revoked")
    fingerprint: str = Field(description="of its public keys, for you to compare")
    rotate: bool = Field(description="whether it is asked for new keys")
    projects: list[str] = Field(description="which it serves, of those that you see")
    device: str | None = Field(
        default=None, description="the name of what it computes on, as its agent told when it started; null: it has not told"
    )
    follows: bool | None = Field(
        default=None,
        description="whether it has told this coordinator lately that it has taken up the addresses and authorities that are "
        "announced; null: nothing is announced",
    )


class Invited(BaseModel):
    """A one-use token. It is shown here and never again."""

    token: str
    name: str = Field(description="the only name it admits; empty: the agent chooses")
    labels: dict[str, str]
    expires: float
    hold: bool = Field(description="whether the agent that it admits waits for approval")
    addresses: list[str] = Field(description="the coordinators' addresses in the token")


class AuditEntry(BaseModel):
    """Something that was done, in its place."""

    seq: int = Field(description="its number, from 1 on")
    kind: str = Field(examples=["reply_accepted"])
    at: float
    by: str = Field(description="the name of the key that asked for it, or empty")
    client: str = Field(description="the agent that it is about, or empty")
    run: str = Field(description="the run that it is about, or empty")
    details: Facts = Field(description="more about it, by kind; `unreadable`: columns of an entry that was changed")
    hash: str = Field(description="SHA-256 of the hash before, as bytes, and of this entry without its hash as canonical JSON")


class AuditTip(BaseModel):
    """The last entry of the audit log, and the last one that went into the archive."""

    seq: int
    hash: str
    archived: int = Field(description="the number of the last entry that is in the archive alone; 0: none is")
    archived_hash: str = Field(description="its hash, to which the first entry of the list is chained")


class Health(BaseModel):
    """The coordinator answers. Other keys are facts about it."""

    model_config = ConfigDict(extra="allow")

    status: str = Field(examples=["ok"])
    version: str


class Restored(BaseModel):
    """A database that was found older than its witness, or than what agents remember of it."""

    waiting: bool = Field(description="whether it waits to be confirmed; if not, the rest is empty")
    lost: bool = Field(default=False, description="whether nobody knows any more who was revoked since the backup")
    at: float | None = Field(default=None, description="when it was found")
    warning: str = Field(default="", description="the same in words")
    clients: list[str] = Field(default=[], description="agents that were revoked since the backup, and are revoked again")
    rotated: list[str] = Field(default=[], description="agents that had made new keys since; they have them again")
    keys: list[str] = Field(default=[], description="API keys that were revoked since, and are revoked again")
    invites: int = Field(default=0, description="tokens that were used since, and are used up again")


class Ready(BaseModel):
    """The coordinator can take work."""

    status: str = Field(examples=["ready"])
    warnings: list[str] = Field(
        default=[], description="what does not keep it from work yet", examples=[["the coordinator's certificate ends in 3 days"]]
    )


class PartsSwept(BaseModel):
    """What lies in the store of parts after a sweep, and what the sweep found."""

    kept: int = Field(description="parts that are kept")
    bytes: int = Field(description="their bytes")
    found: int = Field(description="parts that no record knew of; they stay for an hour after they were written")
    dropped: int = Field(description="parts that were dropped")
    freed: int = Field(description="their bytes")


class PartsVerified(BaseModel):
    """What a look at some of the parts found."""

    checked: int = Field(description="parts that were read")
    bytes: int = Field(description="their bytes")
    damaged: list[str] = Field(description="parts that this look found to be damaged; they were put aside")
    aside: list[str] = Field(description="damaged parts that are not here again, of this look and of earlier ones")
    mended: list[str] = Field(description="parts that were made again, with `repair`")
    cleared: list[str] = Field(description="damaged parts that no run needs, and whose files were deleted, with `repair`")
    lost: list[str] = Field(description="of parts that are not here again: what each is to which run, and what to do")
    after: str = Field(description="where the next look goes on; empty: all parts were read")


class GrantLine(BaseModel):
    """A role in a project."""

    role: str = Field(description="viewer, operator or admin")
    project: str = Field(description="the project; all: every one")


class Whoami(BaseModel):
    """Whose key a call was made with."""

    name: str = Field(description="the key's name; `admin` for a coordinator's own key; empty where no key is asked for")
    role: str = Field(description="viewer, operator or admin; of a user of several projects, the highest")
    project: str = Field(description="the project that it sees; empty: all; `*`: several, and the call names none of them")
    grants: list[GrantLine] = Field(default=[], description="of a user who signed in: the roles in projects; of a key nothing")


class Provider(BaseModel):
    """With whom users sign in, and what a command line needs for that."""

    issuer: str
    client: str = Field(description="the public client of command lines; empty: there is none")
    audience: str = Field(description="which tokens have to name")
    scopes: str
    token: str = Field(description="which token is sent here: id_token or access_token")


class SignInShown(BaseModel):
    """How users sign in, beside keys."""

    provider: Provider | None = Field(description="null: with keys alone")


class KeyLine(BaseModel):
    """A key in one line, without the key."""

    id: str
    name: str
    role: str = Field(description="viewer, operator or admin")
    created: float
    created_by: str = Field(description="the name of the key that made it")
    last_used: float | None = Field(description="to the minute; null: never")
    expires: float | None = Field(description="null: never")
    revoked: float | None = Field(description="null: it is good, unless it has expired")
    project: str = Field(description="the project that it opens; empty: all")


class KeyMade(BaseModel):
    """A new key. It is shown here and never again."""

    key: str
    id: str
    name: str
    role: str
    expires: float | None
    project: str = Field(description="the project that it opens; empty: all")
