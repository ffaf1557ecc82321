"""Decoding of image files to 8-bit pixels; files that cannot be decoded exactly are refused."""

import io
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from rood._files import opened
from rood.errors import DataError

EXTENSIONS = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
)
# Pillow's default; repeated here because a program may have disabled Pillow's.
MAX_PIXELS = 89_478_485
MOST_BYTES = 1 << 30  # of a file: more than so many pixels take

# only these decoders may see the content of a file
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")


class DecodedImage(NamedTuple):
    """A decoded image, and which conversions it went through."""

    pixels: NDArray[np.uint8]  # (h, w, c)
    was_grey: bool
    was_transparent: bool = False
    was_animated: bool = False


def read_image(path: Path, channels: int) -> NDArray[np.uint8]:
    """The pixels of an image file, (h, w, channels), decoded by `decode`."""
    return decode(path, channels).pixels


def decode(file: Path | bytes, channels: int | None = None, *, shown: str = "") -> DecodedImage:
    """Decode a file or its bytes; `shown` names it in messages, channels=None keeps its own.

    Transparent pixels are composited over white, 16-bit grey is divided by 257, CMYK is converted
    by way of RGB, colour becomes grey by ITU-R 601, the EXIF orientation is applied, and only the
    first frame is kept. Colour profiles are ignored. Floating-point and 32-bit images are refused
    because their range is unknown.
    """
    shown = shown or repr(str(file) if isinstance(file, Path) else "image")
    try:
        with warnings.catch_warnings(), _source(file) as source:
            warnings.simplefilter("ignore")  # about metadata, not pixels
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if not source.read(1):
                raise DataError(f"{shown} is empty (0 bytes)")
            source.seek(0)
            with Image.open(source, formats=_FORMATS) as image:
                return _picture(image, channels, shown)
    except DataError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise _too_large(shown) from error
    except UnidentifiedImageError as error:
        raise DataError(f"{shown} is damaged or not an image of a known kind") from error
    except OSError as error:
        raise DataError(f"{shown} cannot be read: {error.strerror or _one_line(error)}") from error
    except Exception as error:  # decoders raise anything from struct.error to IndexError
        raise DataError(f"{shown} is damaged: {_one_line(error)}") from error


def resize(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Resize an image (h, w, c), bilinear with antialiasing."""
    if pixels.shape[:2] == (height, width):
        return pixels
    grey = pixels.shape[2] == 1
    image = Image.fromarray(pixels[:, :, 0] if grey else pixels)
    small = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    return small.reshape(height, width, pixels.shape[2])


def _picture(image: Image.Image, channels: int | None, shown: str) -> DecodedImage:
    if image.width * image.height > MAX_PIXELS:
        raise _too_large(shown)
    animated = bool(getattr(image, "is_animated", False))
    grey = image.mode in _GREY
    if image.mode.startswith("I"):
        scale = _levels(image, shown)
        plain, transparent = _from_integers(_upright(image), *scale)
    elif image.mode == "F":
        raise DataError(f"{shown} holds 32-bit floats of unknown range: save it with 8 or 16 bits")
    else:
        plain, transparent = _over_white(_upright(image), shown)
    if channels is None:
        channels = 1 if grey else 3
    pixels = np.asarray(plain.convert("L" if channels == 1 else "RGB"))
    return DecodedImage(np.atleast_3d(pixels), grey, transparent, animated)


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    return ImageOps.exif_transpose(image)


def _over_white(image: Image.Image, shown: str) -> tuple[Image.Image, bool]:
    if not image.has_transparency_data:
        return image.convert("L") if image.mode in _GREY else image, False
    key = image.info.get("transparency")
    if isinstance(key, tuple) and max(key) > 255:
        raise DataError(f"{shown} marks transparency by a 16-bit colour: save it with 8 bits")
    grey = image.mode in _GREY
    layer = image.convert("RGBA")
    seen = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    low, _ = layer.getchannel("A").getextrema()
    return seen.convert("L") if grey else seen, low != 255


def _levels(image: Image.Image, shown: str) -> tuple[int, bool]:
    """The value of white, and whether the scale is inverted (0 is white)."""
    if image.mode == "I" and image.format not in ("PNG", "PPM"):
        raise DataError(
            f"{shown} holds signed or 32-bit integers of unknown range: save it with 8 or 16 bits"
        )
    # Pillow neither rescales 12-bit values nor turns inverted 16-bit TIFF files
    tags = getattr(image, "tag_v2", {})
    return (4095 if tags.get(258) == (12,) else 65535), tags.get(262) == 0


def _from_integers(image: Image.Image, top: int, inverted: bool) -> tuple[Image.Image, bool]:
    values = np.asarray(image).astype(np.int64)
    grey = np.clip((values * 255 + top // 2) // top, 0, 255).astype(np.uint8)
    if inverted:
        grey = 255 - grey
    clear = values == image.info.get("transparency", -1)
    grey[clear] = 255
    return Image.fromarray(grey), bool(clear.any())


def _source(file: Path | bytes) -> AbstractContextManager[BinaryIO]:
    return io.BytesIO(file) if isinstance(file, bytes) else opened(file, MOST_BYTES)


def _too_large(shown: str) -> DataError:
    limit = min(MAX_PIXELS, Image.MAX_IMAGE_PIXELS or MAX_PIXELS)
    return DataError(f"{shown} claims more than {limit:,} pixels and is refused unread")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
