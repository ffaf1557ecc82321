"""Scores by plain loops in float64, written from the papers: slow, and not from our code."""

import math

import numpy as np
import torch

from rood.detectors import Mahalanobis
from rood.models.model import Outputs


def softmax(z):
    e = [math.exp(v - max(z)) for v in z]
    return [v / sum(e) for v in e]


def lse(z):
    return max(z) + math.log(sum(math.exp(v - max(z)) for v in z))


def max_probability(z, temperature=1.0):
    """The paper's confidence of MSP and, at a temperature, of ODIN."""
    return max(softmax([v / temperature for v in z]))


def entropy(z):
    """-sum p log p, as PRO's base score."""
    return -sum(p * math.log(p) for p in softmax(z) if p > 0)


def entropy_log_odds(z):
    """log(h / (1 - h)) plus log log k, for the entropy h as a share of log k, its largest value."""
    return math.log(entropy(z)) - math.log(math.log(len(z)) - entropy(z))


def margin(z):
    """log((1 - max p) / max p): the log-odds of not being the top class."""
    top = max(range(len(z)), key=lambda j: z[j])
    return lse([v for j, v in enumerate(z) if j != top]) - z[top]


def tempered_margin(z, temperature):
    """The margin of z / T, brought back to the units of a logit by a rising affine map."""
    offset = math.log(len(z) - 1)
    return temperature * (margin([v / temperature for v in z]) - offset) + offset


def class_means(f, y):
    return [
        np.mean([v for v, k in zip(f, y, strict=True) if k == c], axis=0) for c in sorted(set(y))
    ]


def pooled_covariance(f, y):
    """(1/N) sum over classes and their samples of (h - mu)(h - mu)'."""
    mu = class_means(f, y)
    total = np.zeros((f.shape[1], f.shape[1]))
    for v, k in zip(f, y, strict=True):
        total += np.outer(v - mu[k], v - mu[k])
    return total / len(f)


def averaged_covariance(f, y):
    """The mean of the classes' covariances, each with 1/(N_k - 1)."""
    return np.mean([np.cov(f[y == c], rowvar=False) for c in sorted(set(y))], axis=0)


def distance(v, mu, sigma):
    return float((v - mu) @ np.linalg.solve(sigma, v - mu))


def mahalanobis(queries, f, y, covariance=pooled_covariance):
    mu, sigma = class_means(f, y), covariance(f, y)
    return [min(distance(q, m, sigma) for m in mu) for q in queries]


def relative_mahalanobis(queries, f, y):
    mean = f.mean(axis=0)
    sigma = sum(np.outer(v - mean, v - mean) for v in f) / len(f)
    near = mahalanobis(queries, f, y)
    return [d - distance(q, mean, sigma) for d, q in zip(near, queries, strict=True)]


def knn(queries, f, k):
    """Squared distance to the k-th nearest of the training features, all of length one."""
    bank = [v / max(np.linalg.norm(v), 1e-12) for v in f]
    unit = [q / max(np.linalg.norm(q), 1e-12) for q in queries]
    return [sorted(sum((u - b) ** 2) for b in bank)[k - 1] for u in unit]


def vim(queries, logits, f, f_logits, weight, bias, dimension):
    """alpha |R'(h - o)| - lse(z), R from the right singular vectors of H - o."""
    o = -np.linalg.pinv(weight) @ bias
    _, _, v = np.linalg.svd(f - o)  # rows of v, singular values descending
    residual = v[dimension:].T
    norms = [np.linalg.norm(residual.T @ (h - o)) for h in f]
    alpha = np.mean([max(z) for z in f_logits]) / np.mean(norms)
    return [
        alpha * np.linalg.norm(residual.T @ (q - o)) - lse(z)
        for q, z in zip(queries, logits, strict=True)
    ]


def slopes(score, x, h=1e-6):
    """The gradient of a score at one image, pixel by pixel, by differences.

    `score` takes images (n, c, h, w) and gives a number for each.
    """
    steps = h * np.eye(x.size).reshape(x.size, *x.shape)
    ahead, behind = (np.array(score(v)) for v in (x + steps, x - steps))
    return ((ahead - behind) / (2 * h)).reshape(x.shape)


def each(score):
    """A score of images from a score of one."""
    return lambda images: [score(image) for image in images]


def odin(logits, x, temperature, eta):
    """Confidence S at x + eta sign(grad log S), as the paper has it."""
    confidence = lambda v: [max_probability(z, temperature) for z in logits(v)]
    direction = np.sign(slopes(lambda v: np.log(confidence(v)), x))
    return confidence((x + eta * direction)[None])[0]


def pro(score, x, eps, steps):
    """The highest of the base score over `steps` sign steps uphill."""
    found = [score(x[None])[0]]
    for _ in range(steps):
        x = x + eps * np.sign(slopes(score, x))
        found.append(score(x[None])[0])
    return max(found)


def fitted_on(d, out, y):
    """A detector fitted on outputs that no model made, with the one inside it."""
    d.start()
    d.see(out, y)
    d.finish()
    for part in d.children():
        if isinstance(part, Mahalanobis):
            fitted_on(part, out, y)
    return d


def close(got, want, rtol=1e-8):
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=rtol, atol=1e-12)


def head_energy(f, weight, bias):
    """-lse(W f + b), one product at a time."""
    z = [
        sum(w * v for w, v in zip(row, f, strict=True)) + b
        for row, b in zip(weight, bias, strict=True)
    ]
    return -lse(z)


def percentile(values, p):
    """Linear between neighbours of the sorted values."""
    v = sorted(values)
    place = (len(v) - 1) * p / 100
    low = math.floor(place)
    return v[low] + (place - low) * (v[min(low + 1, len(v) - 1)] - v[low])


def kept(f, p):
    """Places of the k largest; of equal ones, the first."""
    k = len(f) - round(len(f) * p / 100)
    return sorted(range(len(f)), key=lambda j: (-f[j], j))[:k]


def gen_sum(z, gamma, top):
    """The paper's: the M largest p, sum of p^gamma (1 - p)^gamma."""
    p = sorted(softmax(z), reverse=True)[:top]
    return sum(v**gamma * (1 - v) ** gamma for v in p)


def kl_matching(queries, seen):
    k = len(seen[0])
    typical = []
    for c in range(k):
        mine = [softmax(z) for z in seen if max(range(k), key=lambda j: z[j]) == c]
        typical.append(np.mean(mine, axis=0) if mine else np.eye(k)[c])
    found = []
    for z in queries:
        p = softmax(z)
        found.append(
            min(
                sum(a * (math.log(a) - math.log(max(b, 1e-12))) for a, b in zip(p, d, strict=True))
                for d in typical
            )
        )
    return found


def ash(f, p, treatment):
    """The shaped features of one image."""
    places = kept(f, p)
    before, after = sum(f), sum(f[j] for j in places)
    shaped = [0.0] * len(f)
    for j in places:
        shaped[j] = {"p": f[j], "b": before / len(places), "s": f[j] * math.exp(before / after)}[
            treatment
        ]
    return shaped


def dice(queries, f, weight, bias, p):
    mean = [sum(column) / len(f) for column in f.T]
    contribution = [[w * m for w, m in zip(row, mean, strict=True)] for row in weight]
    bar = percentile([v for row in contribution for v in row], p)
    masked = [
        [w if v > bar else 0.0 for w, v in zip(row, part, strict=True)]
        for row, part in zip(weight, contribution, strict=True)
    ]
    return [head_energy(q, masked, bias) for q in queries]


def she(queries, logits, f, y, z):
    patterns = []
    for c in range(len(z[0])):
        mine = [(v, list(r)) for v, k, r in zip(f, y, z, strict=True) if k == c]
        right = [v for v, r in mine if r.index(max(r)) == c]
        patterns.append(np.mean(right or [v for v, _ in mine], axis=0))
    predicted = [list(r).index(max(r)) for r in logits]
    return [
        -sum(a * b for a, b in zip(q, patterns[k], strict=True))
        for q, k in zip(queries, predicted, strict=True)
    ]


def logits_of(model, x):
    return [row.tolist() for row in model(x).logits]


def random_logits(n, k, spread=3.0):
    return spread * np.random.default_rng(0).normal(size=(n, k))


def array_logits(model):
    """Logits of images in numpy, for references that step in pixels."""
    return lambda images: model(torch.from_numpy(images)).logits.tolist()


def images_and_labels(double):
    return tuple(torch.cat(part) for part in zip(*double.train, strict=True))


def of_features(double, f):
    """Outputs with features of our own making."""
    f = torch.as_tensor(f, dtype=torch.float64)
    return Outputs(double.model.head(f), f)


def head_of(double):
    return double.model.head.weight.numpy(), double.model.head.bias.numpy()


def of_logits(z):
    """Outputs with logits of our own making."""
    z = torch.as_tensor(z, dtype=torch.float64)
    return Outputs(z, z)


def of_training(training):
    """The outputs and labels of the training images, as tensors."""
    f, y, z = training
    return Outputs(torch.from_numpy(z), torch.from_numpy(f)), torch.from_numpy(y)
