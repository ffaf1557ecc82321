"""Flows can be undone, have the density they say, and score the image that 8 bits can hold."""

import io
import math
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from toy_generative import drawn, eight_bit, flow_model
from toy_training import new_model, toy

from rood import data, zoo
from rood.detectors import Complexity, Glow
from rood.detectors.complexity import _filtered, png_bits, png_bytes
from rood.errors import CapabilityError, InputError
from rood.models import backbones, checkpoint
from rood.models.generative.glow import GlowNetwork
from rood.models.wrap import wrap
from rood.training.job import start
from rood.training.objectives import Batch
from rood.training.objectives.likelihood import Likelihood
from rood.training.recipe import Recipe
from rood.training.settings import Settings

KINDS = ("affine", "additive")


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def net_of(model):
    return GlowNetwork.of(model)


# invertible


@pytest.mark.parametrize("coupling", KINDS)
@pytest.mark.parametrize(
    ("levels", "size"), [(1, (8, 8)), (2, (8, 12)), (3, (28, 28)), (3, (9, 5))]
)
def test_an_image_comes_back_from_its_latents(world, coupling, levels, size):
    flow = net_of(flow_model(world, coupling=coupling, levels=levels, steps=4))
    x = eight_bit(5, 3, *size)
    seen = flow.look(x)
    assert sum(z[0].numel() for z in seen.z) >= x[0].numel()
    assert (flow.decode(seen.z, size) - x).abs().max() < 1e-5


def test_a_flow_that_shrinks_a_lot_still_comes_back(world):
    flow = net_of(flow_model(world, steps=8))
    with torch.no_grad():
        for name, p in flow.named_parameters():
            if name.endswith("coupling.leave.bias"):
                p[len(p) // 2 :] -= 4  # every coupling shrinks its half to an eighth
    x = eight_bit(64, 3, 8, 8)
    flow.settle(x, source())
    assert (flow.decode(flow.look(x).z, (8, 8)) - x).abs().max() < 1e-6


def test_every_real_image_comes_back_from_the_trained_flow():
    flow = net_of(zoo.load("digits-glow"))
    x = data.load("digits:inside").thin(150).pixels()
    back = [flow.decode(flow.look(part).z, (28, 28)) for part in x.split(500)]
    # with couplings in float32 the worst is off by 1e-5, and of Fashion-MNIST by 3e-4
    assert (torch.cat(back) - x).abs().max() < 1e-6


@pytest.mark.parametrize("coupling", KINDS)
def test_the_density_has_the_determinant_that_autograd_finds(world, coupling):
    flow = net_of(flow_model(world, coupling=coupling)).double()
    v = drawn(1, 3, 4, 4).double() - 0.5

    def latents(flat):
        z, _ = flow.encode(flat.view(1, 3, 4, 4))
        return torch.cat([part.flatten() for part in z])

    jacobian = torch.autograd.functional.jacobian(latents, v.flatten())
    assert jacobian.shape == (48, 48)
    z, log_p = flow.encode(v)
    prior = torch.zeros((), dtype=torch.float64)
    mean, log_sd = flow.last.chunk(2)
    prior += torch.distributions.Normal(mean, log_sd.exp()).log_prob(z[1]).sum()
    # what went on from the first level, found from the last by undoing its steps
    on = z[1]
    for step in reversed(flow.levels[1]):
        on = step.inverse(on)
    on = torch.nn.functional.pixel_shuffle(on, 2)
    mean, log_sd = flow.priors[0](on).chunk(2, dim=1)
    prior += torch.distributions.Normal(mean, log_sd.exp()).log_prob(z[0]).sum()
    assert log_p.item() == pytest.approx((prior + jacobian.slogdet().logabsdet).item(), rel=1e-9)


def test_what_an_image_weighs_is_counted_in_bits(world):
    """A flow that does nothing: a Gaussian around grey, times the size of a bin."""
    flow = net_of(GlowNetwork.beside(world.model, levels=1, steps=1, coupling="additive"))
    x = eight_bit(2, 3, 8, 8).double()
    v = (255 * x + 0.5) / 256 - 0.5
    log_p = -v.square() / 2 - math.log(2 * math.pi) / 2 - math.log(256)
    bits = -log_p.sum(dim=(1, 2, 3)) / (192 * math.log(2))
    torch.testing.assert_close(flow.double().look(x).nll, bits)


def test_padding_is_paid_for_by_the_image(world):
    flow = net_of(GlowNetwork.beside(world.model, levels=1, steps=1, width=4)).double()
    x = eight_bit(1, 3, 7, 7).double()
    around = torch.nn.functional.pad(x, (0, 1, 0, 1))
    torch.testing.assert_close(flow.look(x).nll * 147, flow.look(around).nll * 192)


# before the first step


def test_settling_gives_every_channel_mean_0_and_deviation_1(world):
    flow = net_of(GlowNetwork.beside(world.model, levels=2, steps=3, width=8))
    seen = []
    for steps in flow.levels:
        for step in steps:
            step.norm.register_forward_hook(lambda m, x, y: seen.append(y[0]))
    x = eight_bit(40, 3, 8, 8)
    flow.settle(x, source())
    seen.clear()
    flow.look(x, source())  # the same noise
    assert len(seen) == 6
    for maps in seen:
        assert maps.mean(dim=(0, 2, 3)).abs().max() < 1e-6
        assert (maps.std(dim=(0, 2, 3)) - 1).abs().max() < 1e-6


def test_a_recipe_starts_from_weights_that_its_images_and_seed_alone_decide():
    recipe = Recipe(
        data="toy",
        backbone="glow",
        architecture={"levels": 2, "steps": 2, "width": 4},
        objective=Likelihood(),
        settings=Settings(seed=3),
    )
    torch.rand(3)  # whatever the global generator gives
    first, second = start(recipe, toy()), start(recipe, toy())
    assert first.fingerprint() == second.fingerprint()
    assert start(recipe, toy(seed=5)).fingerprint() != first.fingerprint()
    assert first.mean.item() == 0
    assert first.std.item() == 1
    untold = wrap(backbones.create("glow", classes=3, channels=1, levels=2, steps=2, width=4))
    x = toy().pixels()
    assert Glow(first).score(x).mean() < Glow(untold).score(x).mean() - 1


# training


def test_the_probe_learns_and_the_flow_does_not_hear_of_classes(world):
    x, y = world.train[0]
    found = []
    for labels in (y, y.flip(0)):
        model = flow_model(world).train().requires_grad_()
        Likelihood().loss(model, Batch(x, labels), source()).backward()
        found.append({n: p.grad for n, p in model.net.named_parameters()})
    for name, g in found[0].items():
        assert torch.equal(g, found[1][name]) != name.startswith("head"), name


def test_the_loss_is_the_mean_of_bits_at_random_places_in_the_bins(world):
    x, y = world.train[0]
    model = flow_model(world)
    loss = Likelihood().loss(model, Batch(x, y), source(4))
    u = torch.rand(x.shape, generator=source(4))
    flow = net_of(model)
    _, log_p = flow.encode(((255 * x).round() + u).double() / 256 - 0.5)
    nll = 8 - log_p / (x[0].numel() * math.log(2))
    probe = torch.nn.functional.cross_entropy(model(x).logits, y)  # read at the centres: nearly it
    assert loss.item() == pytest.approx((nll.mean() + probe).item(), abs=0.02)


def test_under_autocast_the_flow_keeps_its_precision(world):
    x, y = world.train[0]
    model = flow_model(world).requires_grad_()
    plain = Likelihood().loss(model, Batch(x, y), source())
    with torch.autocast("cpu", torch.bfloat16):
        loss = Likelihood().loss(model, Batch(x, y), source())
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(plain.item(), abs=0.02)  # the probe's logits are rounded
    for name, p in model.net.named_parameters():
        (g,) = torch.autograd.grad(loss, p, retain_graph=True)
        assert g.isfinite().all(), name


def test_a_network_without_a_density_is_refused_in_a_sentence(world):
    with pytest.raises(CapabilityError, match="'glow', got Sequential: train one with backbone"):
        Likelihood().loss(world.model, Batch(*world.train[0]), source())
    for cls in (Glow, Complexity):
        with pytest.raises(CapabilityError, match="'glow', got SmallCNN"):
            cls(new_model())
        with pytest.raises(InputError, match="expected mean 0 and std 1 around GlowNetwork"):
            cls(wrap(flow_model(world).net, head="head", mean=[0.5] * 3, std=[1.0] * 3))


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"levels": 0}, "levels"), ({"bits": 9}, "bits"), ({"coupling": "spline"}, "coupling")],
)
def test_settings_that_make_no_flow_are_refused(settings, said):
    with pytest.raises(InputError, match=said):
        backbones.create("glow", classes=3, **settings)


@pytest.mark.parametrize("half", [True, False])
def test_a_stored_flow_is_a_flow_and_knows_the_same(world, tmp_path, half):
    model = flow_model(world, steps=4)
    card = {"shape": [3, 8, 8], "classes": ["a", "b", "c"]}
    checkpoint.save(model, tmp_path / "flow.safetensors", card, half=half)
    again = checkpoint.load(tmp_path / "flow.safetensors")
    x = world.inside
    moved = (Glow(again).score(x) - Glow(model).score(x)).abs().max()
    assert moved < (0.01 if half else 1e-9)
    flow = net_of(again)
    assert (flow.decode(flow.look(x).z, (8, 8)) - (255 * x).round() / 255).abs().max() < 1e-5


# scores


def test_every_level_of_8_bits_is_found_again(world):
    flow = net_of(flow_model(world))
    x = (torch.arange(256) / 255).view(1, 1, 16, 16).expand(1, 3, 16, 16)
    for nudged in (x, (x + 1e-6).clamp(max=1), (x - 1e-6).clamp(min=0)):
        assert torch.equal(flow.look(nudged).nll, flow.look(x).nll)
    torch.testing.assert_close(flow.look_between(x).nll, flow.look(x).nll)


def test_fewer_bits_are_bins_of_several_levels(world):
    flow = net_of(flow_model(world, bits=5))
    levels = torch.arange(256).view(1, 1, 16, 16).expand(1, 3, 16, 16)
    floors = 8 * (levels // 8)
    assert torch.equal(flow.look(levels / 255).nll, flow.look(floors / 255).nll)
    assert not torch.equal(
        flow.look(levels / 255).nll, flow.look((floors + 8).clamp(max=255) / 255).nll
    )
    centres = (floors + 3.5) / 255
    torch.testing.assert_close(flow.look_between(centres).nll, flow.look(levels / 255).nll)


@pytest.mark.parametrize("cls", [Glow, Complexity])
@pytest.mark.parametrize("bits", [8, 5])
def test_the_gradient_passes_by_the_rounding(world, cls, bits):
    detector = cls(flow_model(world, bits=bits).double())
    x = eight_bit(4, 3, 8, 8).double().clamp(0.1, 0.9).requires_grad_()
    (through,) = torch.autograd.grad(detector.score(x).sum(), x)
    assert (through != 0).double().mean() > 0.99
    between = detector.surrogates()[0]
    (smooth,) = torch.autograd.grad(between(x).sum(), x)
    if bits == 8:
        at_levels = (255 * x.detach()).round() / 255
        (there,) = torch.autograd.grad(between(at_levels.requires_grad_()).sum(), at_levels)
        torch.testing.assert_close(through, there)
    v = torch.randn(x.shape, generator=source(1), dtype=x.dtype)
    h = 1e-6
    with torch.no_grad():
        measured = (between(x + h * v) - between(x - h * v)) / (2 * h)
    torch.testing.assert_close((smooth * v).sum(dim=(1, 2, 3)), measured, rtol=1e-4, atol=1e-6)


def test_samples_are_images_that_the_generator_alone_decides(world):
    flow = net_of(flow_model(world, shaken=0.01, levels=3))
    first, again = (flow.samples(4, (28, 20), source(2)) for _ in range(2))
    assert first.shape == (4, 3, 28, 20)
    assert torch.equal(first, again)
    assert not torch.equal(first[0], first[1])
    torch.testing.assert_close((255 * first).round() / 255, first, rtol=0, atol=0)
    still = flow.samples(2, (28, 20), source(2), temperature=0)
    assert torch.equal(still[0], still[1])


def test_samples_are_as_likely_as_a_gaussian_is(world):
    """What it makes at temperature 1 has latents of length 1: the way there is the way back."""
    flow = net_of(GlowNetwork.beside(world.model, levels=2, steps=2, width=4))
    with torch.no_grad():
        flow.levels[0][0].norm.log_scale += 3  # so that hardly a sample leaves the range of pixels
    x = flow.samples(64, (8, 8), source(3), temperature=1.0)
    z = torch.cat([part.flatten() for part in flow.look(x).z])
    assert z.std().item() == pytest.approx(1, abs=0.05)


# complexity


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["noise", "ramp", "flat", "walk"])
def test_a_length_is_that_of_a_file_that_can_be_opened(channels, kind):
    shape = (channels, 9, 14)
    rng = np.random.default_rng(4)
    walk = rng.integers(-2, 3, (9, 14)).cumsum(0).cumsum(1) + rng.integers(0, 2, (9, 14))
    ramp = np.add.outer(np.arange(9) * 5, np.arange(14) * 11).astype(np.uint8)
    x = {
        "noise": np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8),
        "ramp": np.broadcast_to(ramp, shape),
        "flat": np.full(shape, 77, np.uint8),
        "walk": np.broadcast_to(walk.astype(np.uint8), shape),
    }[kind]
    rows = _filtered(x[None].transpose(0, 2, 3, 1))[0]
    if kind == "walk":
        assert set(rows[:, 0].tolist()) == {1, 2, 3, 4}

    def chunk(name, data):
        checksum = zlib.crc32(name + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + name + data + checksum

    colour = {1: 0, 3: 2}[channels]
    header = (14).to_bytes(4, "big") + (9).to_bytes(4, "big") + bytes([8, colour, 0, 0, 0])
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    file += chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    opened = np.asarray(Image.open(io.BytesIO(file))).reshape(9, 14, channels)
    np.testing.assert_array_equal(opened.transpose(2, 0, 1), x)
    assert png_bytes(x[None])[0] == len(file)


def test_rows_take_different_filters():
    x = np.random.default_rng(1).integers(0, 20, (60, 1, 12, 12), dtype=np.uint8).cumsum(axis=3)
    assert len(set(_filtered(x.astype(np.uint8).transpose(0, 2, 3, 1))[:, :, 0].flatten())) >= 4


def test_complexity_is_the_likelihood_less_the_file(world):
    model = flow_model(world)
    x = torch.cat([world.inside, world.outside])
    bits = torch.from_numpy(8 * png_bytes((255 * x).round().byte().numpy()) / 192).float()
    torch.testing.assert_close(Complexity(model).score(x), Glow(model).score(x) - bits)
    whole = eight_bit(5, 3, 8, 8)
    assert torch.equal(png_bits((whole + 0.3 / 255).clamp(max=1)), png_bits(whole))


def test_pixels_a_step_out_of_the_box_count_as_black_and_white(world):
    """A detector around this one steps out of the box, where 256 would be taken for 0."""
    x = world.inside[:4].round()
    out = x + 0.004 * (2 * x - 1)
    assert torch.equal(png_bits(out), png_bits(x))


def test_more_channels_than_png_has_are_refused():
    with pytest.raises(InputError, match="1 to 4 channels to write as PNG, got 5"):
        png_bits(drawn(2, 5, 4, 4))


LN2 = math.log(2)


def conv(x, weight, bias):
    """A convolution with as much black around as keeps the size, place by place."""
    k = weight.shape[2] // 2
    padded = np.pad(x, ((0, 0), (k, k), (k, k)))
    out = np.empty((len(weight), *x.shape[1:]))
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            patch = padded[:, i : i + 2 * k + 1, j : j + 2 * k + 1]
            out[:, i, j] = np.einsum("ocij,cij->o", weight, patch) + bias
    return out


def squeeze(x):
    c, h, w = x.shape
    out = np.empty((4 * c, h // 2, w // 2))
    for n in range(c):
        for i in (0, 1):
            for j in (0, 1):
                out[4 * n + 2 * i + j] = x[n, i::2, j::2]
    return out


def normal(z, mean, log_sd):
    return (
        -0.5 * math.log(2 * math.pi) - log_sd - 0.5 * (z - mean) ** 2 * np.exp(-2 * log_sd)
    ).sum()


def one_step(x, p, name, affine):
    """Actnorm, W = P L (U + diag(s)), coupling; and the logarithm of the determinant."""
    places = x.shape[1] * x.shape[2]
    scale, bias = np.exp(p[f"{name}.norm.log_scale"]), p[f"{name}.norm.bias"]
    x = (x + bias[:, None, None]) * scale[:, None, None]
    lower = np.tril(p[f"{name}.mix.lower"], -1) + np.eye(len(scale))
    s = p[f"{name}.mix.sign"] * np.exp(p[f"{name}.mix.log_size"])
    w = p[f"{name}.mix.permutation"] @ lower @ (np.triu(p[f"{name}.mix.upper"], 1) + np.diag(s))
    x = np.einsum("oc,chw->ohw", w, x)
    log_det = places * (np.log(scale).sum() + np.linalg.slogdet(w)[1])
    a, b = np.split(x, 2)
    hidden = a
    for layer in ("enter", "inner"):
        c = f"{name}.coupling.{layer}"
        hidden = np.maximum(conv(hidden, p[f"{c}.weight"], p[f"{c}.bias"]), 0)
    c = f"{name}.coupling.leave"
    out = conv(hidden, p[f"{c}.weight"], p[f"{c}.bias"])
    if not affine:
        return np.concatenate([a, b + out]), log_det
    t, raw = np.split(out, 2)
    sigmoid = 1 / (1 + np.exp(-(raw + 2)))
    shrunk = np.exp(3 * np.tanh(np.log(sigmoid) / 3))
    return np.concatenate([a, (b + t) * shrunk]), log_det + np.log(shrunk).sum()


def bits_per_dimension(p, x, *, levels, steps, affine, bits):
    y = np.floor(np.round(255 * x) / 2 ** (8 - bits))
    v = (y + 0.5) / 2**bits - 0.5
    log_p = 0.0
    for level in range(levels):
        v = squeeze(v)
        for step in range(steps):
            v, log_det = one_step(v, p, f"levels.{level}.{step}", affine)
            log_p += log_det
        if level < levels - 1:
            v, rest = np.split(v, 2)
            prior = f"priors.{level}"
            mean, log_sd = np.split(conv(v, p[f"{prior}.weight"], p[f"{prior}.bias"]), 2)
            log_p += normal(rest, mean, log_sd)
    log_p += normal(v, *np.split(p["last"], 2))
    return -(log_p - x.size * bits * LN2) / (x.size * LN2)


@pytest.mark.parametrize("coupling", ["affine", "additive"])
@pytest.mark.parametrize("bits", [8, 5])
def test_glow_is_the_change_of_variables_written_out(world, coupling, bits):
    shape = {"levels": 2, "steps": 2}
    model = flow_model(world, coupling=coupling, bits=bits, **shape).double()
    p = {n: t.numpy() for n, t in model.net.state_dict().items()}
    x = eight_bit(3, 3, 8, 8).double()
    kind = {"affine": coupling == "affine", "bits": bits}
    want = [bits_per_dimension(p, image, **shape, **kind) for image in x.numpy()]
    np.testing.assert_allclose(Glow(model).score(x).numpy(), want, rtol=1e-7)
    length = 8 * png_bytes((255 * x).round().byte().numpy()) / 192
    np.testing.assert_allclose(Complexity(model).score(x).numpy(), want - length, rtol=1e-7)
