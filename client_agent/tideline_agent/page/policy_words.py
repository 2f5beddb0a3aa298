"""A site's policy in words, for its owner."""

from __future__ import annotations

from collections.abc import Iterable

from tideline.core.asked.private import ROW
from tideline.core.privacy import Audience, Exposure
from tideline.engine.site.rules import EVERY, PrivacyRules
from tideline_agent.policy_file import SitePolicy


def counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def policy_in_words(found: SitePolicy) -> Iterable[str]:
    """What a policy lets happen, a line each."""
    for exposure in Exposure:
        to = [audience.value for audience in Audience if (exposure, audience) in found.allowed]
        yield f"{exposure.value}: {'to ' + ' and '.join(to) if to else 'never leaves'}"
    rules, runs = found.rules, found.rules.runs
    yield f"methods: {', '.join(runs.methods) or 'all'}; users: {', '.join(runs.users) or 'all'}; hours: {runs.hours or 'all'}"
    yield f"approval: {runs.approve.value}; rehearsals: {'yes' if runs.rehearse else 'no'}"
    yield f"weights to begin from: {runs.weights.value}{''.join(f', {each}' for each in runs.digests)}"
    yield f"settings at most: {', '.join(f'{name} {most:g}' for name, most in sorted(rules.bounds.items())) or 'as they are'}"
    least, quotas = rules.least, rules.quotas
    yield f"at least: {counted(least.rows, 'row')}, {counted(least.sites, 'site')}, {least.rows_per_class} of each class"
    if least.trusted:
        yield f"secure sums: with {counted(least.trusted, 'other site')} at least whose fingerprints you have confirmed"
    limits = {"runs": quotas.runs, "replies": quotas.replies, "bytes out": quotas.bytes}
    yield f"a day at most: {', '.join(f'{most} {name}' for name, most in limits.items() if most) or 'as many as there are'}"
    kept, model = (f"after {counted(days, 'day')}" if days else "never, by themselves" for days in map(rules.days, (False, True)))
    yield f"runs are forgotten: {kept}{'' if model == kept else f'; with a model of the site: {model}'}"
    yield f"runs that were deleted at the coordinator: {rules.retention.on_delete.value}"
    yield from privacy_in_words(rules.privacy)
    disclosed = [name for name, on in vars(rules.disclose).items() if on]
    yield f"told when a run begins: {' and '.join(f'the {each}' for each in disclosed) or 'neither policy nor data'}"
    yield f"notes of the work: {'yes' if found.notes else 'no'}"


def privacy_in_words(rules: PrivacyRules) -> Iterable[str]:
    """What private runs may cost the rows, and which runs must be private; nothing where the policy says nothing of it."""
    if rules.epsilon is not None:
        most = f"epsilon {rules.epsilon:g} at delta {rules.delta:g}"
        yield f"private runs together cost each {rules.unit} of {rules.population} at most: {most}"
    elif rules.unit != ROW:
        yield f"private runs protect each {rules.unit}"
    if rules.require:
        yield f"only with a section privacy: {'all runs' if EVERY in rules.require else 'runs of ' + ', '.join(rules.require)}"
