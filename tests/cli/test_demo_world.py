"""The shape of the demo's images: the first of some that the named network takes."""

from __future__ import annotations

import logging

import pytest

from tideline.cli.local.demo_world import shape_for

OWN = "tests.nets.foreign"


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        ("lenet", (3, 28, 28)),
        ("resnet18", (3, 32, 32)),
        ("torchvision/mobilenet_v3_small", (3, 32, 32)),
        ("convolutions", (3, 28, 28)),
        ("grey", (1, 32, 32)),
    ],
)
def test_the_first_shape_that_a_network_takes(network: str, shape: tuple[int, ...]) -> None:
    assert shape_for(network, [f"{OWN}:convolutions", f"{OWN}:grey"]) == shape


def test_shapes_that_do_not_fit_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    shape_for("grey", [f"{OWN}:grey"])
    assert not caplog.records and logging.root.manager.disable == logging.NOTSET
