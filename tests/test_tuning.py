"""Choosing options: the order of the grid, ties, the two rules, the cache."""

import inspect
import itertools
import json

import pytest
import torch
from torch import nn

from rood.data.base import ImageSet
from rood.detectors import GEN, KNN, MSP, ODIN, Detector, Energy, OutputDetector, ReAct, registry
from rood.errors import InputError
from rood.metrics import auroc, fpr_at_tpr_in
from rood.models.wrap import wrap
from rood.tuning import GRIDS, noise, trials, tune


@pytest.fixture
def sets(world):
    x, y = (torch.cat(part) for part in zip(*world.train, strict=True))
    return {
        "train": ImageSet("train", x, y),
        "inside": ImageSet("inside", world.inside),
        "outside": ImageSet("outside", world.outside),
    }


class Known(OutputDetector):
    """Scores whose quality its options decide: the sign, and noise of the options' making."""

    fits = 0
    made: list = []  # noqa: RUF012
    seen_: torch.Tensor

    def __init__(self, model, *, a=0, b=0, c=0):
        super().__init__(model)
        self.a, self.b, self.c = a, b, c
        Known.made.append((a, b, c))

    def start(self):
        Known.fits += 1

    def finish(self):
        self.seen_ = torch.ones(())

    def score_outputs(self, out):
        return (self.a * 10 + self.b) * Energy(self.model).score_outputs(out)


@pytest.fixture(autouse=True)
def fresh():
    Known.fits, Known.made = 0, []


def values(model, sets, make, **options):
    """AUROC and the share missed, of a detector fitted by hand."""
    d = make(model, **options).fit(sets["train"].batches(64))
    s = [d.score(sets[name].pixels()) for name in ("inside", "outside")]
    return auroc(inside=s[0], outside=s[1]), fpr_at_tpr_in(inside=s[0], outside=s[1])


# order, ties, rules


def test_the_first_listed_option_varies_fastest(world, sets):
    grid = {"a": (1, 2, 3), "b": (0, 1), "c": (5, 6)}
    found = [t.options for t in trials(Known, world.model, grid, **sets)]
    want = [{"a": a, "b": b, "c": c} for c, b, a in itertools.product((5, 6), (0, 1), (1, 2, 3))]
    assert found == want
    assert [list(o) for o in found] == [["a", "b", "c"]] * 12


def test_the_first_best_is_kept_on_ties(world, sets):
    grid = {"a": (-1, 2, 3, 1), "c": (7, 8)}  # every a > 0 ranks alike
    _, options = tune(Known, world.model, grid, **sets)
    assert options == {"a": 2, "c": 7}


def test_a_trial_counts_itself_and_holds_the_best_so_far(world, sets):
    found = list(trials(Known, world.model, {"a": (-1, 0, 1, -2, 2)}, **sets))
    assert [(t.done, t.total) for t in found] == [(i, 5) for i in range(1, 6)]
    assert [t.best.options["a"] for t in found] == [-1, 0, 1, 1, 1]
    assert [t.value > f.value for f, t in itertools.pairwise(found)] == [True, True, False, True]
    assert found[1].value == 0.5  # all scores tie


def test_openoods_rule_takes_the_largest_auroc(world, sets):
    grid = {"temperature": (0.05, 1.0, 50.0), "eta": (0.0, 0.2)}
    found = list(trials(ODIN, world.model, grid, **sets))
    for t in found:
        assert t.value == pytest.approx(values(world.model, sets, ODIN, **t.options)[0], abs=1e-12)
    _, options = tune(ODIN, world.model, grid, **sets)
    best = max(t.value for t in found)
    assert options == next(t.options for t in found if t.value == best)


def test_aloes_rule_takes_the_smallest_share_missed(world, sets):
    grid = {"a": (-1, 0, 1)}
    found = list(trials(Known, world.model, grid, rule="aloe", **sets))
    for t in found:
        assert t.value == pytest.approx(values(world.model, sets, Known, **t.options)[1], abs=1e-12)
    _, options = tune(Known, world.model, grid, rule="aloe", **sets)
    assert options == {"a": 1}
    _, options = tune(Known, world.model, {"a": (2, 1)}, rule="aloe", **sets)
    assert options == {"a": 2}


class ByBrightness(Detector):
    """Of images brighter the further out they are, one option misses few, the other ranks well."""

    def __init__(self, model, *, like):
        super().__init__(model)
        self.like = like

    def score_images(self, x):
        v = x.mean(dim=(1, 2, 3))
        if self.like == "misses few":  # a tenth of OOD below all: AUROC 0.9
            return torch.where((v > 0.5) & (v < 0.64), -1, v)
        return torch.where((v < 0.5) & (v > 0.376), 0.8, v)  # 6 % of ID inside OOD: AUROC 0.97


@pytest.mark.parametrize(("rule", "want"), [("openood", "ranks well"), ("aloe", "misses few")])
def test_the_two_rules_may_disagree(rule, want, world):
    shades = lambda a, b: torch.linspace(a, b, 101).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
    sets = {"inside": ImageSet("i", shades(0.0, 0.4)), "outside": ImageSet("o", shades(0.6, 1.0))}
    grid = {"like": ("misses few", "ranks well")}
    d, options = tune(ByBrightness, world.model, grid, rule=rule, train=sets["inside"], **sets)
    assert options == {"like": want}
    assert d.like == want


def test_what_is_returned_is_fitted_with_the_best_options(world, sets):
    d, options = tune(KNN, world.model, {"k": (1, 50)}, **sets)
    want = KNN(world.model, **options).fit(sets["train"].batches(256))
    assert torch.equal(d.score(world.inside), want.score(world.inside))
    assert d.k == options["k"]


def test_validation_noise_is_the_recipe(world):
    images = noise((3, 8, 8), n=50, seed=3)
    x = images.pixels()
    assert len(x) == 100
    assert 0.45 < x[:50].mean() < 0.55
    assert x[:50].std() == pytest.approx(12**-0.5, abs=0.02)
    share = ((x[50:] == 0) | (x[50:] == 1)).float().mean()
    assert share == pytest.approx(0.617, abs=0.03)  # of a normal beyond half a deviation
    assert torch.equal(noise((3, 8, 8), n=50, seed=3).pixels(), x)
    assert not torch.equal(noise((3, 8, 8), n=50, seed=4).pixels(), x)


# the cache


def test_the_cache_is_used_and_gives_the_same_choice(world, sets, tmp_path):
    cache = tmp_path / "tuned.json"
    grid = {"a": (-1, 1), "c": (1, 2)}
    first = list(trials(Known, world.model, grid, cache=cache, **sets))
    assert Known.fits == 4
    again = list(trials(Known, world.model, grid, cache=cache, **sets))
    assert Known.fits == 4
    assert [(t.options, t.value) for t in first] == [(t.options, t.value) for t in again]
    tune(Known, world.model, grid | {"c": (1, 2, 3)}, cache=cache, **sets)
    assert Known.fits == 4 + 2 + 1  # two new points, and the detector that is returned
    assert [p.name for p in tmp_path.iterdir()] == ["tuned.json"]


def test_the_cache_knows_network_images_rule_and_batches_apart(world, sets, tmp_path):
    cache = tmp_path / "tuned.json"
    run = lambda model=world.model, **changed: list(
        trials(Known, model, {"a": (1,)}, cache=cache, **sets | changed)
    )
    run()
    run()
    assert Known.fits == 1
    other = world.copy().model
    other.net[0].weight.data[0, 0, 0, 0] += 1
    run(other)
    assert Known.fits == 2
    for i, name in enumerate(("train", "inside", "outside")):
        half = sets[name].take(torch.arange(30))
        run(**{name: half})
        assert Known.fits == 3 + i
    run(rule="aloe")
    assert Known.fits == 6
    run()
    assert Known.fits == 6


def test_the_cache_tells_detectors_apart_that_functions_without_a_name_make(world, sets, tmp_path):
    cache = tmp_path / "tuned.json"
    grid = {"percentile": (50.0,)}
    makers = [lambda m, **o: ReAct(m, **o), lambda m, **o: registry.get("ash_b")(m, **o)]
    found = [next(trials(make, world.model, grid, cache=cache, **sets)).value for make in makers]
    alone = [next(trials(make, world.model, grid, **sets)).value for make in makers]
    assert found == alone


def test_a_damaged_cache_is_refused_in_one_sentence(world, sets, tmp_path):
    cache = tmp_path / "tuned.json"
    cache.write_text("{")
    with pytest.raises(InputError, match=r"tuned\.json"):
        next(trials(MSP, world.model, {"temperature": (1.0,)}, cache=cache, **sets))


def test_the_cache_is_plain_json(world, sets, tmp_path):
    cache = tmp_path / "tuned.json"
    list(trials(GEN, world.model, {"gamma": (0.1, 0.5)}, cache=cache, **sets))
    (points,) = json.loads(cache.read_text()).values()
    assert len(points) == 2


# refusals and grids


@pytest.mark.parametrize("grid", [{}, {"gamma": ()}, {"gamma": (0.1,), "top": ()}])
def test_an_empty_grid_is_refused(grid, world, sets):
    with pytest.raises(InputError, match="grid"):
        tune(GEN, world.model, grid, **sets)


def test_an_unknown_rule_is_refused(world, sets):
    plain = inspect.unwrap(trials)  # past the checks of types, which users do not have
    with pytest.raises(InputError, match="openood, aloe, got 'fpr'"):
        next(plain(GEN, world.model, {"gamma": (0.1,)}, rule="fpr", **sets))


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_names_a_real_detector_and_its_options(name):
    model = wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 1200), nn.Linear(1200, 3)))
    paper, detector = name.split("/")
    assert paper in {"openood", "liang", "aloe", "lee", "pro"}
    make = registry.get(detector)
    known = inspect.signature(make).parameters
    assert set(GRIDS[name]) <= set(known)
    for option, values in GRIDS[name].items():
        assert len(set(values)) == len(values)
        for value in values:
            make(model, **{option: value})


def test_the_grids_are_those_of_the_papers():
    assert len(GRIDS["aloe/layered_mahalanobis"]["eta"]) == 21
    assert max(GRIDS["aloe/layered_mahalanobis"]["eta"]) == 0.004
    assert GRIDS["liang/odin"]["eta"] == (0.0, 0.001, 0.002, 0.004)
    assert 1.0 not in GRIDS["pro/pro_msp_t"]["temperature"]
    assert GRIDS["openood/knn"]["k"] == (50, 100, 200, 500, 1000)
