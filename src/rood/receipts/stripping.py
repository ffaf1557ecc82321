"""Leave images and weights that may not be copied out of a receipt, and put them back.

entry.json keeps their SHA-256 and the receipt its digest: what was said of the one holds for both.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

from rood._files import Folder
from rood.errors import ResultsError
from rood.evaluation.store import Store, readable_errors
from rood.receipts.entry import NAME, sealed
from rood.receipts.receipt import LARGEST, Receipt

LEFT_OUT = ("adversarial", "weights")  # folders of a receipt


def strip(receipt: Receipt) -> Receipt:
    """Remove attacked images and weights; only their SHA-256 stay. A second time does nothing."""
    entry = receipt.entry
    there = [n for n in receipt.names() if Path(n).parts[0] in LEFT_OUT]
    if loose := [n for n in there if n not in entry.files]:
        raise ResultsError(f"expected files that {NAME} knows, found {loose[0]!r}")
    for name in there:
        receipt.content(name)  # has the SHA-256 that is all that stays of it
    absent = tuple(sorted({*entry.absent, *there}))
    store = Store(receipt.path)
    store.write_file(NAME, sealed(replace(entry, absent=absent)))
    with readable_errors(receipt.path):
        for part in LEFT_OUT:
            store.folder.remove_tree(part)
    return Receipt(receipt.path)


def restore(receipt: Receipt, source: Path) -> Receipt:
    """Put back what a receipt lacks, from a folder that has it under the same names."""
    entry, store = receipt.entry, Store(receipt.path)
    for name in entry.absent:  # all are there and right before the first is written
        _found(receipt, source, name)
    for name in entry.absent:
        store.write_file(name, _found(receipt, source, name))
    store.write_file(NAME, sealed(replace(entry, absent=())))
    return Receipt(receipt.path)


def _found(receipt: Receipt, source: Path, name: str) -> bytes:
    try:
        content = Folder(source).read(name, LARGEST)
    except OSError as e:
        raise ResultsError(
            f"expected {name!r} in {str(source)!r}, cannot read it ({e.strerror or e}): name the "
            "receipt as it was issued"
        ) from e
    if hashlib.sha256(content).hexdigest() != receipt.entry.files[name]:
        raise ResultsError(f"{name!r} in {str(source)!r} has another SHA-256 than {NAME} says")
    return content
