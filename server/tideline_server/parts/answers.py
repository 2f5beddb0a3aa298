"""What an S3 store answers, in our words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tideline.core.errors import FederationError, StorageFull, Unreachable

KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True)
class Answer:
    """A pattern of what was said, what it means, before the place, and what to do."""

    said: str
    means: str
    todo: str
    kind: type[FederationError] = Unreachable


# The first that fits tells.
ANSWERS = (
    Answer(
        r"status code: 507|<Code>(XMinioStorageFull|QuotaExceeded)<",
        "No room for a part in",
        "Free space there, or raise its quota",
        StorageFull,
    ),
    Answer(r"<Code>NoSuchBucket<", "There is no such bucket:", "Make it, or correct --parts"),
    Answer(r"latest/api/token|[Mm]issing \w*Key", "There are no credentials for", f"Set {KEYS}"),
    Answer(r"redirect|status code: 30\d|<Code>AuthorizationHeaderMalformed<", "Another region has", "Set AWS_REGION to its own"),
    Answer(
        r"status code: 40[13]",
        "The credentials are refused for",
        f"See that {KEYS} are right, and that they may list, read, write and delete there",
    ),
    Answer(r"InvalidCertificate", "Nobody vouches for the store of", "Name the certificate of its authority in AWS_CA_BUNDLE"),
    Answer(r"status code: \d", "The store fails in what it was asked of", "Look at its own log"),
    Answer(r"", "Nobody answers for", "See that the store runs, and that AWS_ENDPOINT_URL and AWS_REGION are right"),
)


def told(said: str, place: str) -> FederationError:
    """A failure at a place. What was said may hold headers; only a status and the store's own word for it are repeated."""
    status, code = re.search(r"status code: (\d+)", said), re.search(r"<Code>(\w+)</Code>", said)
    why = " ".join(found[1] for found in (status, code) if found)
    answer = next(answer for answer in ANSWERS if re.search(answer.said, said))
    return answer.kind(f"{answer.means} {place}" + (f" ({why})" if why else ""), answer.todo)
