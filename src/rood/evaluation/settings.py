"""What the user asks of an audit: a settings file or the options of the command line."""

from dataclasses import dataclass, field

DEMO_OUTSIDE = {"near": "digits:near", "patches": "digits:patches"}

# one of each kind, and the most used
FEW = ("msp", "energy", "mahalanobis", "knn", "vim")

DEFAULT_LIMIT = 100


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The defaults are the demo: two networks that ship with rood, images without a download."""

    models: tuple[str, ...] = ("digits-ce", "digits-aloe")  # see rood.models.load
    weights: str | None = None  # for a network whose source has none
    mean: tuple[float, ...] = ()  # none: what the network's source says
    std: tuple[float, ...] = ()
    size: str | None = None  # of the images, "32" or "32x48"; None: what the networks take
    inside: str = "digits:inside"
    outside: dict[str, str] = field(default_factory=lambda: dict(DEMO_OUTSIDE))
    # by image set ("inside", a name of `outside`, or "*" for all): "folder", or a column or array
    groups: dict[str, str] = field(default_factory=dict)
    train: str | None = None  # fits the detectors; None: a part of `inside` does
    detectors: tuple[str, ...] = FEW  # "all": every one that needs nothing but the network
    options: dict[str, dict[str, object]] = field(default_factory=dict)  # by detector name
    threats: tuple[str, ...] = ("linf:0.05", "linf:0.1")
    attack: str | None = None  # None: worst_of in its quick tier; pgd where steps are given
    attack_options: dict[str, object] = field(default_factory=dict)
    budget: str | None = None  # time limit, "10m": whatever is not given is chosen to fit it
    limit: int | None = DEFAULT_LIMIT  # images per set, evenly spaced; None: all
    skip_bad: bool = False
    device: str = "auto"
    seed: int = 0
    batch_size: int | None = None  # None: chosen for images of this size
