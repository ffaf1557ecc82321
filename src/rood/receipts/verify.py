"""Check a receipt, tier by tier: with what is in it, by scoring again, by attacking again."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rood.device import pick_device
from rood.errors import InputError, RoodError, first_line
from rood.receipts.breaking import follow, hold
from rood.receipts.finding import TIERS, Finding, Lacking, Refuted, Tier
from rood.receipts.reattack import reattack
from rood.receipts.receipt import Receipt
from rood.receipts.rescoring import Given, Witness, rescore
from rood.receipts.schema import schema
from rood.receipts.signing import check_signature
from rood.registry import unknown


def verify(
    folder: str | Path,
    tier: Tier = "schema",
    given: Given | None = None,
    nonce: str = "",
    key: str | Path | None = None,
) -> Iterator[Finding]:
    """Check a receipt up to a tier; the checks of every tier below come first.

    Parameters
    ----------
    folder
        What `rood audit --receipt` wrote, here or anywhere.
    tier
        "schema": the files and what follows from them. "rescore": networks and images are loaded
        again and every image is scored again. "reattack": also, `standard` attacks some images of
        each set; what lowers a number is kept in the folder.
    given
        Your own copies of what the receipt names and does not hold.
    nonce
        For "reattack": any word that the issuer could not know. It chooses the images.
    key
        The public key of somebody who must have signed the receipt.

    Yields
    ------
    Finding
        One for each check. A tier begins only where nothing before it failed.

    Examples
    --------
    >>> import tempfile, rood
    >>> from rood.receipts.verify import verify
    >>> to = tempfile.mkdtemp()
    >>> _ = rood.audit("digits-ce", ["msp"], inside="digits:inside", outside="digits:near",
    ...                threats=[0.05], attack="pgd", limit=5, out=tempfile.mkdtemp(), receipt=to)
    >>> [(f.check, f.status) for f in verify(to)][-1]
    ('breaks', 'pass')
    """
    if tier not in TIERS:
        raise unknown("tier", tier, TIERS)
    if tier == "reattack" and not nonce:
        raise InputError(
            "expected a nonce for the tier reattack, such as today's date and a word of yours, got "
            "none: it chooses the images, which the issuer must not know"
        )
    receipt = Receipt(Path(folder))
    given = given or Given()
    if tier != "schema":
        pick_device(given.device)  # refuses what is not here
    witness = Witness(receipt, given)
    for name in TIERS[: TIERS.index(tier) + 1]:
        failed = False
        for check, found in _results(name, receipt, witness, nonce):
            finding = _finding(name, check, found)
            failed |= finding.status == "fail"
            yield finding
        if name == "schema" and key is not None and not failed:
            yield (signed := _signature(receipt, key))
            failed = signed.status == "fail"
        if failed:
            return


def _results(
    tier: Tier, receipt: Receipt, witness: Witness, nonce: str
) -> Iterator[tuple[str, str | Exception]]:
    if tier == "reattack":
        yield from reattack(witness, nonce)
        return
    refuted = False
    for check, found in schema(receipt) if tier == "schema" else rescore(witness):
        refuted |= isinstance(found, Exception) and not isinstance(found, Lacking)
        yield check, found
    if not refuted:
        last: Callable[[], str] = (
            (lambda: follow(receipt)) if tier == "schema" else lambda: hold(witness)
        )
        try:
            yield "breaks", last()
        except (RoodError, Refuted, Lacking) as e:
            yield "breaks", e
        except (KeyError, IndexError, ValueError, TypeError, RuntimeError) as e:
            wrong = f"a break contradicts itself ({type(e).__name__}: {first_line(e)})"
            yield "breaks", Refuted(wrong)


def _signature(receipt: Receipt, key: str | Path) -> Finding:
    """An error of the key itself is the verifier's, and no finding."""
    try:
        return _finding("schema", "signature", check_signature(receipt, key))
    except (Refuted, Lacking) as e:
        return _finding("schema", "signature", e)


def _finding(tier: Tier, check: str, found: str | Exception) -> Finding:
    if isinstance(found, Lacking):
        return Finding(tier, check, "open", str(found))
    status = "fail" if isinstance(found, Exception) else "pass"
    return Finding(tier, check, status, str(found))  # type: ignore[arg-type]
