"""The demonstration of the compose federation: the one of `tideline demo`, whose sites are containers.

Three labelled sites rehearse adaptations, one is chosen for the fourth, whose labels serve only to score it, and what was found
there is shown beside models that were not adapted. A demonstration that is under way, or complete, is shown and not repeated.
Exit codes are those of `tideline run watch`: 0 only if it completed.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

from tideline.cli.coordinator.runs import show_result
from tideline.cli.guard import INTERRUPTED, REFUSED, code_of_run, report
from tideline.cli.local import demo_rehearsed as rehearsed
from tideline.cli.tables import show
from tideline.cli.verdicts import verdict_table
from tideline.client.answers import RunLine, RunResult
from tideline.client.http import Client, Endpoint
from tideline.client.output import clean
from tideline.client.watching import Watcher, follow
from tideline.core.errors import FederationError
from tideline.core.settings import Plain

KEY = Path("/secrets/key")
HOME = "/var/lib/tideline/agent"
NAME = "demo: which adaptation, and what to expect of it"
ROSTER = {"site-1": "source", "site-2": "source", "site-3": "source", "site-4": "target"}
GOES_ON = ("waiting", "running", "completed")
WIDTH = 100


def main() -> int:
    """Show the demonstration; the exit code."""
    with Client.of(called()) as client:
        posted = experiment()
        run, repeated = found_or_started(client, posted)
        plain, _ = found_or_started(client, rehearsed.beside(posted, None))
        say(f"Run {run}" + (", of an earlier start. For another: `tideline run start`" if repeated else ""))
        with Watcher() as watcher:
            result = follow(client, run, watcher)
        with Watcher(quiet=True) as quiet:
            follow(client, plain, quiet)
        found = rehearsed.found_in(client, result, plain)
    if found is None:
        show_result(result, as_json=False)
    else:
        show_found(result, found)
    sys.stdout.write("\nThe federation stays up. Its runs: docker compose exec coordinator tideline run list\n")
    return code_of_run(result)


def called() -> Endpoint:
    """The coordinator that the environment names, with the demonstration's own key. Raises OSError."""
    ca = os.environ.get("TIDELINE_CA")
    key = KEY.read_text(encoding="utf-8").strip()
    return Endpoint(url=os.environ["TIDELINE_URL"], api_key=key, ca=Path(ca) if ca else None)


def experiment() -> dict[str, Plain]:
    """What is asked of the coordinator, in the form of an experiment file."""
    return {
        "name": NAME,
        **rehearsed.rehearsing(None),
        "world": {"model": rehearsed.NETWORK, "inputs": list(rehearsed.SHAPE), "classes": 10},
        "roster": ROSTER,
        "seed": 0,
        "waiting": {"deadline": 900},
    }


def found_or_started(client: Client, posted: dict[str, Plain]) -> tuple[str, bool]:
    """A run of this name that goes on or is complete, the newest; otherwise a new one. And whether it was there."""
    known: list[RunLine] = client.get("/runs")
    there = [each for each in known if each["name"] == posted["name"] and each["status"] in GOES_ON]
    if there:
        return max(there, key=lambda each: each["created"])["id"], True
    return str(client.post("/runs", posted)["run"]), False


def show_found(result: RunResult, found: rehearsed.Found) -> None:
    """What each candidate gained where it was rehearsed, all models at the site without labels, and what it bought."""
    for each in filter(None, (verdict_table(result), *rehearsed.tables_of(found))):
        show(each)
        sys.stdout.write("\n")
    for line in rehearsed.lines_of(found):
        sys.stdout.write(f"{textwrap.fill(clean(line), WIDTH)}\n\n")
    if found.chosen is not None:
        site, words = found.at["name"], f"--run {found.chosen.run['run']} model --out /tmp/model.safetensors"
        sys.stdout.write(f"The adapted model is {site}'s own. To write it there, and to predict with it:\n")
        sys.stdout.write(f"  docker compose exec {site} tideline site export --home {HOME} {words}\n")
        words = "--model /tmp/model.safetensors --data /data --held-out --out /tmp/predictions.csv"
        sys.stdout.write(f"  docker compose exec {site} tideline predict {words}\n")


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FederationError as error:
        sys.exit(report(error, as_json=False))
    except OSError as error:
        say(f"Error: the demonstration's key cannot be read: {error}")
        say("What to do: docker compose up, which makes it")
        sys.exit(REFUSED)
    except KeyboardInterrupt:
        say("Interrupted. The run goes on; docker compose run --rm demo shows it")
        sys.exit(INTERRUPTED)
