"""Where the coordinator's parts lie: in a directory, which several coordinators may share, or in a bucket of S3.

Nothing outside this package knows which, nor the library that speaks S3.
"""

from tideline_server.parts.opening import Opened, open_parts

__all__ = ["Opened", "open_parts"]
