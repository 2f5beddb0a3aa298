"""A model as an ONNX file: by torch's exporter, with a dynamic batch, and compared with the model before it is kept."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tideline.core.errors import ConfigRefused, Refused
from tideline.learning.model_file import Model, module_of
from tideline.nets.shapes.rows import drawn

APART = 1e-4  # of a probability, between the two
SIZES = (1, 3)  # of the batches that are compared
INPUT, OUTPUTS = "x", ("logits", "probabilities")
MISSING = "Install the extra: pip install 'tideline[onnx]'"


class Both(nn.Module):
    """Logits and probabilities of rows x (n, *inputs)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.net(x)
        return logits, logits.softmax(1)


def save_onnx(model: Model, path: Path) -> None:
    """Write a model as ONNX: x (n, *inputs) float32, or int64 of token ids -> logits and probabilities (n, classes).

    The metadata have its classes.

    Raises ConfigRefused without the extra; Refused for an operator that cannot be exported, or a file that predicts otherwise.
    """
    if model.by_given:
        what = "The model normalises by the rows that it is given, which an ONNX file cannot"
        raise Refused(what, "Export a site's own model at the site: it has that site's statistics inside; or use safetensors")
    check_installed()
    net = Both(module_of(model)).eval()
    example = some_rows(model, SIZES[-1], 0)
    try:
        with quiet():
            made = torch.onnx.export(
                net,
                (example,),
                dynamo=True,
                input_names=[INPUT],
                output_names=list(OUTPUTS),
                dynamic_shapes={INPUT: {0: torch.export.Dim("n")}},
                verbose=False,
            )
    except Exception as error:
        what = f"The network {model.world.model} cannot be exported to ONNX: {reason(error)}"
        raise Refused(what, "Use --format safetensors or torch, or write the network without this operator") from error
    assert made is not None
    proto = made.model_proto
    about: dict[str, object] = {
        "class_names": list(model.world.class_names),
        "classes": model.world.classes,
        "method": model.origin.method,
    }
    if model.world.columns:
        about["columns"] = [column.plain for column in model.world.columns]
    entry = proto.metadata_props.add()
    entry.key, entry.value = "tideline", json.dumps(about, ensure_ascii=False)
    data = proto.SerializeToString()
    compare(data, net, model)
    path.write_bytes(data)


def some_rows(model: Model, n: int, seed: int) -> Tensor:
    """Rows (n, *inputs) to compare by."""
    if model.world.tokens:
        return drawn(model.world, n, seed)
    return torch.randn(n, *model.world.inputs, generator=torch.Generator().manual_seed(seed))


def reason(error: BaseException) -> str:
    """The first line of what lies at the bottom of an error: the exporter wraps it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


def check_installed() -> None:
    """Raises ConfigRefused unless the extra is there."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigRefused(f"ONNX needs the package {error.name}", MISSING, path="format") from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the exporter's own words on the way."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def compare(data: bytes, net: nn.Module, model: Model) -> None:
    """Raises Refused unless onnxruntime predicts as torch does, for batches of several sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for n in SIZES:
        x = some_rows(model, n, n)
        with torch.no_grad():
            expected = net(x)[1].numpy()
        found = session.run([OUTPUTS[1]], {INPUT: x.numpy()})[0]
        apart = float(np.abs(found - expected).max())
        if not apart <= APART:
            what = f"The ONNX file of {model.world.model} predicts otherwise than the network, by {apart:.2g}"
            raise Refused(what, "Use --format safetensors or torch")
