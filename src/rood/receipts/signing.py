"""Sign a receipt with a key, and check whose it is, by model-signing of the sigstore project.

What is signed is entry.json as it was issued, which has the hash of every file: leaving files out
does not break it. The signature is a sigstore bundle, signature.json.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from rood.errors import CapabilityError, InputError, first_line
from rood.evaluation.store import Store
from rood.receipts.entry import NAME, sealed
from rood.receipts.finding import Lacking, Refuted
from rood.receipts.receipt import LARGEST, SIGNATURE, Receipt


def sign(receipt: Receipt, key: str | Path) -> None:
    """Sign a receipt with the private key of an elliptic curve, PEM; another signature is replaced.

    Nothing leaves the machine.
    """
    signing = _library("signing")
    with _issued(receipt) as folder:
        made = folder / SIGNATURE
        try:
            config = signing.Config().use_elliptic_key_signer(private_key=Path(key))
            config.sign(folder / "receipt", made)
        except (OSError, ValueError, TypeError) as e:
            raise InputError(
                f"expected the private key of an elliptic curve as PEM without a password at "
                f"{str(key)!r}, it cannot be used: {first_line(e)}"
            ) from e
        Store(receipt.path).write_file(SIGNATURE, made.read_bytes())


def check_signature(receipt: Receipt, key: str | Path) -> str:
    """Check of the tier schema: the owner of this public key signed the receipt."""
    verifying = _library("verifying")
    if not receipt.folder.has(SIGNATURE):
        raise Lacking("the receipt is not signed: ask the issuer for one that is")
    try:
        config = verifying.Config().use_elliptic_key_verifier(public_key=Path(key))
    except (OSError, ValueError, TypeError) as e:
        raise InputError(
            f"expected the public key of an elliptic curve as PEM at {str(key)!r}, it cannot be "
            f"used: {first_line(e)}"
        ) from e
    with _issued(receipt) as folder:
        given = folder / SIGNATURE
        given.write_bytes(receipt.folder.read(SIGNATURE, LARGEST))
        try:
            config.verify(folder / "receipt", given)
        except Exception as e:  # whatever a damaged signature makes the library raise
            raise Refuted(
                f"the signature is not of this receipt and this key: {first_line(e)}"
            ) from e
    return f"signed by the owner of {Path(key).name}"


@contextmanager
def _issued(receipt: Receipt) -> Iterator[Path]:
    """A folder with receipt/entry.json as it was issued, nothing left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "receipt").mkdir()
        whole = sealed(replace(receipt.entry, absent=()))
        (folder / "receipt" / NAME).write_bytes(whole)
        yield folder


def _library(part: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(f"model_signing.{part}")
    except ImportError as e:
        raise CapabilityError("needs model-signing: pip install 'rood[signing]'") from e
