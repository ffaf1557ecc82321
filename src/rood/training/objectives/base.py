"""The contract every training objective keeps: one batch in, one number to lower out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

from jaxtyping import Float
from torch import Generator, Tensor, nn

from rood.errors import InputError
from rood.models.model import Model
from rood.shapes import Images, Labels


class Batch(NamedTuple):
    """One step's images in [0, 1]."""

    x: Images
    y: Labels
    outliers: Float[Tensor, "o c h w"] | None = None
    memory: nn.Module | None = None  # what the objective keeps from step to step, where it does


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """Hyper-parameters are fields; nothing else is stored, so one instance serves all steps."""

    needs_outliers: ClassVar[bool] = False
    has_memory: ClassVar[bool] = False  # True: `begin` says what is kept from step to step

    def begin(self, model: Model, some: Batch, generator: Generator) -> nn.Module | None:
        """What is kept beside the network: the loop saves it, a loss changes it as it needs.

        `some` shows many of the images to come, and of the outliers.
        """
        return None

    def wrong(self, memory: nn.Module | None) -> str | None:
        """What went wrong with what is kept, in a few words; asked after each epoch."""
        return None

    @final
    def loss(self, model: Model, batch: Batch, generator: Generator) -> Float[Tensor, ""]:
        """The number to lower, in float32 also under autocast."""
        if self.needs_outliers and (batch.outliers is None or len(batch.outliers) == 0):
            raise self.no_outliers()
        if self.has_memory and batch.memory is None:  # one loss alone, outside of a loop
            batch = batch._replace(memory=self.begin(model, batch, generator))
        return self.compute(model, batch, generator)

    @abstractmethod
    def compute(self, model: Model, batch: Batch, generator: Generator) -> Float[Tensor, ""]:
        """The formula. Override this one method; what is drawn comes from `generator` alone."""

    @property
    def batch_norm_updates(self) -> int:
        """How often one loss moves the running statistics of batch norm."""
        return 1

    @property
    def name(self) -> str:
        """Its registry name: the file it lives in."""
        return type(self).__module__.rpartition(".")[2]

    def no_outliers(self) -> InputError:
        """What to raise where outliers are missing."""
        return InputError(
            f"{self.name} needs outliers, got none: give a set of them to train against"
        )
