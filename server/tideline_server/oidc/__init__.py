"""Sign-in by OpenID Connect: tokens of a provider, and sessions of browsers."""
