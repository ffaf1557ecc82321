"""What networks, detectors and attacks do on a few fixed images: are stored results theirs?

Names, options and weights do not say what code computes: a formula under the same name, a layer
without weights or a plain attribute may have changed since a results folder was begun. So logits,
scores and gradients on `probe_images`, and a checksum of the user's own classes, are stored beside
the results and compared when a run goes on. Values are the same within

    |new - old| <= TOLERANCE (|old - median| + median |old - median|) + ROUNDING |old|,

whatever the scale of a score, so that another device or number of threads may go on; infinities and
NaN must be equal. The random number generators are in a fixed state meanwhile. Scores that are
random even so, or on another device, are compared by their mean over `DRAWS` calls.
"""

import inspect
import random
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rood.attacks.base import Attack, value_and_gradient
from rood.data.base import ImageSet, spaced
from rood.detectors import score_all
from rood.detectors.base import Detector, Gradient
from rood.errors import RoodError, RoodWarning
from rood.evaluation.batching import in_parts, out_of_memory
from rood.evaluation.manifest import versions
from rood.evaluation.rows import Arrays
from rood.evaluation.store import Store
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images
from rood.threat import Threat

REAL = 8  # ID images among the probe images
MADE = 4  # of these with noise; and as many of noise alone
TOLERANCE = 3e-4  # of the spread
ROUNDING = 2e-6  # of a value: float32
DRAWS = 16  # calls of a random score
STANDARD_ERRORS = 6.0  # between two means of random scores
DIRECTIONS = 16  # random ones, along which gradients are stored
TURNED = 0.05  # share of a gradient that may differ; at kinks, rounding decides
PREFIX = "probe."  # prefix of these arrays in the file of a task

Key: TypeAlias = tuple[str, ...]  # (model,), (model, detector), or () for the attack
Behaviour: TypeAlias = dict[Key, Arrays]
Function: TypeAlias = Callable[[Images], Tensor]


def probe_images(inside: ImageSet) -> Images:
    """ID images, evenly spaced; some of them mixed with noise; and noise alone."""
    real = inside.take(torch.tensor(spaced(len(inside), REAL))).pixels().cpu()
    noise = torch.rand(2 * MADE, *real.shape[1:], generator=generator(0, "behaviour"))
    mixed = (real[torch.arange(MADE) % len(real)] + noise[:MADE]) / 2
    return torch.cat([real, mixed, noise[MADE:]])


def behaviour(
    detectors: Mapping[str, Mapping[str, Detector]],  # by model name, then by detector name; fitted
    inside: ImageSet,
    attack: Attack,
    threats: Sequence[Threat],
) -> Behaviour:
    """What each network and detector does on the probe images, and an attack of one's own."""
    found: Behaviour = {}
    x = probe_images(inside)
    for name, ds in detectors.items():
        model = next(iter(ds.values())).model
        found[(name,)] = _network(model, x.to(model.mean))
        for d, arrays in _detectors(ds, x.to(model.mean), climbed=bool(threats)).items():
            found[name, d] = arrays
    foreign = [p for p in (attack, *threats) if not type(p).__module__.startswith("rood.")]
    if threats and foreign:  # ours change with rood's version
        found[()] = _attack(attack, threats, x[-2:])
    return found


def _network(model: Model, x: Images) -> Arrays:
    def logits(x: Images) -> Tensor:
        return model(x).logits

    first, again = (_called(logits, x) for _ in range(2))
    if not (repeatable := _close(first, again)):
        first = _called(logits, x, DRAWS)
    return {"values": first, "about": _about(x, repeatable, code(model))}


def _detectors(ds: Mapping[str, Detector], x: Images, *, climbed: bool) -> dict[str, Arrays]:
    def together(x: Images) -> Tensor:  # (b, d)
        return torch.stack([s.double() for s in score_all(ds, x).values()], dim=1)

    first, again = (_called(together, x) for _ in range(2))
    found: dict[str, Arrays] = {}
    for i, (name, d) in enumerate(ds.items()):
        values, repeatable = first[:, :, i], _close(first[:, :, i], again[:, :, i])
        if d.stochastic or not repeatable:
            values = _called(d.score, x, DRAWS)
        declared = (code(d), int(d.stochastic), get_args(Gradient).index(d.gradient))
        found[name] = {"values": values.copy(), "about": _about(x, repeatable, *declared)}
        if climbed:
            found[name]["slopes"] = _slopes((d.score, *d.surrogates()), x[-2 * MADE :])
    return found


def _called(function: Function, x: Images, draws: int = 1) -> NDArray[np.float64]:
    """(draws, b, ...), by calls in a row from a fixed state of all generators."""

    def part(start: int, end: int) -> NDArray[np.float64]:
        with torch.no_grad():
            return function(x[start:end]).double().cpu().numpy()

    with fixed_draws():
        calls = [list(in_parts(0, len(x), len(x), part)) for _ in range(draws)]
    return np.stack([np.concatenate(parts) for parts in calls])


def _slopes(functions: Sequence[Function], x: Images) -> NDArray[np.float64]:
    """Gradients with respect to the pixels, along a few directions; 0 where there are none."""

    def part(start: int, end: int) -> NDArray[np.float64]:
        each = []
        for function in functions:
            try:
                _, gradient = value_and_gradient(function, x[start:end])
            except (RoodError, RuntimeError) as e:
                if out_of_memory(e):
                    raise
                gradient = torch.zeros_like(x[start:end])
            each.append(_sketch(gradient))
        return np.concatenate(each, axis=1)

    with fixed_draws():
        return np.concatenate(list(in_parts(0, len(x), len(x), part)))


def _attack(attack: Attack, threats: Sequence[Threat], x: Images) -> Arrays:
    """How far the attack moves images for a goal that costs nothing; 0 where it refuses."""
    weights = torch.randn(x.shape[1:], generator=generator(0, "behaviour of an attack"))

    def goal(x: Images) -> Tensor:
        return (weights * (4 * x).sin()).flatten(1).sum(dim=1)

    moves = []
    with fixed_draws():
        for threat in threats:
            try:
                moves.append(attack(goal, x, threat, generator(0, str(threat))) - x)
            except (RoodError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                moves.append(torch.zeros_like(x))  # it climbs goals of detectors only
    values = np.concatenate([_sketch(m) for m in moves])[None]
    return {"values": values, "about": _about(x, True)}


def _sketch(x: Images) -> NDArray[np.float64]:
    """(b, directions): the images along random directions."""
    flat = x.detach().flatten(1).double().cpu()
    signs = torch.randint(2, (flat.shape[1], DIRECTIONS), generator=generator(0, "directions"))
    return (flat @ (2.0 * signs.double() - 1)).numpy()


def _about(x: Images, repeatable: bool, *declared: int) -> NDArray[np.int64]:
    return np.array([zlib.crc32(x.device.type.encode()), repeatable, *declared], np.int64)


def code(module: nn.Module) -> int:
    """A checksum of the methods of all classes inside that are neither ours nor torch's.

    It tells apart formulas that agree on the probe images. Ours and torch's have a version.
    """
    classes = {c for m in module.modules() for c in type(m).__mro__}
    foreign = [c for c in classes if not c.__module__.startswith(("rood.", "torch.", "builtins"))]
    found = [inspect.unwrap(getattr(f, "__func__", f)) for c in foreign for f in vars(c).values()]
    spelt = {_spelt(f.__code__) for f in found if inspect.isfunction(f)}
    return zlib.crc32(repr(sorted(spelt)).encode())


def _spelt(code: CodeType) -> str:
    """What a function does, without where it stands."""
    said = []
    for c in code.co_consts:
        if isinstance(c, CodeType):
            said.append(_spelt(c))
        else:  # the order of a set depends on the process
            said.append(repr(sorted(map(repr, c)) if isinstance(c, frozenset) else c))
    return repr((code.co_code, code.co_names, said))


@contextmanager
def fixed_draws() -> Iterator[None]:
    """The global generators of torch, NumPy and Python in a fixed state; afterwards as before."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    plain, legacy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(list(gpus)):
        for g in (torch.default_generator, *(torch.cuda.default_generators[i] for i in gpus)):
            g.manual_seed(0)
        random.setstate(random.Random(0).getstate())
        np.random.set_state(np.random.RandomState(0).get_state())
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(legacy)


# --- comparing


def same(old: Arrays, new: Arrays) -> bool:
    """Whether two measurements are of the same function, within the tolerance."""
    if not old or {k: v.shape for k, v in old.items()} != {k: v.shape for k, v in new.items()}:
        return False
    (there, *before), (here, *now) = old["about"].tolist(), new["about"].tolist()
    if before != now:
        return False
    if len(new["values"]) > 1 and not (now[0] and here == there):  # other draws
        return _same_mean(old["values"], new["values"])
    turned = "slopes" in new and not _same_slopes(old["slopes"], new["slopes"])
    return not turned and _close(old["values"], new["values"])


def _close(old: NDArray[np.float64], new: NDArray[np.float64]) -> bool:
    finite = np.isfinite(old)
    if not np.array_equal(old[~finite], new[~finite], equal_nan=True):
        return False
    return bool((np.abs(new[finite] - old[finite]) <= _allowed(old[finite])).all())


def _allowed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    away = np.abs(values - np.median(values)) if values.size else values
    spread = np.median(away) if values.size else 0.0
    return TOLERANCE * (away + spread) + ROUNDING * np.abs(values)


def _same_mean(old: NDArray[np.float64], new: NDArray[np.float64]) -> bool:
    """Whether random scores, (draws, ...), have the same means and about the same variance."""
    finite = np.isfinite(old).all(axis=0) & np.isfinite(new).all(axis=0)
    if not finite.any():
        return True
    old, new = old[:, finite], new[:, finite]
    variances = old.var(axis=0, ddof=1), new.var(axis=0, ddof=1)
    errors = np.sqrt(sum(variances) / len(new))
    allowed = _allowed(old.mean(axis=0)) + STANDARD_ERRORS * errors
    low, high = sorted(float(v.sum()) for v in variances)
    near = np.abs(new.mean(axis=0) - old.mean(axis=0)) <= allowed
    return bool(near.all()) and high <= 2 * low


def _same_slopes(old: NDArray[np.float64], new: NDArray[np.float64]) -> bool:
    """Whether the gradients agree at half of the images: at a kink they may not."""
    size = np.maximum(*(np.linalg.norm(v, axis=1) for v in (old, new)))
    return bool(np.mean(np.linalg.norm(new - old, axis=1) <= TURNED * size) >= 0.5)


# --- in the files of tasks, and in a results folder


def packed(found: Behaviour, model: str, detectors: Iterable[str], *, attacked: bool) -> Arrays:
    """What the file of a task stores about the behaviour of its network, detector and attack."""
    keys: list[Key] = [(model,), *((model, d) for d in detectors), *([()] if attacked else [])]
    return {
        f"{PREFIX}{len(key)}.{name}": values
        for key in keys
        for name, values in found.get(key, {}).items()
        if attacked or name != "slopes"  # an audit without threats does not measure them
    }


def same_packed(old: Arrays, new: Arrays) -> bool:
    """Whether two files of tasks are about parts that do the same."""

    def parts(arrays: Arrays) -> dict[str, Arrays]:
        names = {k.rpartition(".")[0] for k in arrays}
        return {n: {k[len(n) + 1 :]: arrays[k] for k in arrays if k.startswith(n)} for n in names}

    before, now = parts(old), parts(new)
    return before.keys() == now.keys() and all(same(before[n], now[n]) for n in now)


def renew(
    store: Store, found: Behaviour, *, begun: bool, forget: Callable[[set[Key]], None]
) -> None:
    """Store what was found, after `forget` has removed the results of detectors that differ.

    begun: whether the folder has results. A warning of one sentence says what is measured anew.
    """
    stored = {key: store.read(_place(key))[0] for key in (*found, ()) if store.intact(_place(key))}
    differ = {k for k in {*found, *stored} if not same(stored.get(k, {}), found.get(k, {}))}
    if why := _unknown(store, stored):
        differ = {*found, *stored}
    elif differ:
        why = f"outputs, gradients or code of {_names(differ)} differ from those in {store.path}"
    if begun and why:
        warnings.warn(f"{why}: results are measured anew", RoodWarning, stacklevel=2)
        forget({k for k in found if len(k) == 2 and {k, k[:1], ()} & differ})
    for key in differ:  # last: after a kill before this line, the next run sees the difference too
        if key in found:
            store.write(_place(key), found[key], {})
        else:
            store.remove(_place(key))


def _unknown(store: Store, stored: Behaviour) -> str:
    """Why nothing in the folder can be trusted; "" where it can."""
    before, now = store.said("versions"), versions()
    if not isinstance(before, dict):
        return f"{store.path} does not say with which versions it was written"
    if changed := [k for k in now if before.get(k) != now[k]]:
        said = ", ".join(f"{k} {before.get(k, '?')} (now {now[k]})" for k in changed)
        return f"{store.path} was written with {said}"
    return "" if stored else f"{store.path} does not say what its networks and detectors did"


def _names(keys: set[Key]) -> str:
    """The attack and the networks; else detectors."""
    networks = [f"the network {k[0]}" for k in sorted(keys) if len(k) == 1]
    alone = [" on ".join(reversed(k)) for k in sorted(keys) if len(k) == 2 and k[:1] not in keys]
    named = [*(["the attack"] if () in keys else []), *networks, *alone]
    return ", ".join(named[:6]) + (", ..." if len(named) > 6 else "")


def _place(key: Key) -> tuple[str, ...]:
    return ("behaviour", *key) if key else ("attack",)
