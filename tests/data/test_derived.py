"""Sources made of other sources, or computed: shares, shuffled patches, balance, textures."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import packed, pictures
from refusals import refused

from rood import data
from rood.corruptions import corrupt
from rood.data.balanced import Distortion, balance, distorted
from rood.data.base import ImageSet
from rood.data.patch_shuffle import shuffled
from rood.data.spliced import spliced
from rood.data.stacked import stacked
from rood.errors import DataError, InputError


def test_shares_that_do_not_overlap_divide_a_set_as_split_does(tmp_path):
    spec = packed(tmp_path / "x.npz", pictures(200))
    whole = data.load(spec)
    fit = data.split(whole, fit=0.6, rest=0.4)
    for name, bounds in (("fit", "0-0.6"), ("rest", "0.6-1")):
        assert torch.equal(data.load(f"share:{bounds}@{spec}").images, fit[name].images)
    other_shape = data.load(f"share:0-0.6@{spec}", shape=(1, 8, 8))
    assert len(other_shape) == len(fit["fit"])
    for bad in ("0.6-0.2", "0-2", "x", "0-nan", "-1-1"):
        refused(InputError, "expected share:FROM-TO@SPEC", data.load, f"share:{bad}@{spec}")
    refused(InputError, "expected share:FROM-TO@SPEC", data.load, "share:0-1")
    refused(DataError, "got none of 200", data.load, f"share:0-0.0000001@{spec}")


def test_corrupted_images_keep_their_labels(tmp_path):
    given = pictures(20, labels=torch.arange(20) % 3)
    spec = packed(tmp_path / "x.npz", given)
    foggy = data.load(f"corrupt:fog:3@{spec}")
    assert (foggy.label_numbers() == data.load(spec).label_numbers()).all()
    torch.testing.assert_close(foggy.pixels(), corrupt(given.pixels(), "fog", 3))
    part = data.load(f"corrupt:fog:3@{spec}", limit=5)
    assert len(part) == 5
    refused(InputError, "expected corrupt:KIND:SEVERITY@SPEC", data.load, f"corrupt:fog@{spec}")
    refused(InputError, "a severity from 1 to 5, got 7", data.load, f"corrupt:fog:7@{spec}")


def test_a_patch_shuffle_moves_whole_patches_of_each_image(tmp_path):
    x = torch.arange(2 * 3 * 8 * 8).view(2, 3, 8, 8)
    moved = shuffled(x, 4, np.array([1, 2], np.uint64))
    for before, after in zip(x, moved, strict=True):
        cut = lambda i: {tuple(p.flatten().tolist()) for r in i.split(2, 1) for p in r.split(2, 2)}
        assert cut(before) == cut(after)
        assert not torch.equal(before, after)


@settings(max_examples=50, deadline=None)
@given(key=st.integers(0, 2**63))
def test_no_image_stays_as_it_was(key):
    x = torch.arange(4).view(1, 1, 2, 2)
    assert not torch.equal(shuffled(x, 2, np.array([key], np.uint64)), x)


def test_a_patch_shuffle_depends_on_seed_and_image_alone(tmp_path):
    given = pictures(20, labels=torch.zeros(20, dtype=torch.long))
    spec = packed(tmp_path / "x.npz", given)
    shuffle = data.load(f"patch_shuffle:4@{spec}")
    assert shuffle.labels is None
    part = packed(tmp_path / "part.npz", given.take(torch.tensor([7])))
    assert torch.equal(data.load(f"patch_shuffle:4@{part}").images[0], shuffle.images[7])
    other = data.load(f"patch_shuffle:4,seed=1@{spec}")
    assert not torch.equal(other.images, shuffle.images)
    for bad in ("x", "1", "4,n=3", "4,seed=x"):
        refused(InputError, "expected patch_shuffle:SIDE", data.load, f"patch_shuffle:{bad}@{spec}")
    refused(InputError, "whose sides 5 divides, got 16x16", data.load, f"patch_shuffle:5@{spec}")


def test_a_spliced_image_is_two_along_a_line():
    first, second = torch.zeros(200, 1, 12, 10), torch.ones(200, 1, 12, 10)
    cut = spliced(first, second, np.random.default_rng(0))
    assert cut.shape == (200, 1, 12, 10)
    assert cut.unique().tolist() == [0, 1]
    assert bool(((cut.mean(dim=(1, 2, 3)) > 0.2) & (cut.mean(dim=(1, 2, 3)) < 0.8)).all())
    assert all(int(cut.diff(dim=d).abs().sum(dim=d).max()) <= 1 for d in (2, 3))
    assert len(cut.flatten(1).unique(dim=0)) > 150


def test_a_stacked_image_is_two_squeezed_ones():
    """Of images with a dark first and a bright second half, both halves of both are there."""
    half = torch.tensor([10.0, 30.0]).repeat_interleave(12)
    first = (half[:, None] + half[None, :]).expand(100, 1, 24, 24).to(torch.uint8)
    found = stacked(first, first + 100, np.random.default_rng(0))
    assert found.dtype == torch.uint8
    assert found.shape == first.shape
    above = (found[:, 0, 0, -1] < 100) & (found[:, 0, -1, 0] >= 100)
    beside = (found[:, 0, 0, -1] >= 100) & (found[:, 0, -1, 0] < 100)
    assert bool((above ^ beside).all())
    assert 50 < int(above.sum()) < 85
    for x, down in zip(found[:, 0].float(), above, strict=True):
        line = x[:, 0] if down else x[0]
        mine = line < 100
        assert 0.3 < mine.float().mean() < 0.7
        assert bool((mine.int().diff() <= 0).all())
        for part in (line[mine], line[~mine] - 100):
            assert part[0] < 25
            assert part[-1] > 35


def test_pairs_are_of_different_classes(tmp_path):
    """Image i is i everywhere, of class i mod 3: what stands where is what it came from."""
    x = torch.arange(30, dtype=torch.uint8).view(30, 1, 1, 1).expand(30, 1, 12, 12)
    given = ImageSet(name="x", images=x.contiguous(), labels=torch.arange(30) % 3)
    spec = packed(tmp_path / "x.npz", given)
    for kind in ("spliced", "stacked"):
        found = data.load(f"{kind}:200@{spec}").images
        for image in found:
            first, second = image.unique().tolist()
            assert first % 3 != second % 3
        assert len({tuple(i.unique().tolist()) for i in found}) > 130


def test_turned_images_are_in_every_position_and_keep_their_labels(tmp_path):
    given = pictures(80, labels=torch.arange(80) % 2)
    spec = packed(tmp_path / "x.npz", given)
    found = data.load(f"turned:0@{spec}")
    assert torch.equal(found.labels, given.labels)
    positions = [
        torch.rot90(given.images.flip(3) if mirrored else given.images, k, (2, 3))
        for k in range(4)
        for mirrored in (False, True)
    ]
    same = torch.stack([(found.images == x).flatten(1).all(dim=1) for x in positions])
    assert bool((same.sum(dim=0) == 1).all())
    assert bool(same.any(dim=1).all())
    other = data.load(f"turned:1@{spec}").images
    assert not torch.equal(other, found.images)
    some = data.load(f"turned:0@{spec}", limit=8).images
    assert all((x == found.images).flatten(1).all(dim=1).any() for x in some)
    for bad in ("x", "-1", "1.5"):
        refused(InputError, "expected turned:SEED", data.load, f"turned:{bad}@{spec}")
    wide = packed(tmp_path / "wide.npz", pictures(4).to_shape((3, 8, 12)))
    refused(InputError, "expected square images", data.load, f"turned:0@{wide}")


@pytest.mark.parametrize("kind", ["spliced", "stacked"])
def test_pairs_are_as_many_as_asked_for(kind, tmp_path):
    labels = torch.arange(20) % 2
    spec = packed(tmp_path / "x.npz", pictures(20, labels=labels))
    found = data.load(f"{kind}:33,seed=1@{spec}")
    assert len(found) == 33
    assert found.labels is None
    assert torch.equal(data.load(f"{kind}:33,seed=1@{spec}").images, found.images)
    assert not torch.equal(data.load(f"{kind}:33,seed=2@{spec}").images, found.images)
    assert len(data.load(f"{kind}:33@{spec}", limit=5)) == 5
    for bad in ("x", "0", "4,n=3", "4,seed=x"):
        refused(InputError, f"expected {kind}:COUNT", data.load, f"{kind}:{bad}@{spec}")
    one = packed(tmp_path / "one.npz", pictures(5, labels=torch.zeros(5, dtype=torch.long)))
    refused(InputError, "at least two classes", data.load, f"{kind}:3@{one}")
    none = packed(tmp_path / "none.npz", pictures(5))
    refused(InputError, "expected labelled images", data.load, f"{kind}:3@{none}")


def test_balancing_keeps_originals_and_fills_up_every_class(tmp_path):
    given = pictures(13, labels=torch.tensor([0] * 9 + [1] * 4), classes=("a", "b"))
    found = data.load(f"balanced:11@{packed(tmp_path / 'x.npz', given, ('a', 'b'))}")
    assert found.labels.bincount().tolist() == [11, 11]
    assert torch.equal(found.images[:13], given.images)
    assert found.notes == ("9 distorted copies added, so that every class has 11 images",)
    assert torch.equal(balance(given, 11).images, found.images)
    assert balance(given, 3).images.shape == given.images.shape
    # seven copies of four originals: the second of one is bent otherwise than the first
    assert len({tuple(x.flatten().tolist()) for x in found.images}) == 22
    plain = packed(tmp_path / "y.npz", pictures(2))
    refused(InputError, "expected labelled", data.load, f"balanced:8@{plain}")
    refused(InputError, "expected balanced:COUNT@SPEC", data.load, "balanced:0@npz:x.npz")


def bend(turn=0.0, shift=(0.0, 0.0), corners=0.0):
    return Distortion(turn, np.array(shift), np.broadcast_to(np.array(corners), (4, 2)).copy())


def test_a_bend_does_what_it_says():
    x = pictures(1, seed=5).images
    x = (x.float() + torch.arange(16)).clamp(0, 255).to(torch.uint8)
    assert torch.equal(distorted(x, [bend()]), x)
    moved = distorted(x, [bend(shift=(2 / 16, 1 / 16))])
    assert torch.equal(moved[..., 1:, 2:], x[..., :-1, :-2])
    assert not moved[..., 0, :].any()
    assert not moved[..., :2].any()
    turned = distorted(x, [bend(turn=np.pi / 2)])
    assert any(torch.equal(turned, torch.rot90(x, k, (2, 3))) for k in (1, 3))
    # all corners look 2 pixels to the right: the picture moves left, and its edge is repeated
    askew = distorted(x, [bend(corners=(2 / 16, 0))])
    assert (askew[..., :-2].int() - x[..., 2:].int()).abs().max() <= 1
    assert torch.equal(askew[..., -1], askew[..., -2])


def test_the_corners_of_a_skewed_image_come_from_where_they_look():
    from rood.data.balanced import _homographies

    jitter = np.random.default_rng(0).uniform(-0.2, 0.2, (3, 4, 2))
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64)
    for maps, moved in zip(_homographies(jitter), corners + jitter, strict=True):
        seen = np.c_[corners, np.ones(4)] @ maps.T
        np.testing.assert_allclose(seen[:, :2] / seen[:, 2:], moved, atol=1e-12)


@pytest.mark.parametrize("kind", ["fractals", "colour_noise", "dead_leaves"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 7, 9)])
def test_computed_outliers_follow_from_the_seed_and_differ(kind, shape):
    images = data.load(f"procedural:{kind},n=70", shape=shape)
    again = data.load(f"procedural:{kind},n=3", shape=shape)
    other = data.load(f"procedural:{kind},n=70,seed=1", shape=shape)
    assert torch.equal(images.images[:3], again.images)
    assert not torch.equal(images.images, other.images)
    assert len(set(images.hashes().tolist())) == 70
    assert (images.pixels().flatten(1).std(dim=1) > 0.01).float().mean() > 0.9


def test_colour_noise_has_more_of_low_frequencies():
    x = data.load("procedural:colour_noise,n=200").pixels().mean(dim=1)
    power = torch.fft.rfft2(x - x.mean(dim=(1, 2), keepdim=True)).abs().square().mean(dim=0)
    assert power[1, 1] > 10 * power[8, 8] > power[8, 8]


def test_paths_may_name_variables(tmp_path, monkeypatch):
    packed(tmp_path / "x.npz", pictures(2))
    monkeypatch.setenv("SOMEWHERE", str(tmp_path))
    assert len(data.load("npz:$SOMEWHERE/x.npz")) == 2
    assert len(data.load("npz:${SOMEWHERE}/x.npz")) == 2
    (tmp_path / "$NOTHING").mkdir()
    (tmp_path / "x.npz").rename(tmp_path / "$NOTHING" / "x.npz")
    assert len(data.load(f"npz:{tmp_path}/$NOTHING/x.npz")) == 2
    words = "expected the environment variable NOWHERE to be set, as '$NOWHERE/x.npz' needs it"
    refused(DataError, words, data.load, "npz:$NOWHERE/x.npz")
    refused(DataError, "variable NOWHERE to be set", data.load, "folder:$NOWHERE/x")


def test_joined_sources_are_one_after_the_other(tmp_path):
    a, b = made(tmp_path / "a.npz", 3), made(tmp_path / "b.npz", 5)
    whole = data.load(f"joined:{a},{b}")
    first, second = data.load(a), data.load(b)
    assert torch.equal(whole.images, torch.cat([first.images, second.images]))
    assert torch.equal(whole.labels, torch.cat([first.labels, second.labels]))
    assert whole.classes == first.classes
    assert len(data.load(f"joined:{a},{b}", limit=4)) == 4
    refused(InputError, "at least two sources", data.load, f"joined:{a}")
    other = made(tmp_path / "c.npz", 2, classes=("x", "y", "z"))
    refused(InputError, "sources of the same classes", data.load, f"joined:{a},{other}")


def made(path, n, classes=("cat", "dog")):
    """Images in an archive, with labels."""
    source = np.random.default_rng(n)
    images = source.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(n) % 2, classes=np.array(classes))
    return f"npz:{path}"
