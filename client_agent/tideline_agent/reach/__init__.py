"""What changes of an agent's way to its coordinators while it runs: addresses, authorities, its own certificate."""

from tideline_agent.reach.own_files import OwnFiles
from tideline_agent.reach.reaching import Reach, Taken

__all__ = ["OwnFiles", "Reach", "Taken"]
