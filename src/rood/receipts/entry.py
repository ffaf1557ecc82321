"""entry.json: what a receipt is of, with the hash of every other file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rood import config
from rood.errors import CheckpointError, ConfigError, ResultsError
from rood.evaluation.plan import Named
from rood.models import checkpoint, zoo

FORMAT = 1
NAME, SEAL = "entry.json", "sha256"


@dataclass(frozen=True, kw_only=True)
class NetworkEntry:
    """A network: where it can be loaded from, and the hash that it must have."""

    fingerprint: str  # SHA-256 of weights, mean and std
    kind: str  # the class of the network
    classes: int
    parameters: int
    head: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    zoo: str = ""  # its name there
    file: str = ""  # of the receipt
    url: str = ""  # where the weights can be had; never loaded by itself


@dataclass(frozen=True, kw_only=True)
class DetectorEntry:
    """A fitted detector: class and arguments, networks by fingerprint, what fit() computed."""

    tree: dict[str, object]
    networks: tuple[str, ...]
    fitted: str  # the file of the fitted state


@dataclass(frozen=True, kw_only=True)
class SetEntry:
    """A set of clean images, known by hashes only."""

    role: Literal["inside", "outside"]
    source: str
    n: int
    shape: tuple[int, ...]
    sha256: str  # of the list of hashes, which hashes.safetensors has


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The scores of one detector on one set, clean or attacked."""

    model: str
    detector: str
    dataset: str
    threat: str  # "" where nothing was attacked
    scores: str  # a file
    images: str = ""  # a file: the attacked images

    def where(self) -> str:
        """For messages."""
        return f"{self.model} {self.detector} on {self.dataset}" + (
            f", {self.threat}" if self.threat else ""
        )


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The attack: the name in the rows, class and settings, and their hash."""

    name: str
    settings: dict[str, object]
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ReceiptEntry:
    """Everything that is said about a result besides the numbers themselves."""

    format: int
    date: str
    by: str
    licence: str
    contact: str
    models: dict[str, str]  # the fingerprint of each audited network, by its name in the rows
    networks: tuple[NetworkEntry, ...]
    detectors: dict[str, dict[str, DetectorEntry]]
    data: dict[str, SetEntry]
    named: Named
    attack: Preset
    threats: tuple[str, ...]
    sides: tuple[Literal["inside", "outside", "both"], ...]
    seed: int
    measured: tuple[Measured, ...]
    classes: dict[str, str]  # the file of the predicted classes, by model
    cost: dict[str, float]
    versions: dict[str, str]
    hardware: dict[str, object]
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 of each; breaks/ aside
    absent: tuple[str, ...] = ()  # files that are known by their hash only

    def to_dict(self) -> dict[str, Any]:
        """As entry.json has it."""
        return asdict(self)

    def network(self, fingerprint: str) -> NetworkEntry:
        """The network with this fingerprint."""
        return next(n for n in self.networks if n.fingerprint == fingerprint)


def misnamed(entry: ReceiptEntry) -> list[str]:
    """Audited networks that are called as one of the zoo, and are another."""
    return [
        name
        for name, f in entry.models.items()
        if name in zoo.names() and entry.network(f).zoo != name
    ]


def sealed(entry: ReceiptEntry) -> bytes:
    """entry.json, with a hash of all of it."""
    return checkpoint.sealed(entry.to_dict(), SEAL)


def parsed(card: Any, where: str) -> ReceiptEntry:
    """The entry of a JSON value; a value that rood would not write is refused."""
    if not isinstance(card, Mapping):
        raise ResultsError(f"expected a table in {where}, got {type(card).__name__}")
    version = card.get("format")
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise ResultsError(
            f"expected format 1 to {FORMAT} in {where}, got {version!r:.40}: update rood"
        )
    if (found := checkpoint.digest(card, SEAL)) != card.get(SEAL):
        raise ResultsError(
            f"{where} was changed: expected sha256 {str(card.get(SEAL))[:12]}..., got {found[:12]}"
            "...: ask for the receipt as it was issued"
        )
    try:
        return config.build(ReceiptEntry, {k: v for k, v in card.items() if k != SEAL}, where)
    except (ConfigError, CheckpointError) as e:
        raise ResultsError(str(e)) from e
