"""Pictures of what flows and JEM take for images.

    python -m benchmarks.samples fashion-glow mnist-jem --out docs [--networks DIR]

Written as samples-glow.png and samples-jem.png.
"""

import argparse
from dataclasses import fields, replace
from pathlib import Path

import torch
from PIL import Image

from benchmarks.liang_systems import Shelf
from rood.models import checkpoint, zoo
from rood.models.generative.glow import GlowNetwork
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images
from rood.training.objectives.jem import JEM, Replay

SIDE = 8
TEMPERATURE = 0.7  # of Glow's noise, as in its paper
STEPS = 2000  # of JEM's chains: after fewer, most have not left the noise


def glow(model: Model, size: tuple[int, int]) -> Images:
    source = generator(0, "samples")
    return GlowNetwork.of(model).samples(SIDE**2, size, source, TEMPERATURE)


def jem(model: Model, shape: tuple[int, int, int], rule: JEM) -> Images:
    """Chains from even noise, as the training's begin, none of them begun anew."""
    device = model.mean.device
    noise = torch.rand(SIDE**2, *shape, generator=generator(0, "samples")).to(device)
    replay, source = Replay(noise), torch.Generator(device).manual_seed(0)
    for _ in range(STEPS // rule.steps):
        replace(rule, fresh=0.0).sample(model, replay, len(noise), source)
    return replay.chains


def sheet(x: Images, path: Path) -> None:
    """All of them in one picture, SIDE in a row."""
    rows = torch.cat([torch.cat([*row], dim=2) for row in x.split(SIDE)], dim=1)
    pixels = (255 * rows).round().byte().cpu().permute(1, 2, 0).squeeze(2).numpy()
    Image.fromarray(pixels).save(path, optimize=True)


def rule_of(card: dict[str, object]) -> JEM:
    """How the network's own training drew its samples."""
    training = card["training"]
    assert isinstance(training, dict)
    known = {f.name for f in fields(JEM)} & set(training["objective"])
    return JEM(**{name: training["objective"][name] for name in known})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help="networks whose names end in -glow or -jem")
    parser.add_argument("--networks", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(arguments)
    for name in args.names:
        kind = name.rpartition("-")[2]
        path = None if args.networks is None else args.networks / f"{name}.safetensors"
        card = checkpoint.read_card(path) if path and path.exists() else zoo.card(name)
        model = Shelf(args.device, args.networks).load(name)
        c, h, w = card["shape"]
        drawn = jem(model, (c, h, w), rule_of(card)) if kind == "jem" else glow(model, (h, w))
        sheet(drawn, args.out / f"samples-{kind}.png")


if __name__ == "__main__":
    main()
