"""One receipt of a tiny audit that every test of receipts looks at."""

import pytest
from small_audit import small_files

import rood
from rood.attacks import PGD
from rood.receipts.rescoring import Given


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return small_files(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def audited(files):
    """An audit with a receipt, into two folders."""

    def audit(out, receipt, **changes):
        usual = {"inside": str(files / "inside.npz"), "outside": {"s": str(files / "stripes.npz")}}
        usual |= {"threats": [0.05], "attack": PGD(steps=3), "limit": 12}
        names = ["msp", "knn"]
        with pytest.warns(rood.errors.RoodWarning):  # few images
            return rood.audit(
                str(files / "net.safetensors"), names, out=out, receipt=receipt, **usual | changes
            )

    return audit


@pytest.fixture(scope="session")
def receipt(audited, tmp_path_factory):
    folder = tmp_path_factory.mktemp("receipt")
    audited(folder / "audit", folder / "receipt")
    return folder / "receipt"


@pytest.fixture(scope="session")
def given(files):
    """What a verifier has: the images; the network is in the receipt."""
    data = {"inside": f"npz:{files / 'inside.npz'}", "s": f"npz:{files / 'stripes.npz'}"}
    return Given(data=data, device="cpu")
