"""The small parts everything stands on: seeds, registry, settings files, light imports."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch
from scipy.stats import kstest

from rood import attacks, config, detectors
from rood.errors import ConfigError, RoodError, UnknownNameError, first_line
from rood.numerics.streaming import Sample
from rood.registry import Registry
from rood.seeds import Noise, generator, row_keys


def images(n=6, seed=0, size=8):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def noise(x, seed=0):
    return Noise(x, torch.Generator().manual_seed(seed))


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# seeds


def test_a_generator_depends_on_its_seed_and_purpose_alone():
    before = torch.get_rng_state()
    draw = lambda *key: torch.rand(4, generator=generator(*key)).tolist()
    assert draw(0, "pgd", 3) == draw(0, "pgd", 3)
    assert len({tuple(draw(*k)) for k in [(0, "a"), (0, "b"), (1, "a"), (0, "a", 1)]}) == 4
    assert torch.equal(before, torch.get_rng_state())


def test_noise_is_uniform_and_normal_noise_is_normal():
    n = noise(images(16, size=16))
    u = torch.cat([n.uniform().flatten() for _ in range(3)])
    assert kstest(u, "uniform").pvalue > 1e-3
    assert 0 <= u.min() <= u.max() < 1
    assert kstest(torch.cat([n.normal().flatten() for _ in range(3)]), "norm").pvalue > 1e-3


def test_noise_of_different_images_and_of_different_draws_is_unrelated():
    n = noise(images(6, size=16))
    draws = torch.cat([n.uniform().flatten(1) for _ in range(2)])  # (12, 768)
    off = torch.corrcoef(draws) - torch.eye(12)
    assert off.abs().max() < 0.15  # 4 standard deviations of 768 numbers


def test_noise_of_an_image_does_not_depend_on_its_batch():
    x = images()
    whole = noise(x).uniform()
    assert torch.equal(noise(x[2:4]).uniform(), whole[2:4])
    assert torch.equal(noise(x.flip(0)).uniform().flip(0), whole)
    assert not torch.equal(noise(x, seed=1).uniform(), whole)


def test_selected_noise_goes_on_where_the_whole_would_have():
    x, index = images(), torch.tensor([4, 1])
    whole, part = noise(x), noise(x)
    whole.uniform(), part.uniform()
    assert torch.equal(part.select(index).uniform(), whole.uniform()[index])


def test_selecting_does_not_disturb_the_noise_that_was_selected_from():
    a, b = noise(images()), noise(images())
    a.select(torch.tensor([0])).uniform()
    assert torch.equal(a.uniform(), b.uniform())


def test_noise_is_the_same_on_every_machine():
    x = torch.arange(4.0).view(1, 1, 2, 2) / 4
    assert row_keys(x).tolist() == [7214831680253085301]
    torch.testing.assert_close(
        noise(x).uniform().flatten(), torch.tensor([0.84735614, 0.06158025, 0.35454664, 0.71499801])
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_noise_is_the_same_on_cuda():
    x = images()
    assert torch.equal(row_keys(x.cuda()).cpu(), row_keys(x))
    assert torch.equal(noise(x.cuda()).uniform().cpu(), noise(x).uniform())


def test_noise_keeps_the_dtype_and_the_values_of_float32():
    x = images()
    wide = noise(x.double()).uniform()
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), noise(x).uniform())


def test_a_key_sees_every_pixel_and_its_place():
    x = images(1)
    other = x.clone()
    other[0, 2, 7, 7] += 1e-6
    assert len({int(row_keys(v)) for v in (x, other, x.flip(3), x.transpose(2, 3))}) == 4


def test_a_sample_is_bounded_even_and_blind_to_order_and_batches():
    rows = torch.arange(1000.0)[:, None].expand(-1, 3).contiguous()
    kept = []
    for order, size in ((torch.arange(1000), 1000), (torch.arange(999, -1, -1), 7)):
        sample = Sample(100)
        for part in rows[order].split(size):
            sample.see(part)
        kept.append(sample.rows())
    assert torch.equal(*kept)
    assert len(kept[0].unique(dim=0)) == 100
    assert kstest(kept[0][:, 0] / 1000, "uniform").pvalue > 1e-3


# registry


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


def test_asking_for_one_class_imports_one_file():
    run(
        "import sys; from rood.detectors import KNN; "
        "assert 'rood.detectors.vim' not in sys.modules and KNN.__name__ == 'KNN'"
    )


def test_importing_rood_does_not_import_torch():
    run(
        "import sys, rood, rood.registry, rood.config, rood.errors; assert rood.__version__; "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )


def test_rood_has_no_name_that_is_not_there():
    import rood

    with pytest.raises(AttributeError, match="'rood' has no attribute 'wrop'"):
        rood.wrop  # noqa: B018


# settings files


@dataclass(frozen=True)
class Inner:
    eps: float = 0.5


@dataclass(frozen=True)
class Settings:
    name: str
    steps: int = 3
    eps: float = 0.1
    kind: Literal["a", "b"] = "a"
    out: Path | None = None
    levels: tuple[float, ...] = ()
    inner: Inner = Inner()
    many: dict[str, int] | None = None


def load(tmp_path, text):
    path = tmp_path / "s.toml"
    path.write_text(text)
    return config.load(Settings, path)


def test_settings_are_read_with_their_types(tmp_path):
    got = load(tmp_path, 'name="x"\neps=1\nout="d"\nlevels=[1, 0.5]\nkind="b"\n[inner]\neps=2')
    assert got == Settings("x", 3, 1.0, "b", Path("d"), (1.0, 0.5), Inner(2.0))
    assert type(got.eps) is float


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('name="x"\nstps=3', "no setting is called 'stps': did you mean 'steps'"),
        ('name="x"\nzzzzzz=3', "no setting is called 'zzzzzz': known: name, steps"),
        ('name="x"\nsteps="3"', "steps: expected int, got '3'"),
        ('name="x"\nsteps=true', "steps: expected int, got True"),
        ('name="x"\nsteps=3.0', "steps: expected int, got 3.0"),
        ('name="x"\nkind="c"', "kind: expected one of 'a', 'b', got 'c'"),
        ('name="x"\nlevels=["high"]', "levels: expected float, got 'high'"),
        ('name="x"\n[inner]\nepps=2', "inner: no setting is called 'epps': did you mean 'eps'"),
        ("steps=3", "missing 1 required positional argument: 'name'"),
        ("name=", "expected TOML in .*s.toml"),
    ],
)
def test_a_settings_file_is_read_strictly(text, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        load(tmp_path, text)


def test_a_settings_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(
        ConfigError, match=r"expected a settings file at .*nowhere.toml, found none"
    ):
        config.load(Settings, tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("e", "says"), [(ValueError("\none\ntwo"), "one"), (ValueError(" "), "ValueError")]
)
def test_an_error_is_told_in_one_line(e, says):
    assert first_line(e) == says
