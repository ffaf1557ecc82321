"""docs/images/attack.png: real images of both sides before and after an attack, with their scores.

python -m tools.figure: everything through the public API, from images that rood can load offline.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import rood
from rood import data
from rood.attacks import WorstOf
from rood.detectors import KNN
from rood.goals import look_in, look_out
from rood.metrics import auroc, threshold_at_tpr
from rood.threat import Linf

OUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "attack.png"
EPS, SHOWN, N = 0.1, 5, 100


def main() -> None:
    """Attack both sides of one detector on the demo's network, and draw."""
    digits = data.split(data.load("digits:inside"), fit=0.6, calibrate=0.2, test=0.2)
    patches = data.load("digits:patches", limit=N).pixels()
    knn = KNN(rood.zoo.load("digits-ce"), k=10).fit(digits["fit"].batches(256))
    threshold = threshold_at_tpr(knn.score(digits["calibrate"].pixels()))
    inside = digits["test"].thin(N).pixels()
    attack, threat = WorstOf(tier="quick"), Linf(EPS)
    noise = torch.Generator().manual_seed(0)
    now_out = attack(look_in(knn), patches, threat, noise)
    now_in = attack(look_out(knn), inside, threat, noise)
    scores = [knn.score(x) for x in (inside, patches, now_in, now_out)]
    pairs = {"clean": scores[:2], "attacked": scores[2:]}
    values = {n: auroc(inside=s[0], outside=s[1]) for n, s in pairs.items()}
    draw((inside, now_in), (patches, now_out), knn, threshold, values)


def draw(
    inside: tuple[Tensor, Tensor],
    outside: tuple[Tensor, Tensor],
    knn: KNN,
    threshold: float,
    values: dict[str, float],
) -> None:
    """Two rows: before and after; on the left OOD images, on the right ID images."""
    figure, axes = plt.subplots(
        2, 2 * SHOWN + 1, figsize=(10.5, 2.7), width_ratios=[1] * SHOWN + [0.3] + [1] * SHOWN
    )
    for row, (name, auroc_now) in enumerate(values.items()):
        axes[row, SHOWN].axis("off")
        for at, x in enumerate((*outside[row][:: N // SHOWN], *inside[row][:: N // SHOWN])):
            axis = axes[row, at + (at >= SHOWN)]
            score = float(knn.score(x[None]))
            accepted = score <= threshold
            axis.imshow(x[0], cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            colour = "#1a7f37" if accepted else "#cf222e"
            axis.set_title(
                f"{'accepted' if accepted else 'refused'}, {score:.2f}", color=colour, fontsize=7
            )
            for side in axis.spines.values():
                side.set(color=colour, linewidth=2)
        label = f"{name}\nAUROC {auroc_now:.2f}"
        axes[row, 0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=10)
    figure.text(0.34, 1.0, f"not digits: refused above {threshold:.2f}", ha="center", fontsize=10)
    figure.text(0.76, 1.0, f"digits: accepted up to {threshold:.2f}", ha="center", fontsize=10)
    figure.savefig(
        OUT, dpi=130, bbox_inches="tight", facecolor="white", metadata={"Software": None}
    )
    print(f"wrote {OUT}: {values}")


if __name__ == "__main__":
    main()
