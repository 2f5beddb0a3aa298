"""What mixing costs a site of FedWCA in memory: models at once, and the density of many rows.

    python benchmarks/mixing.py [--clusters 2,5,10] [--rows 2000,20000,100000] [--model resnet18] [--json]

For each number of clusters a full round's mixing, without the training after it, on files that are mapped: the growth of
anonymous memory over what the process held before, in units of one model; it should be one network and a little, whatever the
number. For each number of rows soft neighbourhood density of ten classes: the growth of anonymous memory in MB beside the
outputs, and seconds on one thread, which go with the square. Each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from safetensors.torch import load_file, save_file

from benchmarks.measure import grown
from tideline import nets
from tideline.algorithms.fedwca import Config, client
from tideline.algorithms.fedwca.client import Mix
from tideline.algorithms.source_free.adapting import seen
from tideline.algorithms.source_free.source import network
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site
from tideline.nets import layers
from tideline.numerics.labels.confidence import soft_density

ROWS = 64  # of a site that mixes
MB = 1e6


def main() -> int:
    """A line a size."""
    args = arguments()
    if args.one:
        kind, _, size = args.one.partition("=")
        sys.stdout.write(json.dumps(mixed(int(size), args.model) if kind == "clusters" else dense(int(size))))
        return 0
    for kind, sizes in (("clusters", args.clusters), ("rows", args.rows)):
        for size in map(int, sizes.split(",")):
            row = apart(kind, size, args.model)
            sys.stdout.write((json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items())) + "\n")
            sys.stdout.flush()
    return 0


def apart(kind: str, size: int, model: str) -> Any:
    """One row, measured in a process of its own."""
    command = [sys.executable, __file__, "--one", f"{kind}={size}", "--model", model]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", default="2,5,10", help="numbers of clusters, by commas")
    parser.add_argument("--rows", default="2000,20000,100000", help="numbers of rows, by commas")
    parser.add_argument("--model", default="resnet18", help="network")
    parser.add_argument("--one", default="", help="one row in this process, such as clusters=5")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    return parser.parse_args()


def mixed(clusters: int, model: str) -> dict[str, Any]:
    """A full round's mixing at a site: alpha, beta and f_init."""
    torch.set_num_threads(1)
    world = World(inputs=(3, 32, 32), classes=10, model=model)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{c}.safetensors" for c in range(clusters)]
        for file in files:
            save_file(nets.weights_of(nets.build(world)), file)
        given = [load_file(file) for file in files]
        S = sum(w.nbytes for w in given[0].values())
        g = layers.classifier_of(given[0])
        order = Mix(layers.backbone_of(given[0]), tuple(map(layers.backbone_of, given)), g, torch.zeros(clusters))
        site = a_site(world)
        seen(network(site, order.f, g), site)  # what the library keeps after its first pass
        mb, _ = grown(lambda: mixing(order, site))
        return {"clusters": clusters, "model_mb": round(S / MB, 1), "models_at_once": round(mb * MB / S, 2)}


def mixing(order: Mix, site: Site) -> Any:
    """f_init, in a network."""
    net = network(site, order.f, order.g)
    own = seen(net, site)
    alpha = client.cluster_weights(order, net, site)
    beta, _ = client.own_share(order, alpha, net, site, own)
    client.pour(net, order.g, [(float(beta[0]), order.f), *client.weights_of(float(beta[1]) * alpha, order)])
    return net


def dense(rows: int) -> dict[str, Any]:
    """Soft neighbourhood density of so many rows."""
    torch.set_num_threads(1)
    p = torch.randn(rows, 10, generator=torch.Generator().manual_seed(0)).mul_(3).softmax(1)
    soft_density(p[:2000])
    begun = time.monotonic()
    mb, value = grown(lambda: soft_density(p))
    return {"rows": rows, "mb": round(mb, 1), "seconds": round(time.monotonic() - begun, 1), "density": round(value, 3)}


def a_site(world: World) -> Site:
    """A target with some random rows."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, *world.inputs, generator=rng)
    data = Data(MemoryRows(x), None, torch.zeros(ROWS, dtype=torch.int64), ("random",))
    return Site(Config(), world, ClientId("site"), Role.TARGET, data, 1, rng)


if __name__ == "__main__":
    sys.exit(main())
