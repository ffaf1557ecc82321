"""The confidence-calibrated classifier: its GAN, its loss, and that only the right parts learn."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from toy_training import drawn, toy

from rood.errors import InputError
from rood.models import backbones
from rood.models.generative.dcgan import Critic, Painter, doublings
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.training.loop import train
from rood.training.objectives import Batch
from rood.training.objectives.calibrated import (
    BETAS,
    Adam,
    Adversaries,
    Calibrated,
    uncertainty,
)
from rood.training.settings import Settings

NARROW = Calibrated(width=4)


def vgg() -> Model:
    return wrap(backbones.create("vgg13", classes=3, channels=1, width=4))


def batch(n: int = 12) -> Batch:
    images = toy(n)
    assert images.labels is not None
    return Batch(images.pixels(), images.labels)


def begun(objective: Calibrated = NARROW) -> tuple[Model, Adversaries]:
    model = vgg().train().requires_grad_()
    return model, objective.begin(model, batch(), drawn(0))


def weights(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()]).clone()


# the GAN


@pytest.mark.parametrize(("cls", "parameters"), [(Painter, 3_448_576), (Critic, 2_637_312)])
def test_parameters_are_as_many_as_published(cls: type[nn.Module], parameters: int) -> None:
    with torch.device("meta"):
        net = cls((3, 32, 32))
    assert sum(p.numel() for p in net.parameters()) == parameters


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 5, 9), (2, 4, 4)])
def test_images_of_any_size_are_painted_and_judged(shape: tuple[int, int, int]) -> None:
    gan = Adversaries(shape, 4, 2e-4, drawn(0))
    x = gan.painted(3, drawn(1))
    assert x.shape == (3, *shape)
    assert x.min() >= 0
    assert x.max() <= 1
    assert gan.critic(x).shape == (3,)
    assert 4 * 2 ** doublings(shape) >= max(shape[1:])


def test_the_first_weights_depend_on_the_generator_alone() -> None:
    first, again, other = (Adversaries((1, 8, 8), 4, 2e-4, drawn(s)) for s in (0, 0, 1))
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(other))
    kernels = torch.cat([m.weight.flatten() for m in first.modules() if "Conv" in str(type(m))])
    assert kernels.std().item() == pytest.approx(0.02, rel=0.05)


def test_adam_takes_the_steps_of_torch() -> None:
    w = torch.randn(5, generator=drawn(0))
    ours, theirs = (w.clone().requires_grad_() for _ in range(2))
    adam, reference = Adam([ours], 0.01), torch.optim.Adam([theirs], 0.01, BETAS)
    for _ in range(6):
        adam.step([ours], (ours**3).sum())
        reference.zero_grad()
        (theirs**3).sum().backward()
        reference.step()
    torch.testing.assert_close(ours, theirs)
    assert ours.grad is None


def test_the_critic_learns_to_tell() -> None:
    _, gan = begun(Calibrated(width=4, rate=0.02))
    x, source = batch(30).x, drawn(1)
    before = weights(gan.painter)
    for _ in range(60):
        gan.learn_to_tell(x, source)
    assert torch.equal(weights(gan.painter), before)
    with torch.no_grad():
        real, fake = gan.critic(x), gan.critic(gan.painted(30, source))
    assert real.mean() > fake.mean() + 1


def test_the_painter_lowers_the_cost() -> None:
    _, gan = begun(Calibrated(width=4, rate=0.01))
    source = drawn(1)
    critic, bright = weights(gan.critic), gan.painted(20, source).mean().item()
    for _ in range(30):
        gan.learn_to_paint(20, source, lambda x: 100 * x.mean())
    dark = gan.painted(20, source).mean().item()
    assert dark < bright - 0.1
    assert torch.equal(weights(gan.critic), critic)


# the loss


def test_uncertainty_is_the_divergence_from_the_uniform() -> None:
    z = torch.tensor([[0.0, 0.0, 0.0], [3.0, -1.0, 0.5]])
    p = z.double().softmax(dim=1)
    by_hand = (math.log(1 / 3) - p.log()).mean(dim=1)
    torch.testing.assert_close(uncertainty(z).double(), by_hand, rtol=1e-5, atol=1e-6)


def test_the_loss_is_the_formula_on_fresh_images() -> None:
    """A painter that learns next to nothing paints again what it painted for the loss."""
    objective = Calibrated(width=4, weight=0.7, rate=1e-12)
    model, gan = begun(objective)
    model.eval()
    given = batch()
    loss = objective.loss(model, given._replace(memory=gan), drawn(3))
    seed = int(torch.randint(2**62, (), generator=drawn(3)).item())
    source = drawn(seed)
    _, _, fresh = (gan.painted(12, source) for _ in range(3))
    z, z_fresh = model(given.x).logits, model(fresh).logits
    expected = cross_entropy(z, given.y) + 0.7 * uncertainty(z_fresh).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_one_loss_trains_the_gan_and_leaves_the_classifier_to_the_loop() -> None:
    model, gan = begun()
    before = [weights(net) for net in (gan.painter, gan.critic, model)]
    NARROW.loss(model, batch()._replace(memory=gan), drawn(0)).backward()
    after = [weights(net) for net in (gan.painter, gan.critic, model)]
    changed = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert changed == [True, True, False]
    assert all(p.grad is not None for p in model.parameters())
    assert all(p.grad is None for p in gan.parameters())
    assert all(m.training for m in model.modules())


def test_the_classifier_is_trained_and_unsure_of_what_is_painted() -> None:
    settings = Settings(epochs=12, batch_size=30, optimizer="adam", lr=3e-3, weight_decay=0.0)
    net = backbones.create("small_cnn", classes=3, channels=1, width=4, features=8)
    model = wrap(net)
    records = list(train(model, Calibrated(width=4, weight=1.0), toy(), settings=settings))
    assert records[-1].loss < 0.6 * records[0].loss
    images = toy(30, 1)
    right = (model(images.pixels()).logits.argmax(dim=1) == images.labels).float().mean()
    assert right > 0.9


def test_dropout_draws_the_same_after_a_stop(tmp_path: Path) -> None:
    settings = Settings(epochs=2, batch_size=15, lr=0.05)
    whole, stopped = vgg(), vgg()
    list(train(whole, NARROW, toy(30), settings=settings))
    first = train(stopped, NARROW, toy(30), settings=settings, out=tmp_path)
    next(first)
    first.close()
    torch.rand(3)  # whatever else draws meanwhile
    stopped = vgg()
    state = torch.get_rng_state()
    list(train(stopped, NARROW, toy(30), settings=settings, out=tmp_path))
    assert whole.fingerprint() == stopped.fingerprint()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("values", "match"),
    [({"weight": -0.1}, "weight >= 0"), ({"rate": 0.0}, "rate > 0"), ({"width": 0}, "width >= 1")],
)
def test_settings_that_make_no_objective_are_refused(values: dict[str, float], match: str) -> None:
    with pytest.raises(InputError, match=match):
        Calibrated(**values)
