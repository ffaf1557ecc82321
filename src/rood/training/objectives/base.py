"""The contract of every training objective: a batch in, a loss out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias, final

from jaxtyping import Float
from torch import Generator, Tensor, nn

from rood.errors import InputError
from rood.models.model import Model
from rood.shapes import Images, Labels

Loss: TypeAlias = Float[Tensor, ""]


class Batch(NamedTuple):
    """One step's images in [0, 1]."""

    x: Images
    y: Labels
    outliers: Float[Tensor, "o c h w"] | None = None
    memory: nn.Module | None = None  # what the objective keeps between steps
    # share of the training before this step; a tensor where steps are recorded as a CUDA graph
    done: float | Float[Tensor, ""] = 1.0


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """Hyper-parameters are fields; nothing else is stored, so one instance serves all steps."""

    needs_outliers: ClassVar[bool] = False
    has_memory: ClassVar[bool] = False  # True: `begin` makes what it keeps between steps

    def begin(self, model: Model, some: Batch, generator: Generator) -> nn.Module | None:
        """Make the memory, which the loop saves and `compute` updates.

        `some` is a sample of the training images and outliers.
        """
        return None

    def wrong(self, memory: nn.Module | None) -> str | None:
        """What is wrong with the memory, in a few words; called after each epoch."""
        return None

    @final
    def loss(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        """The loss, in float32 also under autocast."""
        if self.needs_outliers and (batch.outliers is None or len(batch.outliers) == 0):
            raise self.no_outliers()
        if self.has_memory and batch.memory is None:  # called outside the loop
            batch = batch._replace(memory=self.begin(model, batch, generator))
        return self.compute(model, batch, generator)

    @abstractmethod
    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        """The formula: override this method. All randomness comes from `generator`."""

    @property
    def batch_norm_updates(self) -> int:
        """How many times one loss updates the running statistics of batch norm."""
        return 1

    @property
    def name(self) -> str:
        """Its registry name: the file it lives in."""
        return type(self).__module__.rpartition(".")[2]

    def no_outliers(self) -> InputError:
        """The error for missing outliers."""
        return InputError(
            f"{self.name} needs outliers, got none: give a set of them to train against"
        )
