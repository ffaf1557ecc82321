"""What each finding about an attack means, and what to do about it."""

from typing import NamedTuple

from rood.report.words import shown


class Flag(NamedTuple):
    """The words for one finding."""

    title: str
    because: str  # as a reason inside a sentence
    meaning: str
    advice: str
    share: bool = True  # the evidence is a share of images


FLAGS = {
    "zero_gradient": Flag(
        "No gradient to follow",
        "the gradient is zero for many images",
        "For this share of the images the score does not react to small changes of the pixels, so "
        "a gradient attack cannot move. That hides a weakness; it does not remove it.",
        "Use the detector in its unsaturated form or give it a surrogate to attack, and add an "
        "attack that needs no gradient (random_search).",
    ),
    "untrue_gradient": Flag(
        "The gradient is not the score's",
        "the gradient does not tell how the score moves",
        "On this share of the examined images, a small move along the gradient does not change the "
        "score as the gradient promises: it is that of another function, or masked.",
        "Attack a surrogate, or without gradients; look for rounding, noise or a cut graph.",
    ),
    "tied_scores": Flag(
        "Tied scores",
        "many scores are equal",
        "This share of the images has exactly the score of another image: the score has saturated, "
        "so rankings and gradients say less than they seem to.",
        "Report the score before the squashing (a logit margin, not a probability), in float32.",
    ),
    "random_search_wins": Flag(
        "Random search wins",
        "blind search beat the gradient attack",
        "On this share of the images, trying random changes did better than following the "
        "gradient: the gradient is misleading (masked), and the attacked numbers are too kind.",
        "Give the attack more steps and restarts, or let it climb a surrogate.",
    ),
    "two_calls_differ": Flag(
        "Two calls differ",
        "the same image gets another score each time",
        "Between two calls the score of the same image moves by this much of the spread of all "
        "scores. An attack that keeps its best try then keeps a lucky one.",
        "Turn dropout and other noise off, or declare the detector stochastic, so that it is "
        "attacked in expectation, and report several seeds.",
        share=False,
    ),
    "batch_matters": Flag(
        "The batch matters",
        "an image's score depends on the images around it",
        "In other company, an image's score moves by this much of the spread of all scores. The "
        "numbers then hold for these batches only, and an attacker may choose the company too.",
        "Put the network in eval mode and take batch statistics out of the score.",
        share=False,
    ),
    "transfer_beats_direct": Flag(
        "A stand-in leads further",
        "attacking a stand-in for the score led further than attacking the score",
        "On this share of the images, climbing another function (a surrogate) raised the score "
        "clearly more than climbing the score itself: its own gradient is partly masked. The "
        "number has the better points in it, and rests on how good the stand-in is.",
        "Give the detector more surrogates, or use worst_of, which tries many ways.",
    ),
    "base_only": Flag(
        "The deployed score itself was not climbed",
        "only a stand-in for the deployed score was really attacked",
        "On this share of the images nearly all that was gained was gained on another function, "
        "such as the base of a detector that wraps another. Points made for the base overstate "
        "how robust the whole pipeline is.",
        "Attack the pipeline as deployed: pass gradients straight through steps without one, "
        "smooth them in a surrogate, or add an attack by queries (square, random_search).",
    ),
    "lost_by_rounding": Flag(
        "Lost in 8-bit images",
        "part of its success is lost when images are stored with 8 bits",
        "Rounded to whole levels of 1/255 within the budget, the attacked images give the detector "
        "this much of its AUROC back: the number is that of an attacker who sends float numbers.",
        "Choose an eps of whole levels (n/255), or say that inputs are not 8-bit images.",
        share=False,
    ),
    "more_steps_gain": Flag(
        "More steps still gain",
        "the attack had not finished",
        "Continued for as long again from where it ended, the attack takes away this much more of "
        "the AUROC: it was stopped too early, and the attacked numbers are too kind.",
        "Use more steps and restarts until this no longer moves, or worst_of.",
        share=False,
    ),
    "far_from_zero": Flag(
        "Not beaten without a limit",
        "even an attack without a limit does not win",
        "An attacker without a budget may start at an image of the other side and go on from "
        "there; the AUROC must then go to 0, and this much is left (0.5: nothing moved). The "
        "attack cannot climb this score at any budget.",
        "Look for a flat, clipped or rounded score; give the detector a surrogate, or attack it "
        "without gradients.",
        share=False,
    ),
    "rises_with_eps": Flag(
        "A larger budget helps the detector",
        "the AUROC rises as the attacker gets more room",
        "An attacker with more room can always repeat what he did with less. An AUROC that rises "
        "with eps by this much means that the attack got lost on the way.",
        "Use more steps, more restarts, or steps that shrink as they go (apgd).",
        share=False,
    ),
    "one_side_only": Flag(
        "Only one side was attacked",
        "only one side was attacked",
        "Only outside images were made to look in, or only inside images to look out. An attacker "
        "may do both; the number with both sides attacked can only be lower.",
        "Attack both sides, or say beside the number which side was attacked.",
        share=False,
    ),
    "too_good": Flag(
        "Too good to go unquestioned",
        "so much robustness at this budget is rare",
        "With both sides attacked at a generous budget the AUROC is still this high. Few detectors "
        "manage that; more often the attack was too weak.",
        "Attack again with more steps, restarts and a surrogate before you publish the number.",
        share=False,
    ),
    "left_the_threat_model": Flag(
        "Left the allowed images",
        "the attacked images left the allowed budget",
        "This share of the attacked images lies outside the stated budget or outside the pixel "
        "range [0, 1]. The number does not belong to the stated attacker.",
        "Project every result before it is scored; read a trajectory as an analysis, not an "
        "attack.",
    ),
}


def explain(metric: str) -> Flag:
    """The words for a row's metric; a finding nobody has described keeps its own name."""
    name = metric.removeprefix("flag_")
    if name in FLAGS:
        return FLAGS[name]
    plain = shown(name.replace("_", " ")) or "unnamed finding"
    return Flag(plain, plain, "No explanation is known for this finding.", "See rows.jsonl.", False)
