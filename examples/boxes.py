"""The OOD score of every box of an object detector, attacked.

python examples/boxes.py MODEL INSIDE OUTSIDE
    MODEL: a DETR or YOLOS, a folder or a name on the Hugging Face hub; INSIDE, OUTSIDE: images that
    `rood audit` takes, such as folder:streets. Needs the extra hub.
Without arguments, a tiny YOLOS of random weights and drawn scenes: it shows the steps, its numbers
mean nothing.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from transformers import AutoModelForObjectDetection, YolosConfig, YolosForObjectDetection

import rood
from rood import data
from rood.attacks import PGD
from rood.threat import Linf

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of DETR and YOLOS


def main(source: str = "", inside: str = "", outside: str = "", out: str = "box-audit") -> None:
    if source:
        detector = AutoModelForObjectDetection.from_pretrained(source, use_safetensors=True).eval()
        side = 480
        images = [data.load(s, shape=(3, side, side)).pixels() for s in (inside, outside)]
    else:
        detector, side = tiny_yolos(), 64
        images = [scenes(120, side, striped=False), scenes(40, side, striped=True)]

    boxes_in, boxes_out = (crops(detector, x, side, count=2) for x in images)
    model = rood.wrap(BoxClassifier(detector), head="head", mean=MEAN, std=STD)
    results = rood.audit(
        model,
        ["msp", "energy", "knn"],
        inside=boxes_in,
        outside={"other objects": boxes_out},
        threats=[Linf(4 / 255)],
        attack=PGD(steps=10),
        limit=20,
        out=out,
    )
    for row in results.find(metric="auroc"):
        print(f"{row.detector}, {row.side} attacked: AUROC {row.value:.2f}, {row.verdict}")
    print(f"report: {Path(out) / 'report.html'}")


class BoxClassifier(nn.Module):
    """The class logits of the most confident box: to rood, an ordinary classifier of crops.

    The features are those of the box's query before the last layer. "No object", the last class of
    these detectors, is left out.
    """

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.detector = detector
        layers = getattr(detector.class_labels_classifier, "layers", None)  # DETR has one layer
        *before, last = layers if layers else [detector.class_labels_classifier]
        self.before = nn.ModuleList(before)
        self.head = nn.Linear(last.in_features, last.out_features - 1)
        with torch.no_grad():
            self.head.weight.copy_(last.weight[:-1])
            self.head.bias.copy_(last.bias[:-1])

    def forward(self, x: Tensor) -> Tensor:
        found = self.detector(pixel_values=x)
        best = confidence(found.logits).argmax(dim=1)
        queries = found.last_hidden_state[:, -found.logits.shape[1] :]  # YOLOS: patches before them
        h = queries[torch.arange(len(x), device=x.device), best]  # (b, d)
        for layer in self.before:
            h = layer(h).relu()
        return self.head(h)


def confidence(logits: Tensor) -> Tensor:
    """The probability of the likeliest class of every box, "no object" aside."""
    return logits.softmax(dim=2)[:, :, :-1].amax(dim=2)


@torch.no_grad()
def crops(detector: nn.Module, images: Tensor, side: int, count: int) -> Tensor:
    """The `count` most confident boxes of every image, enlarged to the detector's size."""
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))
    cut = []
    for image in images:
        found = detector(pixel_values=((image - mean) / std)[None])
        best = confidence(found.logits)[0].topk(count).indices
        for x, y, w, h in found.pred_boxes[0, best].tolist():  # centre and size, in [0, 1]
            high, wide = image.shape[1:]
            box = image[:, extent(y, h, high), extent(x, w, wide)]
            cut.append(interpolate(box[None], (side, side), mode="bilinear", antialias=True)[0])
    return torch.stack(cut).clamp(0, 1)


def extent(centre: float, size: float, pixels: int) -> slice:
    """The pixels of one side of a box, at least eight."""
    low = int((centre - size / 2) * pixels)
    low = min(max(low, 0), pixels - 8)
    return slice(low, min(max(int((centre + size / 2) * pixels), low + 8), pixels))


def tiny_yolos() -> nn.Module:
    config = YolosConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=[64, 64],
        patch_size=16,
        num_detection_tokens=10,
        num_labels=4,
        initializer_range=0.2,  # 0.02 makes outputs that hardly depend on the image
    )
    detector = YolosForObjectDetection(config)
    embeddings = detector.vit.embeddings
    for p in (embeddings.detection_tokens, embeddings.position_embeddings):
        nn.init.normal_(p)  # they are zeros at first: all boxes would be one
    return detector.eval()


def scenes(n: int, side: int, *, striped: bool) -> Tensor:
    """A square of one colour, or with stripes, near the middle of a grey image."""
    images = 0.4 + 0.1 * torch.rand(n, 3, side, side)
    for image in images:
        size = int(torch.randint(side // 3, side // 2, ()))
        row, column = torch.randint(side // 8, side // 3, (2,)).tolist()
        square = torch.rand(3, 1, 1).expand(3, size, size).clone()
        if striped:
            square[:, ::4], square[:, 1::4] = 0, 1
        image[:, row : row + size, column : column + size] = square
    return images


if __name__ == "__main__":
    torch.manual_seed(0)
    main(*sys.argv[1:])
