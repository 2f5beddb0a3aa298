"""The command that predicts the rows of a site's data with a model's file. It sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tideline.cli.guard import output
from tideline.cli.options import Json, Networks, use_networks
from tideline.client.output import check_out, clean
from tideline.core.asked.scoring import Prior

if TYPE_CHECKING:
    from tideline.core.settings import Plain


def predict(
    model: Annotated[
        Path, typer.Option("--model", metavar="FILE", help="The model: a .safetensors file of `run export` or `site export`.")
    ],
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="As given to `tideline agent`: a data folder, or python:MODULE:NAME.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The .csv file to write.")],
    held_out: Annotated[bool, typer.Option("--held-out", help="Only the rows that are held out from training.")] = False,
    part: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Of a function's datasets: train, validation or test. [default: the last of them that is there]"
        ),
    ] = "",
    prior: Annotated[
        Prior, typer.Option(help="em: corrected for the shares of the classes in these rows, without their labels.")
    ] = Prior.SOURCE,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, ... auto is a GPU if there is one.")] = "auto",
    networks: Networks = None,
    as_json: Json = False,
) -> None:
    """Predict the rows of a data folder, or of a function's dataset, with a trained model; with labels, score it."""
    check_out(out, ".csv")
    from tideline.learning.prediction import load, predict_data

    use_networks(networks)
    found = predict_data(load(model, device), data, out, held_out, part, prior)
    output(found, as_json, "\n".join(map(clean, lines(found))))


def lines(found: dict[str, Plain]) -> list[str]:
    """The scores in words."""
    said = [f"Wrote {found['file']}: {found['rows']} rows, {found['labelled']} of them with a label"]
    if "accuracy" in found:
        said.append(f"accuracy {words(found['accuracy'])}")
        said += [f"recall of {name} {words(each)}" for name, each in cast("dict[str, Plain]", found["recall"]).items()]
    return said


def words(share: Plain) -> str:
    """A share with its interval."""
    of = cast("dict[str, Any]", share)
    return f"{of['value']:.1%} of {of['rows']} rows (95 % interval {of['low']:.1%} to {of['high']:.1%})"
