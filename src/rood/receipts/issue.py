"""Write a receipt: what an audit found, with everything that is needed to check it.

The attacked images are those that 8 bits hold, and the scores are theirs: what is printed is what
is saved.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors.numpy import save as as_bytes
from torch import nn

from rood.detectors.base import Detector
from rood.errors import CapabilityError, InputError, ResultsError
from rood.evaluation.manifest import hardware, versions
from rood.evaluation.plan import EVERY, Named, Plan, role_of
from rood.evaluation.rows import CLEAN, Arrays
from rood.evaluation.store import Store, readable_errors
from rood.goals import look_in
from rood.guard.disk import described, networks_of
from rood.models import checkpoint, zoo
from rood.models.backbones import Backbone
from rood.models.model import Model
from rood.receipts import hashing
from rood.receipts.entry import (
    FORMAT,
    NAME,
    DetectorEntry,
    Measured,
    NetworkEntry,
    Preset,
    ReceiptEntry,
    SetEntry,
    sealed,
)
from rood.receipts.receipt import BREAKS, HASHES, MAY_BE_THERE, Receipt
from rood.receipts.recount import recount

PARTS = ("scores", "classes", "adversarial", "weights", "fitted", BREAKS)
OURS = (f"{NAME}*", "rows.jsonl*", "manifest.json*", f"{HASHES}*", *MAY_BE_THERE, *PARTS)
PRIVATE = ("command",)  # of the manifest: paths of the issuer's machine


def check_issuable(plan: Plan, to: Path, out: Path) -> None:
    """Refuse what no receipt can be of, before the audit begins."""
    if to.resolve() == out.resolve():
        raise InputError(f"expected another folder for the receipt than {str(out)!r}, got the same")
    folder = Store(to).folder
    with readable_errors(to):
        other = folder.foreign(*OURS)
    if other is not None and not folder.has(NAME):
        raise ResultsError(
            f"expected an empty folder or a receipt at {str(to)!r}, found {other!r} in it: choose "
            "another folder"
        )
    if plan.open_set is not None or plan.corruptions is not None:
        raise CapabilityError(
            "expected an audit of images that others can load for a receipt, got one with classes "
            "held out or corruptions: leave these or the receipt out"
        )
    for images in plan.sets().values():
        hashing.levels(images)
    for name, detector in _each(plan):
        if look_in(detector).stochastic:
            raise CapabilityError(
                f"expected detectors in a receipt that give the same score twice, got {name!r}, "
                "which draws at random: leave it out"
            )
        described(detector, networks_of(detector))


def issue(plan: Plan, out: Path, to: Path, who: Mapping[str, str] | None = None) -> Receipt:
    """Write the receipt of a finished audit, whose results are in `out`, into `to`.

    who: what the issuer may say about itself: "by", "licence", "contact".
    """
    check_issuable(plan, to, out)
    return _Issue(plan, Store(out), Store(to), dict(who or {})).write()


def seal(receipt: Receipt, entry: ReceiptEntry) -> Receipt:
    """Write the entry with the hashes of all files; absent ones keep theirs."""
    names = sorted(n for n in receipt.names() if n not in (NAME, *MAY_BE_THERE))
    found = {n: hashlib.sha256(receipt.folder.read(n, 1 << 30)).hexdigest() for n in names}
    kept = {n: entry.files[n] for n in entry.absent}
    Store(receipt.path).write_file(NAME, sealed(replace(entry, files=found | kept)))
    return Receipt(receipt.path)


def _each(plan: Plan) -> Iterator[tuple[str, Detector]]:
    for detectors in plan.detectors.values():
        yield from detectors.items()


class _Issue:
    def __init__(self, plan: Plan, results: Store, to: Store, who: dict[str, str]) -> None:
        self.plan, self.results, self.to, self.who = plan, results, to, who
        self.networks: dict[str, NetworkEntry] = {}

    def write(self) -> Receipt:
        with readable_errors(self.to.path):
            self.to.folder.remove(NAME)  # a partial receipt is none
            for part in PARTS:
                self.to.folder.remove_tree(part)
            for name in MAY_BE_THERE:
                self.to.folder.remove(name)
        detectors = {m: self._detectors(m) for m in self.plan.detectors}
        measured = tuple(self._measured())
        data = self._data()
        receipt = Receipt(self.to.path)
        entry = self._entry(detectors, measured, data)
        self.to.write_file(NAME, sealed(entry))
        rows = "".join(row.line() for row in recount(receipt))
        self.to.write_file("rows.jsonl", rows.encode())
        said = {k: v for k, v in (self.results.manifest() or {}).items() if k not in PRIVATE}
        self.to.write_json("manifest.json", said | {"rows_sha256": self.to.rows_checksum()})
        return seal(receipt, entry)

    def _entry(
        self,
        detectors: dict[str, dict[str, DetectorEntry]],
        measured: tuple[Measured, ...],
        data: dict[str, SetEntry],
    ) -> ReceiptEntry:
        plan, said = self.plan, self.plan.settings()["attack"]
        first = plan.model(next(iter(plan.detectors)))
        return ReceiptEntry(
            format=FORMAT,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            by=self.who.get("by", ""),
            licence=self.who.get("licence", ""),
            contact=self.who.get("contact", ""),
            models={m: plan.model(m).fingerprint() for m in plan.detectors},
            networks=tuple(self.networks.values()),
            detectors=detectors,
            data=data,
            named=plan.named or Named(inside="", outside=dict.fromkeys(plan.outside, "")),
            attack=Preset(name=plan.attack_name(), settings=said, sha256=hashing.of_value(said)),
            threats=tuple(map(str, plan.ordered_threats())),
            sides=tuple(s for s in plan.sides if s != "none"),
            seed=plan.seed,
            measured=measured,
            classes=dict(self._classes()),
            cost=self.results.said("cost") or {},
            versions=versions(),
            hardware=hardware(first.mean.device),
        )

    def _detectors(self, model: str) -> dict[str, DetectorEntry]:
        found = {}
        for name, detector in self.plan.detectors[model].items():
            networks = networks_of(detector)
            for i, network in enumerate(networks):
                self._network(network, model if i == 0 else f"{model}-{name}-{i}")
            file = self.to.name(("fitted", model, name))
            state = detector.fitted_state().items()
            arrays = {k: v.detach().cpu().contiguous().numpy() for k, v in state}
            self.to.write_file(file, as_bytes(arrays))
            found[name] = DetectorEntry(
                tree=described(detector, networks),
                networks=tuple(n.fingerprint() for n in networks),
                fitted=file,
            )
        return found

    def _network(self, model: Model, name: str) -> None:
        fingerprint = model.fingerprint()
        if fingerprint in self.networks:
            return
        of_zoo = name in zoo.names() and zoo.load(name).fingerprint() == fingerprint
        self.networks[fingerprint] = NetworkEntry(
            fingerprint=fingerprint,
            kind=type(model.net).__name__,
            classes=model.classes,
            parameters=sum(p.numel() for p in model.net.parameters()),
            head=_name_of(model.head, model.net),
            mean=tuple(model.mean.flatten().tolist()),
            std=tuple(model.std.flatten().tolist()),
            zoo=name if of_zoo else "",
            file="" if of_zoo else self._weights(model, name, fingerprint),
        )

    def _weights(self, model: Model, name: str, fingerprint: str) -> str:
        """The file of the weights, where a checkpoint of rood holds them exactly; else none."""
        if not isinstance(model.net, Backbone):
            return ""
        file = self.to.name(("weights", name))
        shape = list(self.plan.inside.shape)
        classes = [str(i) for i in range(model.classes)]
        checkpoint.save(model, self.to.path / file, {"shape": shape, "classes": classes})
        if checkpoint.load(self.to.path / file).fingerprint() == fingerprint:
            return file
        with readable_errors(self.to.path):
            for each in (file, checkpoint.card_path(Path(file))):
                self.to.folder.remove(each)
        return ""

    def _measured(self) -> Iterator[Measured]:
        """Copy the scores; of attacked sets with the scores of the images as they are saved."""
        plan = self.plan
        wanted = [(name, "") for name in plan.sets()]
        wanted += [(name, str(threat)) for name, threat in plan.attacked()]
        for model, detectors in plan.detectors.items():
            for detector in detectors:
                for dataset, threat in wanted:
                    condition = f"{plan.attack_name()} {threat}" if threat else CLEAN
                    key = (model, detector, f"{dataset} {condition}")
                    if self.results.has(("scores", *key)):  # a time limit leaves some out
                        yield self._copied(key, Measured(
                            model=model, detector=detector, dataset=dataset, threat=threat,
                            scores=self.to.name(("scores", *key)),
                            images=self.to.name(("adversarial", *key)) if threat else "",
                        ))  # fmt: skip

    def _copied(self, key: tuple[str, ...], one: Measured) -> Measured:
        arrays, facts = self.results.read(("scores", *key))
        if one.threat:
            kept, _ = self.results.read(("adversarial", *key))
            self.to.write(("adversarial", *key), {"images": kept["images"]}, _about(facts))
            arrays = arrays | {"scores": kept["scores"]}
        self.to.write(("scores", *key), arrays, facts)
        return one

    def _classes(self) -> Iterator[tuple[str, str]]:
        for model in self.plan.detectors:
            if self.results.has(("classes", model)):
                arrays, facts = self.results.read(("classes", model))
                if (groups := self.plan.images(EVERY).group_numbers()) is not None:
                    arrays = arrays | {"groups": groups}
                if (arrays["labels"] >= 0).any():
                    self.to.write(("classes", model), arrays, facts)
                    yield model, self.to.name(("classes", model))

    def _data(self) -> dict[str, SetEntry]:
        every = {**self.plan.sets(), EVERY: self.plan.images(EVERY)}
        each: Arrays = {name: hashing.digests(images) for name, images in every.items()}
        self.to.write_file(HASHES, as_bytes(each))
        return {
            name: SetEntry(
                role="inside" if name == EVERY else role_of(name),
                source=images.name,
                n=len(images),
                shape=images.shape,
                sha256=hashing.of_list(each[name]),
            )
            for name, images in every.items()
        }


def _about(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in facts.items() if k not in ("cost", "images_at_once")}


def _name_of(head: nn.Module, net: nn.Module) -> str:
    return next(n for n, m in net.named_modules() if m is head)
