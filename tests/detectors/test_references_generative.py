"""The scores of flows and auto-encoders, written out from the papers in float64."""

import math

import numpy as np
import pytest
import torch
from toy_generative import eight_bit, flow_model, trained_coder

from rood.detectors import AutoEncoder, Complexity, Glow
from rood.detectors.complexity import png_bytes

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


@pytest.mark.parametrize("residual", ["l2", "l1", "mahalanobis"])
def test_the_autoencoder_score_is_the_residual_written_out(world, residual):
    model = trained_coder(world)
    detector = AutoEncoder(model, residual=residual).fit(world.train)
    with torch.no_grad():
        left = lambda x: (x - model.net.reconstruct(x)).double().numpy()
        train = left(torch.cat([x for x, _ in world.train]))
        found, r = detector.score(world.inside).numpy(), left(world.inside)
    want = []
    for image in r:
        total = 0.0
        for place, value in np.ndenumerate(image):
            column = train[(slice(None), *place)]
            if residual == "l1":
                total += abs(value)
            elif residual == "l2":
                total += value**2
            else:
                total += (value - column.mean()) ** 2 / max(column.var(), 1 / 255**2)
        want.append(total / image.size)
    np.testing.assert_allclose(found, want, rtol=1e-4)
