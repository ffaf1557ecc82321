"""Image lists of OpenOOD are read where they lie, or refused by line."""

import pytest
from small_pictures import same, save

from rood import data
from rood.errors import DataError


@pytest.fixture
def openood(tmp_path):
    """A folder as OpenOOD 1.5 leaves it: lists, and images beside them."""
    for i in range(6):
        save(tmp_path / "images_classic" / "cifar10" / "test" / f"c {i}.png", i)
    lists = tmp_path / "benchmark_imglist" / "cifar10"
    lists.mkdir(parents=True)
    lines = [f"cifar10/test/c {i}.png {i % 3}" for i in range(6)]
    (lists / "test_cifar10.txt").write_text("\n".join(lines) + "\n\n")
    outside = [f"cifar10/test/c {i}.png -1" for i in range(6)]
    (lists / "test_svhn.txt").write_text("\n".join(outside))
    return tmp_path


def test_an_image_list_of_openood_is_read_where_it_lies(openood):
    images = data.load(f"imglist:{openood}/benchmark_imglist/cifar10/test_cifar10.txt")
    assert same(images, range(6))
    assert images.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert (images.name, images.files[0]) == ("test_cifar10", "cifar10/test/c 0.png")
    outside = data.load(f"imglist:{openood}/benchmark_imglist/cifar10/test_svhn.txt", limit=3)
    assert outside.labels is None
    assert same(outside, (0, 2, 4))
    assert outside.notes == ("used 3 of 6 images, evenly spaced in order of their names",)


def test_another_root_is_named_after_the_list(openood, tmp_path):
    (tmp_path / "own.txt").write_text("c 1.png 0\nc 3.png 1\n")
    images = data.load(f"imglist:{tmp_path}/own.txt@{openood}/images_classic/cifar10/test")
    assert same(images, (1, 3))


def test_images_of_a_list_are_resized_and_declared(openood):
    list_file = openood / "benchmark_imglist" / "cifar10" / "test_cifar10.txt"
    save(openood / "images_classic" / "cifar10" / "test" / "c 2.png", 2, (9, 9))
    images = data.load(f"imglist:{list_file}")
    assert images.shape == (3, 6, 5)
    assert images.notes == ("1 image was resized from 2 sizes to 6x5 (height x width)",)


def test_lists_that_cannot_be_followed_are_refused_by_line(openood):
    list_file = openood / "benchmark_imglist" / "cifar10" / "test_cifar10.txt"
    for content, says in (
        ("cifar10/test/c 0.png zero", "a path and a whole number in line 1"),
        ("cifar10/test/c 0.png 0\n../secret.png 0", "a path below the root .* in line 2"),
        ("/etc/x.png 0", "a path below the root"),
        ("cifar10/test/c 0.png -2", "a label from -1 in line 1"),
        ("", "got an empty file"),
        ("cifar10/test/c 0.png 0\ngone.png 1", r"got none called 'gone.png' \(1 missing\)"),
    ):
        list_file.write_text(content)
        with pytest.raises(DataError, match=says):
            data.load(f"imglist:{list_file}")
    with pytest.raises(DataError, match="does not exist"):
        data.load("imglist:nowhere.txt")


def test_damaged_files_of_a_list_are_named_or_skipped(openood):
    list_file = openood / "benchmark_imglist" / "cifar10" / "test_cifar10.txt"
    (openood / "images_classic" / "cifar10" / "test" / "c 3.png").write_bytes(b"\x89PNG no")
    with pytest.raises(DataError, match=r"c 3.png' is damaged .* use --skip-bad"):
        data.load(f"imglist:{list_file}")
    images = data.load(f"imglist:{list_file}", skip_bad=True)
    assert same(images, (0, 1, 2, 4, 5))
    assert "'cifar10/test/c 3.png'" in images.notes[0]


def test_images_of_a_list_are_grouped_by_a_named_column_or_their_folder(openood, monkeypatch):
    list_file = openood / "benchmark_imglist" / "cifar10" / "test_cifar10.txt"
    lines = [f"cifar10/test/c {i}.png {i % 3} day v{i // 2}" for i in range(6)]
    list_file.write_text("\n".join(["# path label light video", *lines]))
    monkeypatch.setenv("ROOD_CACHE", str(openood / "cache"))
    for _ in range(2):  # read, and then from the cache
        images = data.load(f"imglist:{list_file}", groups="video")
        assert images.groups == ("v0", "v0", "v1", "v1", "v2", "v2")
        assert images.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.load(f"imglist:{list_file}", groups="video", limit=3).groups == ("v0", "v1", "v2")
    assert set(data.load(f"imglist:{list_file}", groups="folder").groups) == {"cifar10/test"}
    assert data.load(f"imglist:{list_file}").groups == ()
    says = r"expected a column 'clip' in .*, got path, label, light, video"
    with pytest.raises(DataError, match=says):
        data.load(f"imglist:{list_file}", groups="clip")
    list_file.write_text("\n".join(["# path label light video", "cifar10/test/c0.png 0 day"]))
    with pytest.raises(DataError, match="a path and a whole number and 2 more columns in line 2"):
        data.load(f"imglist:{list_file}")
