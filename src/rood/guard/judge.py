"""What a guard asks of its detector: logits and a score, from one forward pass where it can be."""

from rood.detectors.base import Detector, OutputDetector
from rood.detectors.low_resolution import LowResolution
from rood.shapes import Images, Logits, Scores


def judge(detector: Detector, x: Images) -> tuple[Logits, Scores]:
    """Logits of the detector's (first) network and the score of each image, unchecked."""
    if isinstance(detector, LowResolution):  # its network knows enlarged images alone
        logits, score = judge(detector.base, detector._resized(x))
        return logits, score
    if isinstance(detector, OutputDetector):
        out = detector.model(x, detector.taps)
        return out.logits, detector.score_outputs(out).to(x.dtype)
    return detector.model(detector.seen(x)).logits, detector.score_images(x)
