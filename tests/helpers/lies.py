"""Receipts that say something untrue, each made consistent with itself as a careful liar would."""

import hashlib
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from rood import config
from rood.evaluation.store import SEAL, _checksum, read_rows
from rood.models import checkpoint
from rood.receipts.entry import ReceiptEntry
from rood.receipts.hashing import of_list, of_value
from rood.receipts.issue import seal
from rood.receipts.receipt import Receipt
from rood.receipts.recount import recount


def copied(receipt: Path, to: Path) -> Path:
    shutil.copytree(receipt, to)
    return to


def edited(folder: Path, name: str, change) -> None:
    """The arrays of a file as `change` makes them."""
    with safe_open(folder / name, framework="numpy") as file:
        arrays = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
        facts = file.metadata()
    changed = {k: np.array(v, order="C") for k, v in change(arrays).items()}
    if facts is not None and facts.pop(SEAL, None):
        facts[SEAL] = _checksum(changed, facts)
    save_file(changed, folder / name, metadata=facts)


def sealed_again(folder: Path, entry=None) -> None:
    """All hashes as they are now."""
    seal(Receipt(folder), entry or Receipt(folder).entry)


def recounted(folder: Path, entry=None) -> None:
    """Rows that follow from the scores, and all hashes."""
    sealed_again(folder, entry)
    lines = "".join(row.line() for row in recount(Receipt(folder)))
    (folder / "rows.jsonl").write_text(lines)
    sealed_again(folder)


def measured(folder: Path, dataset: str, threat: str = "", detector: str = "msp"):
    return next(
        m
        for m in Receipt(folder).entry.measured
        if (m.dataset, m.threat, m.detector) == (dataset, threat, detector)
    )


def row_changed(folder: Path, wanted: dict, **changes) -> None:
    rows = list(read_rows(folder))
    i = next(i for i, r in enumerate(rows) if wanted.items() <= asdict(r).items())
    rows[i] = replace(rows[i], **changes)
    (folder / "rows.jsonl").write_text("".join(r.line() for r in rows))
    sealed_again(folder)


def relisted(folder: Path, name: str, change) -> None:
    """Other hashes of the images of a set, and the scores that belong to as many."""
    edited(folder, "hashes.safetensors", lambda a: a | {name: change(a[name])})
    entry = Receipt(folder).entry
    with safe_open(folder / "hashes.safetensors", framework="numpy") as file:
        found = file.get_tensor(name)
    data = entry.data | {name: replace(entry.data[name], n=len(found), sha256=of_list(found))}
    sealed_again(folder, replace(entry, data=data))


def attacked_image(folder: Path, change, dataset: str = "s") -> None:
    edited(
        folder,
        measured(folder, dataset, THREAT).images,
        lambda a: a | {"images": change(a["images"])},
    )
    sealed_again(folder)


THREAT = "linf:0.05"
AUROC = {"metric": "auroc", "side": "both", "detector": "msp"}


def edited_value(f):
    row_changed(f, AUROC, value=0.987)


def edited_interval(f):
    wide = next(r for r in read_rows(f) if r.metric == "auroc" and r.high - r.low > 0.01)
    row_changed(f, asdict(wide), high=(wide.high + wide.low) / 2)


def edited_verdict(f):
    row = next(r for r in read_rows(f) if AUROC.items() <= asdict(r).items())
    row_changed(f, AUROC, verdict="warn" if row.verdict == "pass" else "pass")


def edited_n(f):
    row_changed(f, AUROC, n_in=1000)


def edited_accuracy(f):
    row_changed(f, {"metric": "accuracy"}, value=0.876)


def lost_row(f):
    rows = [r for r in read_rows(f) if not AUROC.items() <= asdict(r).items()]
    (f / "rows.jsonl").write_text("".join(r.line() for r in rows))
    sealed_again(f)


def rows_without_hash(f):
    (f / "rows.jsonl").write_text((f / "rows.jsonl").read_text().replace("0.", "0.1", 1))


def program(f):
    (f / "weights" / "run.pkl").write_bytes(b"cos\nsystem\n")
    sealed_again(f)


def link(f):
    (f / "classes" / "more.json").symlink_to("/etc/hostname")


def entry_without_hash(f):
    card = json.loads((f / "entry.json").read_text())
    (f / "entry.json").write_text(json.dumps(card | {"by": "somebody else"}))


def threshold_on_test(f):
    def tested(folder):
        with safe_open(folder / "hashes.safetensors", framework="numpy") as file:
            return file.get_tensor("inside")

    n = len(tested(f))
    relisted(f, "calibrate", lambda h: np.concatenate([tested(f), h[n:]]))


def duplicated(f):
    relisted(f, "s", lambda h: np.repeat(h[::2], 2, axis=0)[: len(h)])


def other_preset(f):
    entry = Receipt(f).entry
    settings = {"class": "WorstOf", "tier": "full"}
    attack = replace(entry.attack, settings=settings, sha256=of_value(settings))
    sealed_again(f, replace(entry, attack=attack))


def float_images(f):
    attacked_image(f, lambda x: x.astype(np.float32) / 127)


def lost_scores(f):
    entry = Receipt(f).entry
    gone = measured(f, "inside", THREAT)
    kept = tuple(m for m in entry.measured if m != gone)
    sealed_again(f, replace(entry, measured=kept))


def weaker_than_clean(f):
    clean = Receipt(f).scores(measured(f, "s"))
    change = lambda a: a | {"scores": (clean + clean.std()).astype(np.float32)}
    edited(f, measured(f, "s", THREAT).scores, change)
    recounted(f)


def edited_scores(f):
    one = measured(f, "s", THREAT)
    clean = Receipt(f).scores(measured(f, "s")).astype(np.float32)
    edited(f, one.scores, lambda a: a | {"scores": clean})
    recounted(f)


def edited_clean_scores(f):
    edited(f, measured(f, "inside").scores, lambda a: a | {"scores": a["scores"] - 3})
    recounted(f)


def swapped_images(f):
    attacked_image(f, lambda x: x[::-1])


def outside_the_ball(f):
    attacked_image(f, lambda x: np.where(x < 128, x + 16, x - 16).astype(np.uint8))


def smaller_budget(f):
    """The numbers of linf:0.05 as those of linf:0.01."""
    entry, name = Receipt(f).entry, "linf:0.01"
    told = [replace(m, threat=name) if m.threat else m for m in entry.measured]
    recounted(f, replace(entry, threats=(name,), measured=tuple(told)))


def other_norm(f):
    entry, name = Receipt(f).entry, "l2:0.05"
    told = [replace(m, threat=name) if m.threat else m for m in entry.measured]
    recounted(f, replace(entry, threats=(name,), measured=tuple(told)))


def other_weights(f):
    """Another network than the one that was audited, which the fingerprint does not say."""
    entry = Receipt(f).entry
    file = f / entry.networks[0].file
    card = json.loads(file.with_suffix(".json").read_text())
    edited(
        f, entry.networks[0].file, lambda a: {k: (1.5 * v).astype(v.dtype) for k, v in a.items()}
    )
    card["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    file.with_suffix(".json").write_bytes(checkpoint.sealed(card, checkpoint.SEAL))
    sealed_again(f)


def other_fingerprint(f):
    """The same, and the fingerprint says so too."""
    other_weights(f)
    entry = Receipt(f).entry
    old = entry.networks[0].fingerprint
    new = checkpoint.load(f / entry.networks[0].file).fingerprint()
    text = json.dumps(entry.to_dict()).replace(old, new)
    sealed_again(f, config.build(ReceiptEntry, json.loads(text), "entry"))


def other_data(f):
    relisted(f, "s", lambda h: np.random.default_rng(0).permutation(h.ravel()).reshape(h.shape))


def cherry_picked(f):
    """Half of the images, those that are told apart best."""
    best = Receipt(f).scores(measured(f, "s", THREAT)).argsort()[-6:]
    for one in Receipt(f).entry.measured:
        if one.dataset == "s":
            n = Receipt(f).entry.data["s"].n
            few = lambda a, n=n: {k: v[best] if len(v) == n else v for k, v in a.items()}
            edited(f, one.scores, few)
            if one.images:
                edited(f, one.images, few)
    relisted(f, "s", lambda h: h[best])
    recounted(f)


def cherry_picked_threshold(f):
    """The threshold on the images with the highest scores only."""
    best = Receipt(f).scores(measured(f, "calibrate")).argsort()[-25:]
    for one in Receipt(f).entry.measured:
        if one.dataset == "calibrate":
            edited(f, one.scores, lambda a: {k: v[best] for k, v in a.items()})
    relisted(f, "calibrate", lambda h: h[best])
    recounted(f)


def edited_classes(f):
    file = Receipt(f).entry.classes["net"]
    edited(f, file, lambda a: a | {"class": np.roll(a["class"], 1)})
    recounted(f)


def edited_labels(f):
    file = Receipt(f).entry.classes["net"]
    edited(f, file, lambda a: a | {"labels": np.roll(a["labels"], 1)})
    recounted(f)


def other_fitted_state(f):
    file = Receipt(f).entry.detectors["net"]["knn"].fitted
    edited(f, file, lambda a: {k: -v for k, v in a.items()})
    sealed_again(f)


def overflowing_scores(f):
    """One score beyond all others, so that the allowed difference would be infinite."""
    huge = lambda s: np.where(s == s.max(), 1e200, s.astype(np.float64))
    edited(f, measured(f, "s").scores, lambda a: a | {"scores": huge(a["scores"])})
    edited(f, measured(f, "inside").scores, lambda a: a | {"scores": a["scores"] - 3})
    recounted(f)


def attack_without_a_tier(f):
    less = lambda a: {k: v for k, v in a.items() if k != "tier"}
    edited(f, measured(f, "s", THREAT).scores, less)
    recounted(f)


def called_standard(f):
    entry = Receipt(f).entry
    settings = entry.attack.settings | {"tier": "standard"}
    attack = replace(entry.attack, settings=settings, sha256=of_value(settings))
    sealed_again(f, replace(entry, attack=attack))


def another_attack_by_name(f):
    entry = Receipt(f).entry
    recounted(f, replace(entry, attack=replace(entry.attack, name="worst_of")))


def other_side(f):
    """ID images as OOD ones, whose attack is to lower their scores."""
    entry = Receipt(f).entry
    data = entry.data | {"inside": replace(entry.data["inside"], role="outside")}
    sealed_again(f, replace(entry, data=data))


def scores_without_hash(f):
    """In a file that may change after the receipt was sealed."""
    entry, one = Receipt(f).entry, measured(f, "s")
    (f / one.scores).rename(f / "report.html")
    told = [replace(m, scores="report.html") if m == one else m for m in entry.measured]
    sealed_again(f, replace(entry, measured=tuple(told)))


def linked_folder(f):
    (f / "more").symlink_to("/etc", target_is_directory=True)


def program_among_breaks(f):
    (f / "breaks").mkdir()
    (f / "breaks" / "run.py").write_text("print('run')")


def fewer_parameters(f):
    entry = Receipt(f).entry
    sealed_again(f, replace(entry, networks=(replace(entry.networks[0], parameters=10),)))


def called_of_the_zoo(f):
    entry = Receipt(f).entry
    sealed_again(f, replace(entry, networks=(replace(entry.networks[0], zoo="digits-aloe"),)))


# what is said, and which check of which tier finds that it is not so
LIES = {
    edited_value: ("schema", "rows"),
    edited_interval: ("schema", "rows"),
    edited_verdict: ("schema", "rows"),
    edited_n: ("schema", "rows"),
    edited_accuracy: ("schema", "rows"),
    lost_row: ("schema", "rows"),
    rows_without_hash: ("schema", "files"),
    program: ("schema", "files"),
    link: ("schema", "files"),
    entry_without_hash: ("schema", "entry"),
    threshold_on_test: ("schema", "data"),
    duplicated: ("schema", "data"),
    other_preset: ("schema", "attack"),
    float_images: ("schema", "scores"),
    lost_scores: ("schema", "scores"),
    weaker_than_clean: ("schema", "scores"),
    overflowing_scores: ("schema", "scores"),
    attack_without_a_tier: ("schema", "attack"),
    called_standard: ("schema", "attack"),
    another_attack_by_name: ("schema", "attack"),
    other_side: ("schema", "data"),
    scores_without_hash: ("schema", "files"),
    linked_folder: ("schema", "files"),
    program_among_breaks: ("schema", "breaks"),
    fewer_parameters: ("rescore", "weights"),
    called_of_the_zoo: ("rescore", "weights"),
    edited_scores: ("rescore", "attacked scores"),
    edited_clean_scores: ("rescore", "clean scores"),
    swapped_images: ("rescore", "threat"),
    outside_the_ball: ("rescore", "threat"),
    smaller_budget: ("rescore", "threat"),
    other_norm: ("rescore", "threat"),
    other_weights: ("rescore", "weights"),
    other_fingerprint: ("rescore", "clean scores"),
    other_data: ("rescore", "data"),
    cherry_picked: ("rescore", "data"),
    cherry_picked_threshold: ("rescore", "data"),
    edited_classes: ("rescore", "classes"),
    edited_labels: ("rescore", "classes"),
    other_fitted_state: ("rescore", "clean scores"),
}
