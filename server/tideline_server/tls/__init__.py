"""The coordinator's certificate: its files, what is checked of them, and how all ports take up new ones while they serve."""

from tideline_server.tls.contexts import context_of
from tideline_server.tls.files import Tls, TlsFiles, authority_of, fingerprint_of, not_after, read_tls
from tideline_server.tls.renewing import Certificate

__all__ = ["Certificate", "Tls", "TlsFiles", "authority_of", "context_of", "fingerprint_of", "not_after", "read_tls"]
