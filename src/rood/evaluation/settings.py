"""What the user asks of an audit: a settings file or the options of the command line."""

import warnings
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rood import config
from rood.errors import ConfigError, InputError, RoodWarning, expect_trust
from rood.models.load import is_function

DEMO_INSIDE = "digits:inside"
DEMO_OUTSIDE = {"near": "digits:near", "patches": "digits:patches"}

# one of each kind, and the most used
FEW = ("msp", "energy", "mahalanobis", "knn", "vim")

DEFAULT_LIMIT = 100

KEYS = {"models": "model", "threats": "eps"}  # settings that files name as the options do
FORMER = KEYS | {"budget": "time"}  # keys of rood 0.1
OF_ATTACK = ("tier", "steps", "restarts")  # options of the command that are the attack's


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The defaults are the demo: two networks that ship with rood, images without a download."""

    models: tuple[str, ...] = ("digits-ce", "digits-aloe")  # see rood.models.load
    weights: str | None = None  # for a network whose source has none
    mean: tuple[float, ...] = ()  # none: what the network's source says
    std: tuple[float, ...] = ()
    size: str | None = None  # of the images, "32" or "32x48"; None: what the networks take
    inside: str = ""  # none: the demo's, see `with_images`
    outside: dict[str, str] = field(default_factory=dict)
    # by image set ("inside", a name of `outside`, or "*" for all): "folder", or a column or array
    groups: dict[str, str] = field(default_factory=dict)
    train: str | None = None  # fits the detectors; None: a part of `inside` does
    detectors: tuple[str, ...] = FEW  # "all": every one that needs nothing but the network
    options: dict[str, dict[str, object]] = field(default_factory=dict)  # by detector name
    open_set: tuple[str, ...] = ()  # classes of `inside` to hold out as an OOD set
    corruptions: int | None = None  # severity 1 to 5: count false alarms on corrupted ID images
    threats: tuple[str, ...] = ("linf:0.05", "linf:0.1")
    attack: str | None = None  # None: worst_of in its quick tier; pgd where steps are given
    attack_options: dict[str, object] = field(default_factory=dict)
    attacks: bool = True  # whether to attack; False: only certify
    certify: str | None = None  # a method of rood.certify, such as "crown"
    time: str | None = None  # limit, "10m": whatever is not given is chosen to fit it
    limit: int | None = DEFAULT_LIMIT  # images per set, evenly spaced; None: all
    skip_bad: bool = False
    device: str = "auto"
    seed: int = 0
    batch_size: int | None = None  # None: chosen for images of this size
    anyway: bool = False  # whether to go on although a check of the setup failed
    trust: bool = False  # whether networks of files and hubs may run their own code

    def to_toml(self) -> str:
        """A settings file with all of it but trust, which no file may give itself."""
        values = {KEYS.get(k, k): v for k, v in asdict(self).items() if v != {} and k != "trust"}
        for key in ("mean", "std", "inside", "open_set"):  # empty: not given
            values[key] = values[key] or None
        values["limit"] = self.limit or 0
        tuned = {k: v for k, v in self.attack_options.items() if k in OF_ATTACK}
        others = {k: v for k, v in self.attack_options.items() if k not in OF_ATTACK}
        return config.dump(values | tuned | {"attack_options": others or None})


def read_settings(path: Path, *, trust: bool = False) -> AuditSettings:
    """Settings from a TOML file; only with `trust` may it name Python code."""
    values = config.read(path)
    if "trust" in values:
        raise ConfigError(f"{path.name}: a file cannot trust itself: give --trust, or trust=True")
    built = config.build(AuditSettings, _as_options(values, path.name), path.name, KEYS)
    return replace(built, limit=built.limit or None, trust=trust)  # 0 is all, as for --limit


def _as_options(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Keys as the options are called; those of rood 0.1 still work, with a warning."""
    found = dict(values)
    for old in sorted(FORMER.keys() & found.keys()):
        text = f"{where}: {old} is called {FORMER[old]} now, as the option --{FORMER[old]} is"
        warnings.warn(text, RoodWarning, stacklevel=3)
        found[FORMER[old]] = found.pop(old)
    tuned = {key: found.pop(key) for key in OF_ATTACK if key in found}
    if tuned:
        given = found.get("attack_options", {})
        found["attack_options"] = {**given, **tuned} if isinstance(given, dict) else given
    return found


def with_images(s: AuditSettings, *, outside: bool) -> AuditSettings:
    """The settings with images: those that were named, or the demo's for the demo's networks."""
    known = bool(s.outside or s.open_set)
    named = {"--inside": bool(s.inside)} | ({"--outside": known} if outside else {})
    for option in (option for option, given in named.items() if not given):
        refuse_demo_images(s.models, option)
    usual = {} if s.open_set else dict(DEMO_OUTSIDE)
    return replace(s, inside=s.inside or DEMO_INSIDE, outside=s.outside or usual)


def refuse_demo_images(models: tuple[str, ...], option: str) -> None:
    """Refuse to measure somebody's network on digits because no images were named."""
    for name in models:
        if not name.startswith("digits-"):
            raise InputError(
                f"expected {option} beside --model {name!r}, got none: name your images, such as "
                f"{option} folder:DIR or {option} npz:FILE; only the demo's networks have their own"
            )


def refuse_code(s: AuditSettings, path: Path) -> None:
    """Refuse Python functions that a settings file names, unless it is trusted."""
    for spec in filter(is_function, s.models):
        runs = f"the settings file names {spec!r}, which is imported and called"
        expect_trust(s.trust, str(path), runs, f"name it yourself: --model {spec}")
