"""A network of one's own over real agents; and what a process says that lacks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.harness import net
from tests.acceptance.test_data_kinds import IMAGES, image_site
from tests.cli.world import tide_process

pytestmark = pytest.mark.processes
OWN = ("--networks", "tests.nets.foreign:convolutions")
WORLD = {**IMAGES, "class_names": list(IMAGES["class_names"])}  # type: ignore[call-overload]


def test_agents_train_it_and_one_without_it_is_told_how(tmp_path: Path) -> None:
    with net(tmp_path) as made:
        made.coordinator(*OWN)
        for i, name in enumerate(("anna", "bert", "carl")):
            made.agent(name, image_site(tmp_path / name, i), "source", *OWN)
        made.agent("dora", image_site(tmp_path / "dora", 9), "source")
        model = {"name": "convolutions", "options": {"width": 6}}
        given = {"method": "fedavg", "preset": "tiny", "world": {**WORLD, "model": model}, "seed": 3}
        run = made.run({**given, "roster": dict.fromkeys(("anna", "bert", "carl"), "source")})
        result = made.completed(run)
        assert result["world"]["model"] == model
        lacking = made.run({**given, "roster": {"dora": "source"}, "waiting": {"deadline": 60}})
        made.until(lambda: "--networks MODULE:NAME" in str(made.result(lacking)), "the site without it to say so")


@pytest.mark.parametrize("command", [("coordinator", "--grpc-port", "0", "--http-port", "0"), ("doctor", "--role", "source")])
def test_a_place_without_a_network_is_said_at_the_start(tmp_path: Path, command: tuple[str, ...]) -> None:
    data = ("--data", image_site(tmp_path / "data", 1), "--coordinator", "127.0.0.1:1") if command[0] == "doctor" else ()
    ended = tide_process(*command, "--home", tmp_path / "home", *data, "--networks", "no.such:thing", limit=120)
    assert ended.returncode != 0
    assert "--networks: no.such:thing: No module named 'no'" in ended.stdout + ended.stderr
