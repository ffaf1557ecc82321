"""A convolutional auto-encoder."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate

from rood.errors import expect
from rood.models.generative.base import Generative
from rood.shapes import Features, Images

NARROW = 12  # least number of pixel values per number of the code


class AutoEncoderNetwork(Generative):
    """Two convolutions of stride 2, a linear code, and a mirrored decoder.

    After Hinton and Salakhutdinov, *Reducing the Dimensionality of Data with Neural Networks*,
    Science 2006, doi:10.1126/science.1127647. Smooth activations and a linear last
    layer, so that no pixel saturates. Images of other sizes are resized on input and output.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        size: int = 28,  # of a side, in pixels
        width: int = 32,
        numbers: int = 64,  # of the code
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        most = channels * size**2 // NARROW
        what = f"a side divisible by 4 and 1 to {most} numbers of code, a twelfth of the image"
        expect(size % 4 == 0 and 1 <= numbers <= most, what, size, numbers)
        side = size // 4
        self.size = size
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(2 * width * side**2, numbers),
        )
        self.decoder = nn.Sequential(
            nn.Linear(numbers, 2 * width * side**2),
            nn.SiLU(),
            nn.Unflatten(1, (2 * width, side, side)),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * width, width, 3, padding=1),
            nn.SiLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(width, channels, 3, padding=1),
        )
        self.head = nn.Linear(numbers, classes)

    def code(self, x: Images) -> Features:
        return self.encoder(_resized(x, (self.size, self.size)))

    def decode(self, code: Features, size: tuple[int, int]) -> Images:
        """Decode a code to an image of height and width `size`."""
        return _resized(self.decoder(code), size)

    def reconstruct(self, x: Images) -> Images:
        """Encode and decode x."""
        return self.decode(self.code(x), (x.shape[2], x.shape[3]))


def _resized(x: Images, size: tuple[int, int]) -> Float[Tensor, "b c _h _w"]:
    if (x.shape[2], x.shape[3]) == size:
        return x
    return interpolate(x, size, mode="bilinear")
