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


_ESCAPED = Flag(
    "Left the allowed images",
    "the attacked images left the allowed budget",
    "This share of the attacked images lies outside the stated budget or outside the pixel range "
    "[0, 1]. The number does not belong to the stated attacker.",
    "Project every result before it is scored; read a trajectory as an analysis, not an attack.",
)

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
    "left_the_threat_model": _ESCAPED,
    "left_the_box": _ESCAPED,
    "improved_too_little": Flag(
        "The attack hardly moved the score",
        "the attack hardly moved the score",
        "For this share of the images the score is almost where it started. Either the detector "
        "is truly robust here or the attack did not get going.",
        "Check with random_search and a much larger eps: there, every detector must fall.",
    ),
}


def explain(metric: str) -> Flag:
    """The words for a row's metric; a finding nobody has described keeps its own name."""
    name = metric.removeprefix("flag_")
    if name in FLAGS:
        return FLAGS[name]
    plain = shown(name.replace("_", " ")) or "unnamed finding"
    return Flag(plain, plain, "No explanation is known for this finding.", "See rows.jsonl.", False)
