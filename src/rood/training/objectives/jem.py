"""A classifier that is also an energy-based model of its images."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from rood.errors import expect
from rood.models.generative.sgld import log_density, sampled
from rood.models.model import Model
from rood.seeds import beside
from rood.shapes import Images
from rood.training.objectives.base import Batch, Loss, Objective
from rood.training.objectives.robust import frozen

FAR = 1e4  # log density beyond which the chains have diverged
ALIKE = 1e-3  # standard deviation below which the chains have collapsed


@dataclass(frozen=True, kw_only=True)
class JEM(Objective):
    r"""L = E[-log p_y(x)] + weight (E f(x') - E f(x) + calm (E f(x)^2 + E f(x')^2)), f = lse(z).

    x' are samples of the density e^f: chains from a replay buffer, continued by `steps` steps of
    Langevin dynamics in eval mode. Grathwohl et al., *Your Classifier is Secretly an
    Energy Based Model*, ICLR 2020, arXiv:1912.03263, has weight 1, no `calm` (of Du and Mordatch,
    arXiv:1903.08689), no `reach` and no box for the chains, and steps for pixels in [-1, 1]: 1 and
    0.01 there are 0.25 and 0.005 here. A `calm` c holds f near 1 / (2 c), and f(x') near minus it.
    """

    has_memory: ClassVar[bool] = True

    weight: float = 1.0  # of the density against the classes
    calm: float = 0.0  # keeps log densities near 0
    steps: int = 20
    step: float = 0.25  # in pixel units, as the next three are
    reach: float | None = None  # largest change of a pixel per step, without the noise
    noise: float = 0.005  # of each step
    blur: float = 0.015  # standard deviation of the noise on the images
    replay: int = 10_000  # chains in the buffer
    fresh: float = 0.05  # share of chains restarted from uniform noise

    def __post_init__(self) -> None:
        counts = self.steps, self.replay
        expect(min(counts) >= 1, "steps >= 1 and replay >= 1", *counts)
        rest = self.weight, self.calm, self.noise, self.blur
        holds = self.step > 0 and min(rest) >= 0
        expect(holds, "step > 0 and weight, calm, noise, blur >= 0", self.step, *rest)
        expect(self.reach is None or self.reach > 0, "a reach > 0, or none", self.reach)
        expect(0 <= self.fresh <= 1, "a share 0 <= fresh <= 1", self.fresh)

    @classmethod
    def example(cls) -> "JEM":
        """For the checks: few short chains."""
        return cls(steps=3, replay=64)

    def begin(self, model: Model, some: Batch, generator: Generator) -> "Replay":
        chains = torch.rand(self.replay, *some.x.shape[1:], generator=generator)
        return Replay(chains.to(some.x))

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        replay, n = batch.memory, len(batch.x)
        assert isinstance(replay, Replay)
        source = beside(batch.x, generator)
        samples = self.sample(model, replay, n, source)
        shaken = torch.randn(batch.x.shape, generator=source, device=source.device)
        x = (batch.x + self.blur * shaken).clamp(0, 1)
        z = model(torch.cat([x, samples])).logits.float()
        f = z.logsumexp(dim=1)
        replay.note(f)
        density = f[n:].mean() - f[:n].mean()
        if self.calm:
            density = density + self.calm * (f[:n].square().mean() + f[n:].square().mean())
        return cross_entropy(z[:n], batch.y) + self.weight * density

    def sample(self, model: Model, replay: "Replay", n: int, source: Generator) -> Images:
        """Continue n of the chains, some of them restarted. `source` is on their device."""
        which = replay.drawn(n, source)
        x = replay.chains[which]
        even = torch.rand(x.shape, generator=source, device=source.device)
        anew = torch.rand(len(x), 1, 1, 1, generator=source, device=source.device) < self.fresh
        x = torch.where(anew, even, x)
        with frozen(model):
            x = sampled(
                lambda x: log_density(model, x),
                x,
                steps=self.steps,
                step=self.step,
                reach=self.reach,
                noise=self.noise,
                source=source,
            )
        replay.chains[which] = x
        return x

    def wrong(self, memory: nn.Module | None) -> str | None:
        return memory.wrong() if isinstance(memory, Replay) else None


class Replay(nn.Module):
    """The chains, and the largest log density since the last check."""

    chains: Float[Tensor, "m c h w"]
    largest: Float[Tensor, ""]

    def __init__(self, chains: Images) -> None:
        super().__init__()
        self.register_buffer("chains", chains)
        self.register_buffer("largest", torch.zeros((), device=chains.device))

    def drawn(self, n: int, source: Generator) -> Int[Tensor, " n"]:
        """Indices of n different chains."""
        return torch.randperm(len(self.chains), generator=source, device=source.device)[:n]

    @torch.no_grad()
    def note(self, f: Float[Tensor, " n"]) -> None:
        """Record the largest |f| without synchronising."""
        self.largest.copy_(torch.maximum(self.largest, f.detach().abs().max()))

    def wrong(self) -> str | None:
        """Whether the chains diverged or collapsed."""
        largest = self.largest.item()
        self.largest.zero_()
        if not largest < FAR:
            return f"the samples ran away to a log density of {largest:.3g}"
        if len(self.chains) > 1 and self.chains.std(dim=0).mean().item() < ALIKE:
            return "the samples are all alike"
        return None
