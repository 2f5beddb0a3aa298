"""A provider's public keys: read when they are needed, again when one is unknown, and never more often than bounds allow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, Key, RSAKey

from tideline.core.errors import Unreachable
from tideline.engine.ports.clock import Clock
from tideline.oidc.fetching import Fetcher, strange
from tideline.oidc.provider import Metadata, discover

log = structlog.get_logger()
# Signatures that only the provider can make. Of those with a shared secret, none: the public key is no secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
KINDS: Mapping[str, type[RSAKey] | type[ECKey]] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey}
MOST_KEYS = 32
LEAST_BITS = 2048  # of an RSA key
AGAIN_SECONDS = 10.0  # between two readings, whoever asks for them: strangers can name keys that are not there
FRESH_SECONDS = 300.0  # for so long keys are as the provider shows them; then they are read again, beside the calls
LASTING_SECONDS = 86400.0  # for so long known keys are good while the provider is away


@dataclass(frozen=True)
class Known:
    """What was read of a provider, and when."""

    metadata: Metadata
    keys: tuple[Key, ...]
    at: float


class ProviderKeys:
    """The keys of one provider. Any number of threads. later: does work beside the calls, at some time."""

    def __init__(self, fetcher: Fetcher, issuer: str, clock: Clock, later: Callable[[Callable[[], object]], object]) -> None:
        self.issuer = issuer
        self._fetcher, self._clock, self._later = fetcher, clock, later
        self._lock = threading.RLock()
        self._known: Known | None = None
        self._tried_at: float | None = None
        self._failure = ""
        self._reading = False

    def at_once(self, kid: str | None, algorithm: str) -> tuple[Key, ...]:
        """The known keys that may have made a signature. Never blocks. Old ones have the keys read again, beside the call."""
        known, now = self._known, self._clock.now()
        if known is None or not 0.0 <= now - known.at < LASTING_SECONDS:
            return ()
        if now - known.at >= FRESH_SECONDS and self._due(now) and not self._reading:
            self._reading = True
            self._later(self._read_beside)
        return fitting(known.keys, kid, algorithm)

    def find(self, kid: str | None, algorithm: str) -> tuple[Key, ...]:
        """The keys that may have made a signature, read if none is known. Raises Unreachable where they cannot be read."""
        with self._lock:
            found = self.at_once(kid, algorithm)
            if not found and self._due(self._clock.now()):
                self._read()
                found = self.at_once(kid, algorithm)
            if not found and self._failure:
                raise self._away()
            return found

    def metadata(self) -> Metadata:
        """The provider's addresses. Raises Unreachable."""
        with self._lock:
            now = self._clock.now()
            fresh = self._known is not None and 0.0 <= now - self._known.at < FRESH_SECONDS
            if not fresh and self._due(now):
                self._read()
            if self._known is None:
                raise self._away()
            return self._known.metadata

    def _due(self, now: float) -> bool:
        """Whether the provider may be asked again."""
        return self._tried_at is None or not 0.0 <= now - self._tried_at < AGAIN_SECONDS

    def _read_beside(self) -> None:
        try:
            with self._lock:
                self._read()
        finally:
            self._reading = False

    def _read(self) -> None:
        """With the lock held: read what the provider shows. What is known stays where that fails."""
        now = self._tried_at = self._clock.now()
        try:
            metadata = discover(self._fetcher, self.issuer)
            keys = keys_in(self._fetcher.get(metadata.jwks_uri), metadata.jwks_uri)
        except Unreachable as error:
            self._failure = error.what
            log.warning("sign_in_provider_away", reason=error.what)
            return
        if self._known is None or {each.kid for each in keys} != {each.kid for each in self._known.keys}:
            log.info("sign_in_keys_read", issuer=self.issuer, keys=len(keys))
        self._known, self._failure = Known(metadata, keys, now), ""

    def _away(self) -> Unreachable:
        what = self._failure or f"The provider of identities {self.issuer} was not reached yet"
        todo = f"Try again in {AGAIN_SECONDS:.0f} s; if it stays so, an admin checks the provider. API keys work without it"
        return Unreachable(what, todo, retry_after=int(AGAIN_SECONDS))


def keys_in(found: Mapping[str, Any], url: str) -> tuple[Key, ...]:
    """The keys of a set by which signatures can be checked; others are left out. Raises Unreachable where there is none."""
    listed = found.get("keys")
    keys = [usable(each) for each in listed[:MOST_KEYS]] if isinstance(listed, list) else []
    good = tuple(key for key in keys if key is not None)
    if not good:
        raise strange(url, "it shows no key by which a signature can be checked")
    return good


def usable(given: Any) -> Key | None:
    """A public key that signs, strong enough; None for any other."""
    if not isinstance(given, dict) or given.get("kty") not in ("RSA", "EC") or given.get("use", "sig") != "sig":
        return None
    if given["kty"] == "RSA" and len(str(given.get("n", ""))) * 6 < LEAST_BITS:  # as base64: the library would warn of each
        return None
    try:
        key = JWKRegistry.import_key({name: value for name, value in given.items() if name != "d"})
        weak = isinstance(key, RSAKey) and key.public_key.key_size < LEAST_BITS
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return None if weak else key


def fitting(keys: tuple[Key, ...], kid: str | None, algorithm: str) -> tuple[Key, ...]:
    """Those of this name, if one is named, that can make such a signature. A name is compared, and nothing else."""
    kind = KINDS[algorithm[:2]]
    named = (key for key in keys if isinstance(key, kind) and (kid is None or key.kid == kid))
    return tuple(key for key in named if key.get("alg", algorithm) == algorithm)
