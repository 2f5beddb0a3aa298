"""An agent that gives its signs of life more often, so that what it is told with them reaches it soon.

python -m tests.acceptance.brisk agent ...
"""

from __future__ import annotations

from tideline.__main__ import main
from tideline_agent import main as agent

if __name__ == "__main__":
    agent.BEAT_SECONDS = 0.5
    main()
