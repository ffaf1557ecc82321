"""Goals recorded as CUDA graphs."""

import pytest
import torch

from rood.attacks import APGD, PGD
from rood.attacks.base import Goal
from rood.detectors import KNN, MSP, Mahalanobis
from rood.errors import CapabilityError
from rood.goals import graphed, look_in
from rood.models.backbones import create
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.threat import L2, Linf


def test_only_a_fixed_goal_of_images_on_a_gpu_is_recorded():
    x = torch.rand(2, 3, 4, 4)
    with pytest.raises(CapabilityError, match="got images on cpu"):
        graphed(lambda x: x.sum(dim=(1, 2, 3)), x)
    if torch.cuda.is_available():
        with pytest.raises(CapabilityError, match="differs from call to call"):
            graphed(Goal(lambda x: x.sum(dim=(1, 2, 3)), stochastic=True), x.cuda())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("threat", [Linf(4 / 255), L2(0.5)])
@pytest.mark.parametrize("attack", [PGD(steps=5, restarts=2), APGD(steps=8, random_start=False)])
@pytest.mark.parametrize("kind", [MSP, KNN, Mahalanobis])
def test_a_recorded_goal_gives_the_very_same_images(kind, attack, threat):
    model = wrap(create("resnet18", classes=10).cuda(), mean=(0.5,), std=(0.25,))
    x = torch.rand(60, 3, 32, 32, generator=generator(0, "images")).cuda()
    detector = kind(model).fit([(x, torch.arange(60, device="cuda") % 10)])
    plain = look_in(detector)
    recorded = graphed(plain, x)
    for part in (x, x[:7]):  # of its shape, and of another
        want, got = (attack(g, part, threat, generator(0, "a")) for g in (plain, recorded))
        assert torch.equal(want, got)
