"""A signature says whose a receipt is; the keys are made here and nothing leaves the machine."""

import sys
from dataclasses import replace

import pytest
from lies import copied, sealed_again
from typer.testing import CliRunner

from rood.cli import app
from rood.errors import CapabilityError, InputError
from rood.receipts.receipt import SIGNATURE, Receipt
from rood.receipts.signing import sign
from rood.receipts.stripping import strip
from rood.receipts.verify import verify


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Private and public keys of Ann and of Bob."""
    pytest.importorskip("model_signing", reason="needs rood[signing]")
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("keys")
    for name in ("ann", "bob"):
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
        public = key.public_key().public_bytes(
            to.Encoding.PEM, to.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / name).write_bytes(private)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


@pytest.fixture
def signed(receipt, keys, tmp_path):
    folder = copied(receipt, tmp_path / "signed")
    sign(Receipt(folder), keys / "ann")
    return folder


def last(folder, key):
    *_, found = verify(folder, key=key)
    return found.check, found.status


def test_the_signer_is_known_by_the_key_and_nobody_else_is(signed, keys):
    assert last(signed, keys / "ann.pub") == ("signature", "pass")
    assert last(signed, keys / "bob.pub") == ("signature", "fail")
    assert {f.status for f in verify(signed)} == {"pass"}  # whoever asks for no signer


def test_what_is_left_out_later_does_not_break_the_signature(signed, keys):
    strip(Receipt(signed))
    assert last(signed, keys / "ann.pub") == ("signature", "pass")


def test_a_receipt_that_was_changed_and_sealed_again_is_not_signed(signed, keys):
    sealed_again(signed, replace(Receipt(signed).entry, by="Bob"))
    assert {f.status for f in verify(signed)} == {"pass"}
    assert last(signed, keys / "ann.pub") == ("signature", "fail")


def test_without_a_signature_nothing_is_refuted_and_nothing_verified(receipt, keys):
    assert last(receipt, keys / "ann.pub") == ("signature", "open")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"payload": "x"}'])
def test_a_damaged_signature_is_a_finding(signed, keys, content):
    (signed / SIGNATURE).write_bytes(content)
    assert last(signed, keys / "ann.pub") == ("signature", "fail")


@pytest.mark.parametrize("name", ["none", "ann.pub"])
def test_a_file_that_is_no_key_is_refused(receipt, keys, name):
    with pytest.raises(InputError, match="expected the private key"):
        sign(Receipt(receipt), keys / name)


def test_a_key_of_the_verifier_that_is_none_is_no_lie_of_the_issuer(signed, keys):
    with pytest.raises(InputError, match="expected the public key"):
        list(verify(signed, key=keys / "none"))


def test_the_commands(receipt, keys, tmp_path):
    folder = copied(receipt, tmp_path / "mine")
    run = lambda *words: CliRunner().invoke(app, list(map(str, words)))
    assert run("sign", folder, "--key", keys / "ann").exit_code == 0
    assert run("verify", folder, "--key", keys / "ann.pub").exit_code == 0
    assert run("verify", folder, "--key", keys / "bob.pub").exit_code == 3
    assert run("verify", receipt, "--key", keys / "ann.pub").exit_code == 4


def test_without_the_package_one_sentence_says_what_to_install(receipt, monkeypatch):
    monkeypatch.setitem(sys.modules, "model_signing.signing", None)
    with pytest.raises(CapabilityError, match=r"rood\[signing\]"):
        sign(Receipt(receipt), "key")
