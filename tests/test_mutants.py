"""The contract checks bite: each planted fault is caught by the check that is there for it."""

import mutants as m
import pytest

from rood.testing import attack_checks, detector_checks, objective_checks
from rood.testing._support import as_in_production

DETECTORS = [
    (m.FeaturesByData, "gradient_matches_finite_differences", "cut off from the pixels"),
    (m.OneTermDetached, "gradient_matches_finite_differences", "autograd gives"),
    (m.NumpyDetour, "gradient_matches_finite_differences", "cut off from the pixels"),
    (m.Saturated, "does_not_saturate", "the gradient is zero for"),
    (m.SurrogateThatNeedsAutograd, "surrogates_are_differentiable", "does not require grad"),
    (m.OtherValuesWithoutAutograd, "scores_alike_without_autograd", "no_grad changes the score"),
    (m.GradientOfNoKind, "declares_gradient_and_cost", "got 'mostly'"),
    (m.SignTurned, "scores_ood_higher", "is the sign turned round"),
    (m.KeepsAnAxis, "gives_one_finite_score_per_image", "expected 60 scores"),
    (m.ScoresInFloat64, "gives_one_finite_score_per_image", "got torch.float64"),
    (m.NormalisedOverTheBatch, "scores_each_image_on_its_own", "depends on the batch size"),
    (m.NeedsAnImage, "gives_no_scores_for_no_images", "an empty batch gives an error"),
    (m.HiddenNoise, "is_deterministic", "between two calls"),
    (m.HiddenNoise, "leaves_everything_as_it_was", "random state of torch"),
    (m.StateBetweenCalls, "is_deterministic", "between two calls"),
    (m.OtherFormulaFromImages, "scores_alike_among_others", "score_all.. differs"),
    (m.LeftInTrainMode, "leaves_everything_as_it_was", "changed the mode of model"),
    (m.OverwritesItsInput, "leaves_everything_as_it_was", "changed x"),
    (m.GradientsOnTheInput, "leaves_everything_as_it_was", "changed x.requires_grad"),
    (m.UnfreezesTheModel, "leaves_everything_as_it_was", "changed requires_grad of model"),
    (m.SkipsTheBaseChecks, "refuses_what_is_not_an_image", "normalised pixels: expected InputErr"),
    (m.SkipsTheBaseChecks, "complains_before_fit", "expected NotFittedError"),
    (m.RefitAccumulates, "refits_to_the_same_scores", "a second fit.. differs"),
    (m.LearntInAPlainAttribute, "fitted_state_round_trips", "scores differ after"),
    (m.NameNeverSet, "fit_sets_every_declared_name", "has no shift_ yet"),
    (m.FitReturnsNothing, "fit_sets_every_declared_name", "must return the detector itself"),
    (m.OnlyTheLastBatch, "fits_alike_in_any_batches", "depends on batch size or order"),
    (m.NaNForAMissingClass, "survives_a_class_missing_in_fit", "not finite"),
    (m.NoFormula, "docstring_gives_formula_and_source", "state the score"),
    (m.NoSource, "docstring_gives_formula_and_source", "cite the paper"),
    (m.PositionalHyperparameter, "hyperparameters_are_keywords_with_defaults", "make 'scale' key"),
    (m.NotStoredByName, "hyperparameters_are_keywords_with_defaults", "under its own name"),
    (m.CostOfWords, "declares_gradient_and_cost", "forwards, backwards"),
]

ATTACKS = [
    (m.LeavesTheBall, "stays_in_the_threat_model", "moved by"),
    (m.LeavesTheBox, "stays_in_the_threat_model", "left the pixel box"),
    (m.LastIterate, "is_never_worse_than_the_start", "keep the start instead"),
    (m.GlobalRandomness, "is_reproducible", "random state of torch"),
    (m.GradientNormalisedOverTheBatch, "treats_each_image_on_its_own", "an image alone ends"),
    (m.OneNoiseForTheBatch, "treats_each_image_on_its_own", "an image alone ends"),
    (m.IgnoresEps, "reaches_the_optimum_of_a_linear_goal", "of the optimum"),
    (m.ShrinksAsEpsGrows, "gains_more_with_a_larger_budget", "fall as eps grows"),
    (m.TakesNaNForBetter, "never_takes_nan_for_better", "NaN was taken for better"),
    (m.NaNOnAFlatGoal, "survives_a_flat_goal", "not finite"),
    (m.AsksTwice, "keeps_its_query_budget", "asked 84 times of 43"),
    (m.ClimbsWhereAutogradIsOff, "works_without_autograd", "does not require grad"),
    (m.SpoilsItsInput, "leaves_everything_as_it_was", "changed x"),
    (m.TakesAnything, "refuses_what_is_not_an_image", "but it was accepted"),
    (m.NeedsAnImageToAttack, "gives_nothing_for_no_images", "an empty batch gives an error"),
    (m.StaysAtHome, "beats_random_search", "random search"),
]

OBJECTIVES = [
    (m.DetachedLoss, "gives_one_finite_number", "cut off from the weights"),
    (m.LossPerImage, "gives_one_finite_number", "expected a scalar"),
    (m.HeadOnly, "gradient_reaches_every_parameter", "no gradient reaches"),
    (m.Unlearns, "overfits_one_batch", "accuracy"),
    (m.SearchesInTrainMode, "moves_batch_norm_once", "2 times, expected 1"),
    (m.NoiseFromNowhere, "is_reproducible", "the same generator gave"),
    (m.NoiseFromNowhere, "leaves_everything_as_it_was", "random state of torch"),
    (m.AllBackToTrainMode, "leaves_everything_as_it_was", "changed the mode of"),
    (m.IgnoresItsOutliers, "learns_from_outliers", "are they used"),
    (m.DoesNotAskForOutliers, "asks_for_outliers", "but it was accepted"),
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


@pytest.mark.parametrize(("mutant", "checks", "name", "says"), FAULTS)
def test_the_fault_is_caught_and_its_original_is_not(mutant, checks, name, says, world):
    with as_in_production():  # a shape check at run time must not come first
        with pytest.raises(Exception, match=says):
            named(name, checks(mutant))(mutant, world.copy())
        for check in checks(m.parent(mutant)):
            if check.__name__ == f"check_{name}":
                check(m.parent(mutant), world)


@pytest.mark.parametrize(
    ("table", "module"),
    [(DETECTORS, "detectors"), (DETECTORS, "fitting"), (DETECTORS, "gradients")]
    + [(ATTACKS, "attacks"), (OBJECTIVES, "objectives")],
)
def test_every_check_has_a_fault_that_it_catches(table, module):
    import importlib

    found = importlib.import_module(f"rood.testing.{module}")
    checks = {n.removeprefix("check_") for n in vars(found) if n.startswith("check_")}
    assert checks - {name for _, name, _ in table} <= {"scores_alike_on_cuda"}
