"""PRO: Chen et al., *Leveraging Perturbation Robustness to Enhance Out-of-Distribution Detection*.

CVPR 2025, arXiv:2503.18784. Its claims are tested one by one, on networks of our own.
"""

from collections.abc import Iterator, Sequence

from rood.reproduce.experiment import Experiment, Row, compared, ours
from rood.reproduce.pro_adaptive import adaptive
from rood.reproduce.pro_bench import PLAIN
from rood.reproduce.pro_figures import figure1, figure3, figure6, figure7, sweep
from rood.reproduce.pro_imagenet import imagenet
from rood.reproduce.pro_tables import figure4, table1, table2

_SETS = "CIFAR, Tiny-ImageNet, MNIST, SVHN, DTD and scenes packs in ROOD_DATA"
_NETS10 = "zoo networks cifar10-{ce,augmix,adv,aloe}"
_WHY = (
    "`default` on CIFAR-10 is the shipped WRN-40-2 of 20 epochs, on which ODIN helps, or, given "
    "with --model, a ResNet-18 of 100 as OpenOOD's; the others are WRN-40-2 of 20 to 60 epochs, "
    "not RobustBench's LRR; `robust` is a WRN-16-2 trained with "
    "AugMix, against corruptions as LRR is (ADV's where there is none); scenes stand in for "
    "Places365; steps are in pixels and chosen on Tiny-ImageNet's images; ALOE's network was "
    "trained against those and against CIFAR-100's training images, a near set; FPR95 counts OOD "
    "as positive, unlike ALOE's"
)
_BALL = "the paper bounds every step by eps, its algorithm walks K eps far"


def claims1(rows: Sequence[Row]) -> Iterator[Row]:
    """Of Table 1."""
    at = lambda row, net, group: ours(rows, row=row, column=f"{net} / {group}", metric="auroc")
    for pro in ("PRO-MSP", "PRO-GEN"):
        plain = PLAIN[pro]
        for net in ("default", "robust"):
            yield compared(
                "pro/table1",
                f"{pro} is above {plain} on near OOD, {net} network",
                {m: at(m, net, "near") for m in (pro, plain)},
                lambda a, b: a > b,
            )
    for group in ("near", "mean"):
        gain = {
            net: _difference(at("PRO-GEN", net, group), at(PLAIN["PRO-GEN"], net, group))
            for net in ("robust", "default")
        }
        yield compared(
            "pro/table1",
            f"PRO-GEN gains on the robust network, and more than on the default one, {group} OOD",
            gain,
            lambda robust, default: robust > max(default, 0),
        )
    yield compared(
        "pro/table1",
        "ODIN hurts on near OOD: below MSP",
        {m: at(m, "default", "near") for m in ("ODIN", "MSP")},
        lambda odin, msp: odin < msp,
    )


def claims4(rows: Sequence[Row]) -> Iterator[Row]:
    """Of Figure 4: gains by network."""
    at = lambda row, net: ours(rows, row=row, column=f"{net} / near", metric="auroc")
    nets = dict.fromkeys(r.column.partition(" / ")[0] for r in rows if r.kind == "cell")
    for net in (n for n in nets if n != "default"):
        for pro, plain in PLAIN.items():
            if (pro, net) == ("PRO-MSP", "robust"):
                continue  # the paper's own gains: 0.4 there, 1.1 on the default network
            yield compared(
                "pro/figure4",
                f"{pro} gains on the network {net}, and more than on the default one, near OOD",
                {n: _difference(at(pro, n), at(plain, n)) for n in (net, "default")},
                lambda robust, default: robust > max(default, 0),
            )


def claims_sweep(rows: Sequence[Row]) -> Iterator[Row]:
    """The best iterate against the last."""
    for row in dict.fromkeys(r.row for r in rows if r.kind == "cell"):
        values = {
            keep: ours(rows, row=row, column=f"best of all {keep}") for keep in ("best", "last")
        }
        yield compared(
            "pro/sweep",
            f"{row}: the best iterate is at least as good as the last",
            values,
            lambda best, last: best >= last,
        )


def claims6(rows: Sequence[Row]) -> Iterator[Row]:
    """Energy is rougher than MSP."""
    for net in ("default", "robust"):
        values = {
            score: ours(rows, row=f"{score}, {net}", column="inside", metric="roughness")
            for score in ("EBO", "MSP")
        }
        yield compared(
            "pro/figure6",
            f"the landscape of energy is rougher than that of MSP, {net} network",
            values,
            lambda energy, msp: energy > msp,
            noise=0.0,  # neither is a share
        )


def claims7(rows: Sequence[Row]) -> Iterator[Row]:
    """More classes, more shift."""
    values = {
        world: ours(rows, row=f"{world}, default", column="inside")
        for world in ("cifar10", "cifar100")
    }
    yield compared(
        "pro/figure7",
        "the shift of MSP grows with the number of classes",
        values,
        lambda ten, hundred: hundred > ten,
    )


def claims3(rows: Sequence[Row]) -> Iterator[Row]:
    """OOD scores move more than in-distribution ones."""
    for row in dict.fromkeys(r.row for r in rows if r.kind == "cell"):
        values = {side: ours(rows, row=row, column=side) for side in ("near", "inside")}
        yield compared(
            "pro/figure3",
            f"{row}: scores of OOD images shift further than those of in-distribution images",
            values,
            lambda near, inside: near > inside,
        )


def claims_adaptive(rows: Sequence[Row]) -> Iterator[Row]:
    """PRO's gain under attack."""
    for net in dict.fromkeys(r.column for r in rows if r.kind == "cell"):
        values = {
            m: ours(rows, row=m, column=net, attack="standard") for m in ("PRO-ENT", "Entropy")
        }
        yield compared(
            "pro/adaptive",
            f"PRO-ENT stays above Entropy when both are attacked through themselves, {net} network",
            values,
            lambda pro, plain: pro > plain,
        )


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


EXPERIMENTS = (
    Experiment(
        "pro/table1",
        "thirteen detectors on CIFAR-10, on a plain and on a robust network",
        f"{_NETS10}; {_SETS}",
        table1,
        claims1,
        why=f"{_WHY}; {_BALL}",
        on_digits=True,
    ),
    Experiment(
        "pro/table2",
        "fifteen detectors on CIFAR-100, near and far",
        f"zoo networks cifar100-{{ce,adv}}; {_SETS}",
        table2,
        why=f"{_WHY}; on CIFAR-100 the robust network is ADV's; {_BALL}",
    ),
    Experiment(
        "pro/figure1",
        "near OOD on the robust network: AUROC against FPR95",
        f"zoo network cifar10-augmix; {_SETS}",
        figure1,
        why=_WHY,
    ),
    Experiment(
        "pro/figure3",
        "how far MSP shifts in one step on robust networks, inside and near OOD",
        f"{_NETS10}; {_SETS}",
        figure3,
        claims3,
        why=_WHY,
    ),
    Experiment(
        "pro/figure4",
        "four scores with and without PRO on every CIFAR-10 network",
        f"{_NETS10}; {_SETS}",
        figure4,
        claims4,
        why=_WHY,
    ),
    Experiment(
        "pro/figure6",
        "scores around an image along two random directions, and how rough they are",
        f"zoo networks cifar10-{{ce,augmix}}; {_SETS}",
        figure6,
        claims6,
        why=_WHY,
    ),
    Experiment(
        "pro/figure7",
        "how far MSP shifts in one step of 0.001, with ten classes and with a hundred",
        f"zoo networks cifar10-ce, cifar100-ce; {_SETS}",
        figure7,
        claims7,
        why=_WHY,
    ),
    Experiment(
        "pro/sweep",
        "AUROC by step and number of steps, the best iterate beside the last",
        f"{_NETS10}; {_SETS}",
        sweep,
        claims_sweep,
        why=_WHY,
    ),
    Experiment(
        "pro/adaptive",
        "PRO attacked through PRO, beside its base attacked through itself",
        f"{_NETS10}; {_SETS}",
        adaptive,
        claims_adaptive,
        why="the paper attacks nothing: it calls networks robust that were trained on corruptions",
    ),
    Experiment(
        "pro/imagenet",
        "MSP and GEN with and without PRO on any network and images (figure 5)",
        "--model net=SOURCE [--model net-augmix=SOURCE] [--data imagenet=SOURCE] "
        "[--data imagenet/outside=SOURCE]",
        imagenet,
        why="the paper's ImageNet networks and full OOD sets are not to be had offline",
    ),
)
