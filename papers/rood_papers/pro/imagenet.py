"""PRO on any network and any images, as its figure 5 has it for ImageNet."""

from collections.abc import Iterator
from functools import partial

import torch

from rood.detectors.base import Detector
from rood.detectors.gen import GEN
from rood.detectors.msp import MSP
from rood.detectors.pro import PRO
from rood.metrics import summary
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Part
from rood_papers.pro.bench import climbs
from rood_papers.pro.figures import SHIFT, mean_of, step_note

NETS = {"default": "net", "AugMix": "net-augmix"}  # roles: --model net=..., --model net-augmix=...
OUTSIDE = ("imagenet/outside", "dtd", "scenes", "svhn")
_UNIT = 0.225  # of normalised input, in pixels: what the paper's steps on ImageNet are in
# what the authors' code settled on
_STEPS = {"PRO-MSP": (1.1e-4, 3), "PRO-GEN": (6.8e-5, 1)}


def imagenet(context: Context) -> Iterator[Part]:
    """MSP and GEN with and without PRO, network by network; the shift of MSP."""
    for net, role in NETS.items():
        for name in OUTSIDE:
            cells = [
                Cell(
                    experiment="pro/imagenet",
                    row=row,
                    column=f"{net} / {name}",
                    metric="auroc",
                    note="" if name.startswith("imagenet") else "images of 32x32, enlarged",
                )
                for row in ("MSP", "PRO-MSP", "GEN", "PRO-GEN")
            ]
            make = partial(_measured, context, role, name, cells)
            yield Part(f"{net}/{name}", cells, make)
        cell = Cell(
            experiment="pro/imagenet",
            row=f"shift of MSP, {net}",
            column="inside",
            metric="mean shift of the largest probability",
            note=step_note(_UNIT),
        )
        yield Part(f"{net}/shift", (cell,), partial(_shift, context, role, cell))


def _measured(context: Context, role: str, name: str, cells: list[Cell]) -> Iterator[Cell]:
    network = context.network(role)
    sides = [_pixels(context, network.shape, n) for n in ("imagenet", name)]
    plain = {"MSP": MSP(network.model), "GEN": GEN(network.model, gamma=0.01, top=100)}
    detectors: dict[str, Detector] = dict(plain)
    for row, (eps, steps) in _STEPS.items():
        detectors[row] = PRO(plain[row.removeprefix("PRO-")], eps=eps, steps=steps)
    s_in, s_out = (context.scores(detectors, x) for x in sides)
    for cell in cells:
        value = summary(s_in[cell.row], s_out[cell.row])["auroc"]
        yield cell.found(value, len(sides[0]), len(sides[1]), network=network.name)


def _shift(context: Context, role: str, cell: Cell) -> Iterator[Cell]:
    network = context.network(role)
    pro = PRO(MSP(network.model), eps=SHIFT * _UNIT, steps=1)
    s = torch.sigmoid(-climbs(pro, _pixels(context, network.shape, "imagenet")).double())
    yield cell.found(mean_of((s - s[0]).abs().amax(dim=0)), s.shape[1], network=network.name)


def _pixels(context: Context, shape: tuple[int, int, int], name: str) -> torch.Tensor:
    """At most 250 a set, the size of the sample of ImageNet; at tiny a handful."""
    limit = 4 if context.size.name == "tiny" else 250
    return context.pixels(name, shape=shape, limit=limit)
