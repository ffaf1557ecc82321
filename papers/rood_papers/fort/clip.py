"""FORT's CLIP: a model by name, and the class names of both sides as its words."""

from pathlib import Path

from rood.data.base import Shape
from rood.detectors.clip import CLIP
from rood.models.sources.clip import zero_shot
from rood_papers.framework.context import Context, NotRun

ROLE = "clip"


def clip(context: Context, inside: str, outside: str) -> tuple[CLIP, Shape, str]:
    """The detector for two sets by name, the size of its images, and the model's name.

    The model is what `--model clip=hf:NAME` says: there is no stand-in for its training data.
    """
    if ROLE not in context.models:
        raise NotRun("no data")
    spec = context.models[ROLE].removeprefix("hf:")
    words = [context.images(name, limit=1).classes for name in (inside, outside)]
    model = zero_shot(spec, inside=words[0], outside=words[1]).to(context.device)
    side = int(model.net.size)  # type: ignore[arg-type]
    return CLIP(model, inside=len(words[0])), (3, side, side), Path(spec).name
