"""FORT's walk: its steps, norms and signs, the reading between records, and AUROC against norm."""

import math
from dataclasses import replace

import numpy as np
import pytest
import references as ref
import torch
from refusals import refused

from rood import data, zoo
from rood.analysis.trajectory import Trajectory, auroc_at, auroc_curve, trajectory
from rood.detectors import MSP, Energy, Ensemble, LowResolution, Mahalanobis
from rood.errors import CapabilityError, InputError, NotFittedError
from rood.metrics import auroc, summary
from rood.testing._support import as_in_production, no_trace

SIGN = {"look_in": -1, "look_out": 1}


def brightness(x):
    """Every pixel's gradient is 1."""
    return x.flatten(1).sum(dim=1)


def first_channel(x):
    """All other channels are dead."""
    return x[:, 0].flatten(1).sum(dim=1)


def walk(norms, scores, direction="look_in", left=None):
    """A trajectory with these records, one row an image; both norms alike."""
    norms, scores = (torch.tensor(v, dtype=torch.float64).T.contiguous() for v in (norms, scores))
    left = torch.zeros_like(norms, dtype=torch.bool) if left is None else torch.tensor(left).T
    return Trajectory(direction, 1.0, 0, scores, norms, norms, left)


# the walk


def test_thirty_records_are_twenty_nine_moves(world):
    asked = []

    def score(x):
        asked.append(x.detach().clone())
        return brightness(x)

    t = trajectory(score, world.inside[:2], direction="look_out", keep_images=True)
    assert [tuple(v.shape) for v in (t.scores, t.l2, t.linf, t.left_box)] == [(30, 2)] * 4
    assert t.images.shape == (30, *world.inside[:2].shape)
    assert torch.equal(t.images, torch.stack(asked))  # what is kept is what was scored
    assert torch.equal(t.images[0], world.inside[:2])
    assert t.linf[-1].tolist() == pytest.approx([29 * 3e-4] * 2, rel=1e-12)
    assert (t.norms("l2") is t.l2, t.norms("linf") is t.linf) == (True, True)


@pytest.mark.parametrize("direction", SIGN)
def test_norms_grow_by_one_step_where_the_sign_is_constant(direction, world):
    x = world.inside[:3]
    t = trajectory(brightness, x, direction=direction, keep_images=True)
    times = torch.arange(30, dtype=torch.float64)[:, None].expand(30, 3)
    assert torch.allclose(t.linf, 3e-4 * times, rtol=1e-12, atol=0)
    assert torch.allclose(t.l2, 3e-4 * math.sqrt(192) * times, rtol=1e-12, atol=0)
    assert (t.linf[13] < 1 / 255).all()
    assert (t.linf[14] > 1 / 255).all()
    moved = (t.images - x) / 3e-4  # float32 pixels: to their rounding
    want = (SIGN[direction] * times).float().view(30, 3, 1, 1, 1)
    assert torch.allclose(moved, want.expand_as(moved), atol=1e-3)


def test_the_reported_norms_are_those_of_the_images(double):
    x = double.outside[:4]
    t = trajectory(MSP(double.model), x, direction="look_in", keep_images=True)
    delta = (t.images - x).flatten(2)
    assert torch.allclose(t.l2, delta.norm(dim=2), rtol=1e-9, atol=1e-12)
    assert torch.allclose(t.linf, delta.abs().amax(dim=2), rtol=1e-9, atol=1e-12)


def test_there_and_back_again_is_exactly_nothing():
    """A sign that turns at each step: x, x - step, x, ..., without any rounding left over."""
    x = torch.full((1, 1, 1, 2), 0.3)
    kink = lambda v: (v - 0.29995).abs().flatten(1).sum(dim=1)  # the minimum within one step
    t = trajectory(kink, x, direction="look_in", records=5, keep_images=True)
    assert torch.equal(t.images[2], x)
    assert t.linf[:, 0].tolist() == [0, 3e-4, 0, 3e-4, 0]
    assert t.scores[0] == t.scores[2]


def plain_walk(model, image, sign):
    score = lambda v: [ref.margin(z) for z in ref.array_logits(model)(v)]
    v, scores, l2, linf = image, [], [], []
    for _ in range(5):
        scores += score(v[None])
        d = [abs(p) for p in (v - image).ravel().tolist()]
        l2.append(math.sqrt(sum(p * p for p in d)))
        linf.append(max(d))
        v = v + sign * 3e-4 * np.sign(ref.slopes(score, v))
    return scores, l2, linf


@pytest.mark.parametrize("direction", SIGN)
def test_a_plain_loop_in_float64_gives_the_same(direction, double):
    x = torch.cat([double.inside[:1], double.outside[:1]])[..., 2:5, 2:5].contiguous()
    t = trajectory(MSP(double.model), x, direction=direction, records=5)
    with as_in_production():
        loops = [plain_walk(double.model, image, SIGN[direction]) for image in x.numpy()]
    for got, want in zip((t.scores, t.l2, t.linf), zip(*loops, strict=True), strict=True):
        ref.close(got.T, np.array(want), rtol=1e-6)
    for norm, column in (("l2", 1), ("linf", 2)):
        assert all(run[column] == sorted(run[column]) for run in loops)
        high = min(max(run[column]) for run in loops)
        for r in np.linspace(0, high * (1 - 1e-9), 5):
            want = [np.interp(r, run[column], run[0]) for run in loops]
            ref.close(t.at(norm, float(r)), want, rtol=1e-6)


# the sign of zero


@pytest.mark.parametrize("direction", SIGN)
def test_dead_pixels_stay_in_the_paper_and_drift_in_its_code(direction, world):
    x = world.inside[:2]
    paper = trajectory(first_channel, x, direction=direction)
    official = trajectory(first_channel, x, direction=direction, sign_of_zero=-1)
    live, dead = 64, 128  # pixels
    end = 29 * 3e-4
    assert paper.l2[-1].tolist() == pytest.approx([end * math.sqrt(live)] * 2)
    assert official.l2[-1].tolist() == pytest.approx([end * math.sqrt(live + dead)] * 2)
    assert torch.equal(paper.linf, official.linf)
    assert torch.equal(paper.scores, official.scores)
    assert (paper.sign_of_zero, official.sign_of_zero) == (0, -1)


@pytest.mark.parametrize("direction", SIGN)
@pytest.mark.parametrize("zero", [-1, 0, 1])
def test_a_dead_pixel_moves_as_a_gradient_of_that_sign_would(zero, direction, world):
    x = world.inside[:2].double()
    t = trajectory(
        first_channel, x, direction=direction, records=3, sign_of_zero=zero, keep_images=True
    )
    moved = (t.images - x)[2] / 3e-4
    want = torch.full_like(moved, 2.0 * zero * SIGN[direction])
    want[:, 0] = 2 * SIGN[direction]
    assert torch.allclose(moved, want)


def test_a_gradient_that_is_not_a_number_counts_as_zero():
    x = torch.tensor([[[[0.0, 0.25]]]])
    # sqrt has an infinite slope at 0, which times 0 is no number
    score = lambda v: (0 * v[..., :1].sqrt() + v[..., 1:]).flatten(1).sum(dim=1)
    still, drift = (
        trajectory(score, x, direction="look_in", records=2, sign_of_zero=z, keep_images=True)
        for z in (0, -1)
    )
    assert still.images[1, 0, 0, 0, 0] == 0
    assert drift.images[1, 0, 0, 0, 0] == pytest.approx(3e-4)


# the box


def test_leaving_the_box_is_flagged_and_not_prevented():
    x = torch.tensor([0.5, 0.0, 0.001]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    t = trajectory(brightness, x, direction="look_in", keep_images=True)
    assert not t.left_box[:, 0].any()
    assert t.left_box[:, 1].tolist() == [False] + [True] * 29
    assert t.left_box[:, 2].tolist() == [False] * 4 + [True] * 26  # 0.001 is 3.3 steps
    assert t.images.min() == pytest.approx(-29 * 3e-4)
    up = trajectory(brightness, torch.ones(1, 1, 2, 2), direction="look_out")
    assert up.left_box[:, 0].tolist() == [False] + [True] * 29


def test_a_detector_is_scored_outside_the_box(world):
    x = world.outside[:3].round()
    t = trajectory(MSP(world.model), x, direction="look_in", keep_images=True)
    assert t.left_box[1:].all()
    with torch.no_grad():
        assert torch.equal(t.scores[-1], MSP(world.model).score_images(t.images[-1]))


def test_the_share_that_left_the_box_belongs_to_the_records_read(world):
    t = walk([[0, 1, 2], [0, 1, 2]], [[3, 2, 1]] * 2, left=[[False, True, True], [False] * 3])
    shares = [auroc_at(t, np.zeros(1), "l2", r).left_box for r in (0, 0.5, 1, 2)]
    assert shares == [0, 0.5, 0.5, 0.5]
    late = walk([[0, 1, 2]], [[3, 2, 1]], left=[[False, False, True]])
    assert [auroc_at(late, np.zeros(1), "l2", r).left_box for r in (1, 1.01)] == [0, 1]


# where the score goes


@pytest.mark.parametrize("direction", SIGN)
@pytest.mark.parametrize("kind", [MSP, Energy, Mahalanobis])
def test_the_toy_worlds_scores_move_as_asked(kind, direction, world):
    d = kind(world.model).fit(world.train)
    x = world.outside if direction == "look_in" else world.inside
    t = trajectory(d, x, direction=direction)
    assert torch.equal(t.scores[0], d.score(x))
    gained = SIGN[direction] * (t.scores - t.scores[0])
    assert (gained[1:] > 0).all()
    assert (gained.mean(dim=1).diff() > 0).all()


@pytest.mark.parametrize("direction", SIGN)
def test_the_shipped_networks_scores_move_as_asked(direction):
    d = MSP(zoo.load("digits-ce"))
    part, other = ("near", "inside") if direction == "look_in" else ("inside", "near")
    x, clean = (data.load(f"digits:{p}", limit=24).pixels() for p in (part, other))
    with torch.no_grad():
        known = d.score(clean)
    t = trajectory(d, x, direction=direction)
    gained = SIGN[direction] * (t.scores[-1] - t.scores[0])
    assert (gained > 0).all()
    curve = auroc_curve(t, known, "linf")
    assert curve.one_level.auroc.value < curve.value[0] - 0.005
    assert curve.one_level.left_box == 1  # a digit's ground is 0: every image leaves at once
    assert curve.left_box[0] == 0


def test_an_ensemble_of_one_walks_as_its_member(world):
    x = world.outside[:4]
    member = trajectory(MSP(world.model), x, direction="look_in", records=5)
    ensemble = trajectory(Ensemble([MSP(world.model)]), x, direction="look_in", records=5)
    assert torch.equal(member.scores, ensemble.scores)
    assert torch.equal(member.l2, ensemble.l2)


def test_an_ensemble_is_stepped_on_as_one_score(world):
    members = [MSP(world.model), Mahalanobis(world.model).fit(world.train)]
    d = Ensemble(members)
    t = trajectory(d, world.outside, direction="look_in", keep_images=True)
    with torch.no_grad():
        mean = sum(m.score_images(t.images[-1]) for m in members) / 2
    assert torch.allclose(t.scores[-1], mean)
    assert (t.scores[-1] < t.scores[0]).all()


def test_low_resolution_measures_norms_on_the_small_image(world):
    small = torch.nn.functional.interpolate(world.outside[:4], (32, 32), mode="bilinear")
    d = LowResolution(MSP(world.model), size=(64, 64))
    large = d._resized(small)
    at_small, at_large = (
        trajectory(s, x, direction="look_in", records=4, keep_images=True)
        for s, x in ((d, small), (d.base, large))
    )
    assert torch.allclose(at_small.scores[0], at_large.scores[0])
    assert at_small.images.shape[-2:] == (32, 32)
    assert (at_small.l2 <= at_small.linf * math.sqrt(3 * 32 * 32) * (1 + 1e-12)).all()
    assert (at_small.l2[-1] < 0.6 * at_large.l2[-1]).all()  # half the side, half the length
    measured = (at_small.images - small).flatten(2).norm(dim=2).double()
    assert torch.allclose(at_small.l2, measured, rtol=1e-4)
    assert (at_small.scores[-1] < at_small.scores[0]).all()


# each image on its own


@pytest.mark.parametrize("direction", SIGN)
def test_the_batch_around_an_image_does_not_matter(direction, double):
    d = Mahalanobis(double.model).fit(double.train)
    x = torch.cat([double.inside[:3], double.outside[:3]])
    whole = trajectory(d, x, direction=direction, records=10, keep_images=True)
    order = torch.tensor([4, 1, 5, 0, 3, 2])
    turned = trajectory(d, x[order], direction=direction, records=10, keep_images=True)
    alone = [trajectory(d, v[None], direction=direction, records=10, keep_images=True) for v in x]
    joined = Trajectory.joined(alone)
    for name in ("scores", "l2", "linf", "left_box", "images"):
        want = getattr(whole, name).double()
        assert torch.allclose(getattr(joined, name).double(), want, rtol=1e-9, atol=1e-12)
        assert torch.allclose(getattr(turned, name).double(), want[:, order], rtol=1e-9, atol=1e-12)


def test_joined_trajectories_are_read_as_one():
    a, b = walk([[0, 2]], [[4, 0]]), walk([[0, 1]], [[8, 0]])
    both = Trajectory.joined([a, b])
    assert both.at("l2", 1).tolist() == [2, 0]
    assert both.at("l2", 1.5) is None
    assert a.at("l2", 1.5) is not None
    assert both.images is None


def test_iterates_are_joined_where_every_part_has_them(world):
    x = world.inside[:2]
    kept, bare = (
        trajectory(brightness, x, direction="look_in", records=2, keep_images=k)
        for k in (True, False)
    )
    assert bare.images is None
    assert Trajectory.joined([kept, kept]).images.shape == (2, 4, *x.shape[1:])
    assert Trajectory.joined([kept, bare]).images is None


def test_nothing_is_left_behind(world):
    d = MSP(world.model)
    x = world.outside[:2].clone().requires_grad_()
    with no_trace("trajectory", world.model, x=x), torch.no_grad():
        t = trajectory(d, x, direction="look_in", records=3)
    assert not t.scores.requires_grad
    assert x.grad is None
    with torch.inference_mode():
        again = trajectory(d, world.outside[:2].clone(), direction="look_in", records=3)
    assert torch.equal(t.scores, again.scores)


# between the records


def test_a_known_crossing_is_read_off():
    """Scores fall in a line from 3 to -1 over norms 0 to 4: they cross 0 at norm 3."""
    t = walk([[0, 1, 2, 4]], [[3, 2, 1, -1]])
    assert t.at("l2", 3).tolist() == [0]
    assert t.at("linf", 0.25).tolist() == [2.75]
    curve = auroc_curve(t, np.array([0.0]), "l2", points=5)  # clean in-distribution score: 0
    assert curve.radius.tolist() == [0, 1, 2, 3, 4]
    assert curve.value.tolist() == [1, 1, 1, 0.5, 0]


def test_a_norm_is_undefined_unless_every_image_had_it():
    t = walk([[0, 1, 2], [0, 2, 4]], [[1, 2, 3], [5, 6, 7]])
    assert t.common_range("l2") == (0, 2)
    assert t.at("l2", 2).tolist() == [3, 6]
    assert t.at("l2", math.nextafter(2, 3)) is None
    assert t.left_box_at("l2", 3) is None
    low = walk([[0.5, 1, 2], [0, 2, 4]], [[1, 2, 3], [5, 6, 7]])
    assert low.at("l2", 0.4) is None
    assert low.at("l2", 0.5) is not None
    curve = auroc_curve(t, np.array([4.0]), "l2", points=5)
    assert np.isnan(curve.value).tolist() == [False, False, False, True, True]
    for column in (curve.low, curve.high, curve.left_box):
        assert np.array_equal(np.isnan(column), np.isnan(curve.value))
    assert auroc_at(t, np.array([4.0]), "l2", 3) is None


def test_an_image_that_stays_put_leaves_only_the_start_defined():
    flat = lambda v: v[:, 0, 0, 0] * v[:, 1, 0, 0]  # no slope at 0
    x = torch.stack([torch.zeros(2, 1, 1), torch.full((2, 1, 1), 0.5)])
    t = trajectory(flat, x, direction="look_in")
    assert t.common_range("linf") == (0, 0)
    assert t.at("linf", 0).tolist() == [0, 0.25]
    curve = auroc_curve(t, torch.tensor([0.1]), "linf")
    assert np.isnan(curve.value).tolist() == [False] + [True] * 32
    assert curve.one_level is None


def test_records_are_sorted_by_norm_first():
    t = walk([[0, 3, 1, 2]], [[0, 9, 1, 4]])
    assert [t.at("l2", r).item() for r in (0.5, 1.5, 2.5, 3)] == [0.5, 2.5, 6.5, 9]


@pytest.mark.parametrize("seed", range(5))
def test_reading_between_records_is_numpys_interpolation(seed):
    """Random norms with ties and scores; exactly on a record too."""
    g = np.random.default_rng(seed)
    norms = np.concatenate([np.zeros((6, 1)), g.integers(1, 9, (6, 11))], axis=1) * 3e-4
    norms[:, 5] = 8 * 3e-4
    scores = g.normal(size=norms.shape)
    t = walk(norms, scores)
    for r in [*np.unique(norms), *g.uniform(0, 8 * 3e-4, 20)]:
        order = np.argsort(norms, axis=1, kind="stable")
        pairs = zip(norms, scores, order, strict=True)
        want = [np.interp(r, x[o], y[o]) for x, y, o in pairs]
        ref.close(t.at("l2", float(r)), want, rtol=1e-12)


# AUROC against norm


def test_the_curve_reads_every_point_from_its_own_scores(world):
    d = MSP(world.model)
    t = trajectory(d, world.outside, direction="look_in")
    clean = d.score(world.inside[:50]).detach()
    curve = auroc_curve(t, clean, "linf")
    assert (curve.norm, curve.direction, curve.n_in, curve.n_out) == ("linf", "look_in", 50, 60)
    assert np.allclose(curve.radius, np.linspace(0, 29 * 3e-4, 33), rtol=1e-12)
    assert not np.isnan(curve.value).any()  # the last point is where all images end
    for i in (0, 7, 20, 32):
        attacked = t.at("linf", curve.radius[i])
        assert curve.value[i] == auroc(inside=clean, outside=attacked)
        whole = summary(clean, attacked)["auroc"]
        assert (curve.value[i], curve.low[i], curve.high[i]) == whole
    assert curve.value[0] == auroc(inside=clean, outside=d.score(world.outside))
    inside_bounds = (curve.low <= curve.value) & (curve.value <= curve.high)
    assert inside_bounds.all()


def test_the_value_at_one_level_lies_between_the_records_around_it(world):
    d = MSP(world.model)
    t = trajectory(d, world.outside[:8], direction="look_in")
    share = (1 / 255 - 13 * 3e-4) / 3e-4
    want = (1 - share) * t.scores[13].double() + share * t.scores[14].double()
    assert torch.allclose(t.at("linf", 1 / 255), want, rtol=1e-9)
    clean = d.score(world.inside).detach()
    one = auroc_curve(t, clean, "linf").one_level
    assert one == auroc_at(t, clean, "linf", 1 / 255)
    assert one.auroc.value == auroc(inside=clean, outside=want)


def test_one_level_is_one_of_255():
    t = walk([[0, 1 / 255, 2 / 255]], [[1, 0, -1]])
    assert auroc_curve(t, np.zeros(1), "linf").one_level.auroc.value == 0.5


def test_smaller_steps_end_before_one_level(world):
    t = trajectory(brightness, world.outside[:2], direction="look_in", step=1e-4)
    assert auroc_curve(t, torch.zeros(1), "linf").one_level is None


def test_looking_out_puts_the_attacked_images_inside():
    scores = [[0, 1, 5], [1, 2, 9], [0, 0, 0]]
    t = walk([[0, 1, 2]] * 3, scores, direction="look_out")
    clean = np.array([3.0, 4.0])
    curve = auroc_curve(t, clean, "l2", points=3)
    assert (curve.n_in, curve.n_out) == (3, 2)
    assert curve.value.tolist() == [1, 1, pytest.approx(1 / 3)]


def test_the_other_direction_helps_the_detector(world):
    """The check of direction: pushed the wrong way, AUROC rises."""
    d = MSP(world.model)
    clean = d.score(world.inside).detach()
    hidden, shown = (trajectory(d, world.outside, direction=w) for w in SIGN)
    shown = replace(shown, direction="look_in")
    for norm in ("l2", "linf"):
        down, up = (auroc_curve(t, clean, norm).value for t in (hidden, shown))
        defined = ~(np.isnan(down) | np.isnan(up))
        assert (down[defined] <= up[defined]).all()
        assert down[defined][0] == up[defined][0]


# what is refused


def test_what_cannot_be_walked_gets_one_sentence(world):
    d, x = MSP(world.model), world.inside[:2]
    ways = {"direction": "look_in"}
    cases = [
        (InputError, "look_in or look_out, got 'hide'", d, x, {"direction": "hide"}),
        (InputError, "sign of zero of -1, 0 or 1, got 2", d, x, ways | {"sign_of_zero": 2}),
        (InputError, "at least 2 records, got 1", d, x, ways | {"records": 1}),
        (InputError, "above 1.2e-07, got 0:", d, x, ways | {"step": 0.0}),
        (InputError, "got nan:", d, x, ways | {"step": math.nan}),
        (InputError, "got -0.0003:", d, x, ways | {"step": -3e-4}),
        (InputError, "step of at most 1", d, x, ways | {"step": 3.0}),
        (InputError, "float16 pixels can make, above 0.00098", brightness, x.half(), ways),
        (InputError, "float images of shape (b, c, h, w), got float32", d, x[0], ways),
        (InputError, "float images of shape (b, c, h, w), got uint8", d, x.byte(), ways),
        (InputError, "at least one image, got (0, 3, 8, 8)", d, x[:0], ways),
        (InputError, "expected pixels in [0, 1], got", d, x * 255, ways),
        (InputError, "expected pixels in [0, 1], got", brightness, x - 1, ways),
        (InputError, "expected pixels in [0, 1], got", brightness, x * math.nan, ways),
        (InputError, "float32 images", d, x.double(), ways),
        (InputError, "one score per image, got (2, 1) for 2", lambda v: v[:, 0, 0, :1], x, ways),
        (InputError, "finite scores, got 2 of 2", lambda v: brightness(v) / 0, x, ways),
        (CapabilityError, "cut off from the pixels", lambda v: brightness(v.detach()), x, ways),
        (NotFittedError, "call fit() first", Mahalanobis(world.model), x, ways),
    ]
    with as_in_production():
        for kind, words, score, images, how in cases:
            refused(kind, words, trajectory, score, images, **how)


def test_what_cannot_be_read_gets_one_sentence():
    t = walk([[0, 1]], [[1, 0]])
    clean = np.zeros(1)
    cases = [
        ("norm l2 or linf, got 'l1'", t.at, ("l1", 0.5)),
        ("norm of at least 0, got -1", t.at, ("l2", -1.0)),
        ("norm of at least 0, got nan", t.at, ("l2", math.nan)),
        ("at least 2 points of a curve, got 1", auroc_curve, (t, clean, "l2", 1)),
        ("at least one inside score", auroc_curve, (t, clean[:0], "l2")),
        ("no NaN in inside scores", auroc_at, (t, clean * math.nan, "l2", 0.5)),
        ("at least one trajectory to join", Trajectory.joined, ([],)),
        ("got 2 kinds", Trajectory.joined, ([t, replace(t, direction="look_out")],)),
        ("got 2 kinds", Trajectory.joined, ([t, walk([[0, 1, 2]], [[1, 0, 0]])],)),
    ]
    with as_in_production():
        for words, call, arguments in cases:
            refused(InputError, words, call, *arguments)
