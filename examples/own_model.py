"""Your own network and your own folders, from nothing to a report.

python examples/own_model.py TRAIN TEST OUTSIDE
    TRAIN, TEST: folders with one sub-folder per class; OUTSIDE: a folder of anything else.
Without arguments, digits that come with rood are written to such folders first.
"""

import sys
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rood
from rood import data
from rood.detectors import KNN, MSP, fit_all
from rood.threat import Linf


def main(train: str, test: str, outside: str, out: str = "own-audit") -> None:
    images = data.load(train)
    loader = DataLoader(TensorDataset(images.pixels(), images.labels), batch_size=64, shuffle=True)
    net = trained(own_network(images.shape[0], len(images.classes)), loader)

    model = rood.wrap(net)  # add mean= and std= if your training normalised
    detectors = {"msp": MSP(model), "knn": KNN(model, k=10)}
    fit_all(detectors.values(), loader)
    results = rood.audit(
        model,
        detectors,
        inside=data.load(test, shape=images.shape),
        outside={"outside": data.load(outside, shape=images.shape)},
        threats=[Linf(8 / 255)],
        out=out,
    )
    for row in results.find(metric="auroc"):
        print(f"{row.detector}, {row.side} attacked: AUROC {row.value:.2f}, {row.verdict}")
    print(f"report: {Path(out) / 'report.html'}")


def own_network(channels: int, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(32 * 9, classes),
    )


def trained(net: nn.Module, loader: DataLoader, epochs: int = 30) -> nn.Module:
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    return net


def demo_folders(root: Path, n: int) -> list[str]:
    """Folders of image files: digits 0 to 5 to train and test on, 6 to 9 as the outside."""
    digits, others = data.load("digits:inside", limit=2 * n), data.load("digits:near", limit=n // 2)
    for i, (image, label) in enumerate(zip(digits.images, digits.labels, strict=True)):
        folder = root / ("train" if i % 2 else "test") / digits.classes[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(folder / f"{i}.png")
    (root / "outside").mkdir(parents=True, exist_ok=True)
    for i, image in enumerate(others.images):
        Image.fromarray(image[0].numpy()).save(root / "outside" / f"{i}.png")
    return [str(root / name) for name in ("train", "test", "outside")]


if __name__ == "__main__":
    torch.manual_seed(0)
    main(*(sys.argv[1:] or demo_folders(Path("own-images"), 400)))
