"""The contract checks bite: each planted fault is caught by the check that is there for it."""

import importlib

import mutant_attacks as a
import mutant_detectors as d
import mutant_objectives as o
import pytest

from rood.attacks import PGD, Attack
from rood.detectors import Mahalanobis, OutputDetector
from rood.testing import attack_checks, detector_checks, objective_checks
from rood.testing._support import as_in_production

DETECTORS = [
    (d.FeaturesByData, "gradient_matches_finite_differences", "cut off from the pixels"),
    (d.OneTermDetached, "gradient_matches_finite_differences", "autograd gives"),
    (d.NumpyDetour, "gradient_matches_finite_differences", "cut off from the pixels"),
    (d.Saturated, "does_not_saturate", "the gradient is zero for"),
    (d.SurrogateThatNeedsAutograd, "surrogates_are_differentiable", "does not require grad"),
    (d.OtherValuesWithoutAutograd, "scores_alike_without_autograd", "no_grad changes the score"),
    (d.GradientOfNoKind, "declares_gradient_and_cost", "got 'mostly'"),
    (d.SignTurned, "scores_ood_higher", "is the sign wrong"),
    (d.KeepsAnAxis, "gives_one_finite_score_per_image", "expected 60 scores"),
    (d.ScoresInFloat64, "gives_one_finite_score_per_image", "got torch.float64"),
    (d.NormalisedOverTheBatch, "scores_each_image_on_its_own", "depends on the batch size"),
    (d.NeedsAnImage, "gives_no_scores_for_no_images", "an empty batch gives an error"),
    (d.HiddenNoise, "is_deterministic", "between two calls"),
    (d.HiddenNoise, "leaves_everything_as_it_was", "random state of torch"),
    (d.StateBetweenCalls, "is_deterministic", "between two calls"),
    (d.OtherFormulaFromImages, "scores_alike_among_others", "score_all.. differs"),
    (d.LeftInTrainMode, "leaves_everything_as_it_was", "changed the mode of model"),
    (d.OverwritesItsInput, "leaves_everything_as_it_was", "changed x"),
    (d.GradientsOnTheInput, "leaves_everything_as_it_was", "changed x.requires_grad"),
    (d.UnfreezesTheModel, "leaves_everything_as_it_was", "changed requires_grad of model"),
    (d.SkipsTheBaseChecks, "refuses_what_is_not_an_image", "normalised pixels: expected InputErr"),
    (d.SkipsTheBaseChecks, "complains_before_fit", "expected NotFittedError"),
    (d.RefitAccumulates, "refits_to_the_same_scores", "a second fit.. differs"),
    (d.LearntInAPlainAttribute, "fitted_state_round_trips", "scores differ after"),
    (d.NameNeverSet, "fit_sets_every_declared_name", "has no shift_ yet"),
    (d.FitReturnsNothing, "fit_sets_every_declared_name", "must return the detector itself"),
    (d.OnlyTheLastBatch, "fits_alike_in_any_batches", "depends on batch size or order"),
    (d.NaNForAMissingClass, "survives_a_class_missing_in_fit", "not finite"),
    (d.NoFormula, "docstring_gives_formula_and_source", "state the score"),
    (d.NoSource, "docstring_gives_formula_and_source", "cite the paper"),
    (d.PositionalHyperparameter, "hyperparameters_are_keywords_with_defaults", "make 'scale' key"),
    (d.NotStoredByName, "hyperparameters_are_keywords_with_defaults", "under its own name"),
    (d.CostOfWords, "declares_gradient_and_cost", "forwards, backwards"),
    (d.BoundsTooTight, "bounds_hold", "outside"),
]

ATTACKS = [
    (a.LeavesTheBall, "stays_in_the_threat_model", "moved by"),
    (a.LeavesTheBox, "stays_in_the_threat_model", "left the pixel box"),
    (a.LastIterate, "is_never_worse_than_the_start", "keep the start instead"),
    (a.GlobalRandomness, "is_reproducible", "random state of torch"),
    (a.GradientNormalisedOverTheBatch, "treats_each_image_on_its_own", "an image alone ends"),
    (a.OneNoiseForTheBatch, "treats_each_image_on_its_own", "an image alone ends"),
    (a.IgnoresEps, "reaches_the_optimum_of_a_linear_goal", "of the optimum"),
    (a.ShrinksAsEpsGrows, "gains_more_with_a_larger_budget", "fall as eps grows"),
    (a.TakesNaNForBetter, "never_takes_nan_for_better", "NaN was taken for better"),
    (a.NaNOnAFlatGoal, "survives_a_flat_goal", "not finite"),
    (a.AsksTwice, "keeps_its_query_budget", "asked 83 times of 43"),
    (a.ClimbsWhereAutogradIsOff, "works_without_autograd", "cut off from the pixels"),
    (a.SpoilsItsInput, "leaves_everything_as_it_was", "changed x"),
    (a.TakesAnything, "refuses_what_is_not_an_image", "but it was accepted"),
    (a.NeedsAnImageToAttack, "gives_nothing_for_no_images", "an empty batch gives an error"),
    (a.StaysAtHome, "beats_random_search", "random search"),
]

OBJECTIVES = [
    (o.DetachedLoss, "gives_one_finite_number", "does not depend on the weights"),
    (o.LossPerImage, "gives_one_finite_number", "expected a scalar"),
    (o.HeadOnly, "gradient_reaches_every_parameter", "no gradient reaches"),
    (o.Unlearns, "overfits_one_batch", "accuracy"),
    (o.SearchesInTrainMode, "moves_batch_norm_once", "2 times, expected 1"),
    (o.NoiseFromNowhere, "is_reproducible", "the same generator gave"),
    (o.NoiseFromNowhere, "leaves_everything_as_it_was", "random state of torch"),
    (o.AllBackToTrainMode, "leaves_everything_as_it_was", "changed the mode of"),
    (o.IgnoresItsOutliers, "learns_from_outliers", "are they used"),
    (o.DoesNotAskForOutliers, "asks_for_outliers", "but it was accepted"),
]

FAULTS = [
    pytest.param(mutant, checks, name, says, id=f"{mutant.__name__}-{name}")
    for table, checks in (
        (DETECTORS, detector_checks),
        (ATTACKS, attack_checks),
        (OBJECTIVES, objective_checks),
    )
    for mutant, name, says in table
]


def named(name, found):
    """The check called `name`, among those that the class is given."""
    (check,) = [c for c in found if c.__name__ == f"check_{name}"]
    return check


def original(mutant):
    """What the fault was planted in, or a stand-in where it stands for itself."""
    base = mutant.__mro__[1]
    return {OutputDetector: Mahalanobis, Attack: PGD}.get(base, base)


@pytest.mark.parametrize(("mutant", "checks", "name", "says"), FAULTS)
def test_the_fault_is_caught_and_its_original_is_not(mutant, checks, name, says, world):
    with as_in_production():  # a shape check at run time must not come first
        with pytest.raises(Exception, match=says):
            named(name, checks(mutant))(mutant, world.copy())
        for check in checks(original(mutant)):
            if check.__name__ == f"check_{name}":
                check(original(mutant), world)


@pytest.mark.parametrize(
    ("table", "module"),
    [
        (DETECTORS, "detectors"),
        (ATTACKS, "attacks"),
        (OBJECTIVES, "objectives"),
    ],
)
def test_every_check_has_a_fault_that_it_catches(table, module):
    found = importlib.import_module(f"rood.testing.{module}")
    checks = {n.removeprefix("check_") for n in vars(found) if n.startswith("check_")}
    assert checks - {name for _, name, _ in table} <= {"scores_alike_on_cuda"}
