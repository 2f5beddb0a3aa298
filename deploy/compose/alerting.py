"""Prints Alertmanager's configuration: the file that is named, with the address of ALERT_WEBHOOK, or without a receiver."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml


def main() -> None:
    """An address that is none is refused by Alertmanager, in its log."""
    told = yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8"))
    url = os.environ.get("ALERT_WEBHOOK", "")
    for receiver in told["receivers"]:
        hooks = receiver.pop("webhook_configs")
        if url:
            receiver["webhook_configs"] = [{**hook, "url": url} for hook in hooks]
    sys.stdout.write(yaml.safe_dump(told))


if __name__ == "__main__":
    main()
