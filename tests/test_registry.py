"""The folder is the registry: names, classes, and errors that suggest the nearest name."""

import pytest

from rood import attacks, detectors
from rood.errors import RoodError, UnknownNameError
from rood.registry import Registry


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="no detector is called 'mahalanobi': did you mean"):
        detectors.registry.get("mahalanobi")
    with pytest.raises(UnknownNameError, match=r"no attack is called 'zzz': expected one of .*pgd"):
        attacks.registry.get("zzz")


def test_a_name_gives_the_class_of_its_file():
    from rood.detectors.knn import KNN

    assert detectors.registry.get("knn") is KNN is detectors.KNN
    assert detectors.registry.names() == sorted(detectors.registry.names())


def test_named_constructors_are_registered_and_their_file_is_not(world):
    names = detectors.registry.names()
    assert {"pro_msp", "pro_entropy"} <= set(names)
    assert "pro" not in names
    with pytest.raises(UnknownNameError, match="did you mean 'pro_"):
        detectors.registry.get("pro")
    assert type(detectors.registry.get("pro_msp")(world.model).base).__name__ == "MSP"


def test_an_unknown_class_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Mahalanobus'"):
        detectors.Mahalanobus  # noqa: B018


@pytest.mark.parametrize(("extra", "found"), [("class B(Base): ...", "A, B"), ("", "none")])
def test_a_file_holds_exactly_one_public_class(extra, found, tmp_path, monkeypatch):
    package = tmp_path / f"pack_{len(extra)}"
    package.mkdir()
    (package / "__init__.py").write_text("class Base: ...")
    one = "class A(Base): ..." if extra else "class _Hidden(Base): ..."
    text = f"from {package.name} import Base\n{one}\n{extra}\n"
    (package / "one.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    base = __import__(package.name).Base
    with pytest.raises(RoodError, match=f"expected one public Base in .*, found {found}"):
        Registry(package.name, base).get("one")
