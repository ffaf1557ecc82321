"""A file gives the picture its author saw, or a sentence."""

import warnings
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2
from refusals import COLOUR, GREY, RNG, refused, save

from rood.data.images import decode, read_image
from rood.errors import DataError


@pytest.mark.parametrize("extension", ["png", "bmp", "tif", "tiff", "ppm", "webp"])
def test_lossless_files_give_back_their_pixels(tmp_path, extension):
    path = save(tmp_path / f"a.{extension}", **({"lossless": True} if extension == "webp" else {}))
    assert (read_image(path, 3) == COLOUR).all()
    grey = np.asarray(Image.fromarray(COLOUR).convert("L"))[..., None]
    assert (read_image(path, 1) == grey).all()


@pytest.mark.parametrize("extension", ["png", "bmp", "tif", "pgm", "gif"])
def test_grey_files_give_back_their_pixels_on_one_and_on_three_channels(tmp_path, extension):
    path = save(tmp_path / f"a.{extension}", GREY)
    assert (read_image(path, 1) == GREY[..., None]).all()
    assert (read_image(path, 3) == np.stack([GREY] * 3, axis=2)).all()


def test_jpeg_is_close_to_what_was_saved(tmp_path):
    smooth = np.linspace(0, 255, 256).astype(np.uint8).reshape(16, 16)
    path = save(tmp_path / "a.JPEG", smooth, quality=100)
    assert np.abs(read_image(path, 1)[..., 0].astype(int) - smooth).max() <= 2


def test_black_and_white_becomes_0_and_255(tmp_path):
    save(tmp_path / "a.png", GREY > 127)
    assert (read_image(tmp_path / "a.png", 1)[..., 0] == np.where(GREY > 127, 255, 0)).all()


@pytest.mark.parametrize("extension", ["png", "tif", "pgm"])
def test_16_bit_grey_is_scaled_and_not_clipped(tmp_path, extension):
    wide = np.array([[0, 128, 257, 1000], [30000, 32896, 65000, 65535]], dtype=np.uint16)
    path = save(tmp_path / f"a.{extension}", wide)
    expected = np.rint(wide / 257).astype(np.uint8)
    assert (read_image(path, 1)[..., 0] == expected).all()
    assert (read_image(path, 3)[..., 2] == expected).all()


def test_16_bit_tiff_that_counts_down_from_white_is_turned_round(tmp_path):
    wide = np.array([[0, 257, 65535]], dtype=np.uint16)
    tags = ImageFileDirectory_v2()
    tags[262] = 0
    path = save(tmp_path / "a.tif", wide, tiffinfo=tags)
    with Image.open(path) as image:
        assert image.tag_v2[262] == 0
    assert read_image(path, 1)[..., 0].tolist() == [[255, 254, 0]]


def test_big_endian_16_bit_tiff_is_read_in_its_own_order(tmp_path):
    Image.frombytes("I;16B", (2, 1), bytes([0, 255, 255, 0])).save(tmp_path / "a.tif")
    assert read_image(tmp_path / "a.tif", 1)[..., 0].tolist() == [[1, 254]]


def test_transparent_pixels_are_laid_over_white(tmp_path):
    rgba = np.zeros((1, 3, 4), np.uint8)
    rgba[0, :, 0] = 200
    rgba[0, :, 3] = [255, 0, 128]
    picture = decode(save(tmp_path / "a.png", rgba), 3)
    assert picture.was_transparent
    assert picture.pixels[0, :2].tolist() == [[200, 0, 0], [255, 255, 255]]
    assert np.abs(picture.pixels[0, 2].astype(int) - [227, 127, 127]).max() <= 1


def test_opaque_alpha_changes_nothing(tmp_path):
    picture = decode(save(tmp_path / "a.png", np.dstack([COLOUR, np.full((6, 5), 255, np.uint8)])))
    assert (picture.pixels == COLOUR).all()
    assert not picture.was_transparent


def test_grey_with_alpha_stays_grey(tmp_path):
    la = Image.fromarray(GREY).convert("LA")
    la.putpixel((0, 0), (17, 0))
    la.save(tmp_path / "a.png")
    picture = decode(tmp_path / "a.png")
    assert picture.was_grey
    expected = GREY.copy()
    expected[0, 0] = 255
    assert (picture.pixels[..., 0] == expected).all()


@pytest.mark.parametrize("bits", [8, 16])
def test_a_transparent_grey_level_becomes_white(tmp_path, bits):
    levels = np.array([[3, 5]], dtype=f"uint{bits}") * (1 if bits == 8 else 257)
    path = save(tmp_path / "a.png", levels, transparency=int(levels[0, 1]))
    picture = decode(path, 1)
    assert picture.pixels[..., 0].tolist() == [[3, 255]]
    assert picture.was_transparent


@pytest.mark.parametrize("extension", ["png", "gif", "bmp", "tif"])
def test_palette_images_show_their_colours_and_not_their_indices(tmp_path, extension):
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "L").convert("P")
    image.putpalette([10, 20, 30, 200, 100, 0, 7, 7, 7])
    image.save(tmp_path / f"a.{extension}")
    expected = [[[10, 20, 30], [200, 100, 0], [7, 7, 7]]]
    assert read_image(tmp_path / f"a.{extension}", 3).tolist() == expected


def test_a_transparent_palette_entry_becomes_white(tmp_path):
    image = Image.fromarray(np.array([[0, 1]], np.uint8), "L").convert("P")
    image.putpalette([10, 20, 30, 200, 100, 0])
    for name in ("a.png", "a.gif"):
        image.save(tmp_path / name, transparency=1)
        assert read_image(tmp_path / name, 3).tolist() == [[[10, 20, 30], [255, 255, 255]]]


def test_cmyk_goes_through_rgb(tmp_path):
    Image.new("CMYK", (2, 2), (0, 255, 255, 0)).save(tmp_path / "a.tif")
    assert read_image(tmp_path / "a.tif", 3)[0, 0].tolist() == [255, 0, 0]
    assert read_image(tmp_path / "a.tif", 1)[0, 0].tolist() == [76]  # 0.299 * 255


@pytest.mark.parametrize("extension", ["png", "tif"])
@pytest.mark.parametrize(
    ("turn", "undone"), [(3, lambda a: a[::-1, ::-1]), (6, lambda a: np.rot90(a, -1))]
)
def test_the_exif_orientation_is_applied_once(tmp_path, extension, turn, undone):
    exif = Image.Exif()
    exif[0x0112] = turn
    path = save(tmp_path / f"a.{extension}", exif=exif)
    assert (read_image(path, 3) == undone(COLOUR)).all()


def test_an_animation_gives_its_first_frame_and_says_so(tmp_path):
    frames = [Image.fromarray(np.full((4, 4), level, np.uint8)) for level in (10, 200)]
    for name in ("a.gif", "a.png", "a.webp", "a.tif"):
        lossless = {"lossless": True} if name.endswith("webp") else {}
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **lossless)
        picture = decode(tmp_path / name, 1)
        assert (picture.pixels == 10).all(), name
        assert picture.was_animated, name


def test_floating_point_and_32_bit_images_are_refused(tmp_path):
    save(tmp_path / "f.tif", GREY.astype(np.float32))
    refused(DataError, "32-bit floats of unknown range", read_image, tmp_path / "f.tif", 1)
    save(tmp_path / "i.tif", GREY.astype(np.int32))
    refused(DataError, "32-bit integers of unknown range", read_image, tmp_path / "i.tif", 1)


@pytest.mark.parametrize("factor", [1.5, 3])  # Pillow warns about the first, raises on the second
def test_decompression_bombs_are_refused_and_pillow_is_left_alone(tmp_path, monkeypatch, factor):
    before = Image.MAX_IMAGE_PIXELS
    width = int(before * factor) // 1000
    (tmp_path / "a.ppm").write_bytes(b"P6 %d 1000 255\n" % width + bytes(100))
    refused(DataError, "claims more than 89,478,485 pixels", read_image, tmp_path / "a.ppm", 3)
    assert before == Image.MAX_IMAGE_PIXELS
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    refused(DataError, "claims more than 89,478,485 pixels", read_image, tmp_path / "a.ppm", 3)


@pytest.mark.parametrize("extension", ["png", "jpg", "bmp", "gif", "webp", "tif", "ppm"])
def test_damaged_files_are_refused_with_one_sentence(tmp_path, extension):
    noise = RNG.integers(0, 256, (40, 40, 3), dtype=np.uint8)
    path = save(tmp_path / f"a.{extension}", noise)
    whole = path.read_bytes()
    for cut in (len(whole) // 2, len(whole) - 30, 3):
        path.write_bytes(whole[:cut])
        refused(DataError, f"a.{extension}'", read_image, path, 3)
    path.write_bytes(b"")
    refused(DataError, "is empty (0 bytes)", read_image, path, 3)
    path.write_bytes(b"<html>not found</html>")
    refused(DataError, "not an image of a known kind", read_image, path, 3)


def test_random_damage_never_ends_in_another_error():
    rng = np.random.default_rng(0)
    for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM"):
        buffer = BytesIO()
        Image.fromarray(COLOUR).save(buffer, kind)
        for _ in range(40):
            damaged = bytearray(buffer.getvalue())
            for place in rng.integers(0, len(damaged), 4):
                damaged[place] = rng.integers(256)
            try:
                assert decode(bytes(damaged), 3).pixels.dtype == np.uint8
            except DataError as error:
                assert "\n" not in str(error)  # noqa: PT017 - most damage is refused, not all


def test_files_of_other_formats_do_not_reach_their_decoders(tmp_path):
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    refused(DataError, "not an image of a known kind", read_image, tmp_path / "a.png", 3)


def test_a_lower_limit_set_in_pillow_is_kept(tmp_path, monkeypatch):
    path = save(tmp_path / "a.png")  # 30 pixels
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    refused(DataError, "claims more than 20 pixels", read_image, path, 3)


def test_a_bomb_is_refused_even_where_warnings_are_silenced(tmp_path):
    (tmp_path / "a.ppm").write_bytes(b"P6 120000 1000 255\n" + bytes(10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(DataError, "claims more than", read_image, tmp_path / "a.ppm", 3)
