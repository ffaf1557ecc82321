"""Claim: an epoch of ALOE costs at most 6 s: ResNet-18, 50k images and 100k outliers, one H200.

Two inner steps, bf16, channels-last, data on the GPU. `python -m benchmarks.aloe_epoch` times
epochs on random images; `--compile` with torch.compile, `--profile` shows where the time goes.
"""

import argparse
import json
import sys
from collections.abc import Iterator

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.bare import random_images
from benchmarks.measure import Claim, machine, middle, report
from rood.models.backbones import create
from rood.models.wrap import wrap
from rood.training import compiled
from rood.training.loop import Epoch, train
from rood.training.objectives.aloe import ALOE
from rood.training.settings import Augment, Settings

BAR = 6.0  # seconds


def epochs(options: argparse.Namespace, images: int, count: int) -> Iterator[Epoch]:
    net = create(options.backbone, classes=10)
    model = wrap(net, mean=(0.5,) * 3, std=(0.25,) * 3)
    settings = Settings(
        epochs=count,
        batch_size=options.batch,
        outlier_batch=2 * options.batch,
        lr=0.01,
        augment=Augment(shift=4, flip=True),
        compile=options.compile,
        graph=options.graph,
    )
    return train(
        model,
        ALOE(eps=1 / 255),  # two inner steps
        random_images(images, "in", 10),
        outliers=random_images(2 * images, "out"),
        settings=settings,
        device=options.device,
    )


def show_profile(options: argparse.Namespace) -> None:
    """Two epochs of 20 steps, of which the second is watched."""
    run = epochs(options, 20 * options.batch, 2)
    next(run)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        next(run)
    on_gpu = torch.device(options.device).type == "cuda"
    key = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=70))
    waits = [e for e in found.key_averages() if "Synchronize" in e.key or e.key == "aten::item"]
    for e in waits:
        print(f"{e.key}: {e.count / 20:.1f} per step, {e.cpu_time_total / 20:.0f} us per step")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=128, help="images per step")
    parser.add_argument("--epochs", type=int, default=4, help="the first warms up")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--graph", action="store_true", help="a CUDA graph of each step")
    parser.add_argument("--mode", help="of torch.compile: reduce-overhead, max-autotune")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    compiled.MODE = options.mode
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("needs CUDA; --device cpu --images 256 tries it out")
        return 1
    print(json.dumps(machine()))
    if options.profile:
        show_profile(options)
        return 0
    seconds = []
    for epoch in epochs(options, options.images, options.epochs):
        seconds.append(epoch.seconds)
        print(f"epoch {epoch.epoch}: {epoch.seconds:.2f} s, loss {epoch.loss:.4f}", flush=True)
    found = claim(seconds, options)
    if options.device == "cpu":  # tried out, not measured
        print(found.line())
        return 0
    return report("aloe-epoch", [found])


def claim(seconds: list[float], options: argparse.Namespace) -> Claim:
    """The median of all epochs but the first, which warms up."""
    warm = seconds[1:] or seconds
    value, spread = middle(warm)
    ways = [w for w in ("graph", "compile") if getattr(options, w)]
    detail = f"{options.images:,} + {2 * options.images:,} images, batch {options.batch}"
    return Claim(
        f"ALOE epoch of {options.backbone}, seconds",
        value,
        BAR,
        len(warm),
        spread,
        ", ".join([detail, "2 inner steps", *ways]),
    )


if __name__ == "__main__":
    sys.exit(main())
