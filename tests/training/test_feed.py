"""The batches of every training step: drawn by seed, epoch and step, and augmented."""

import torch
from torch import Tensor, nn
from toy_training import drawn

from rood.data.base import ImageSet
from rood.training.feed import Feed, drawn_moves, moved
from rood.training.settings import Augment, Settings


def toy(n: int = 90) -> ImageSet:
    """Three classes, whose label is written in one corner."""
    y = torch.arange(n) % 3
    x = torch.randint(0, 256, (n, 1, 8, 8), generator=drawn(0))
    x[:, 0, 0, 0] = y
    return ImageSet(name="toy", images=x.to(torch.uint8), labels=y, classes=("a", "b", "c"))


def noise(n: int = 40) -> ImageSet:
    x = torch.randint(0, 256, (n, 1, 8, 8), generator=drawn(1))
    return ImageSet(name="noise", images=x.to(torch.uint8))


def feed(settings: Settings, outliers: ImageSet | None = None) -> Feed:
    return Feed(toy(), outliers, settings, torch.device("cpu"))


def test_an_epoch_sees_every_image_once_in_an_order_of_its_own() -> None:
    source = feed(Settings(batch_size=30))
    seen = [torch.cat([source.batch(e, s).x for s in range(source.steps)]) for e in (1, 2)]
    for x in seen:
        assert {tuple(i.flatten().tolist()) for i in x} == {
            tuple(i.flatten().tolist()) for i in toy().pixels()
        }
    assert not torch.equal(seen[0], seen[1])


def test_labels_stay_with_their_images() -> None:
    given = feed(Settings(batch_size=30)).batch(1, 0)
    assert torch.equal((255 * given.x[:, 0, 0, 0]).round().long(), given.y)


def test_outliers_come_in_their_own_number_and_start_again_when_used_up() -> None:
    source = feed(Settings(batch_size=30, outlier_batch=50), noise(40))
    given = [source.batch(1, s).outliers for s in range(3)]
    assert [len(o) for o in given if o is not None] == [50] * 3
    default = feed(Settings(batch_size=30), noise(40)).batch(1, 0).outliers
    assert default is not None
    assert len(default) == 30


def test_any_step_can_be_asked_for_first() -> None:
    settings = Settings(batch_size=30, augment=Augment(shift=1, flip=True))
    one, other = feed(settings, noise()), feed(settings, noise())
    for step in range(2):
        one.batch(1, step)
    for a, b in zip(one.batch(2, 1)[:3], other.batch(2, 1)[:3], strict=True):
        assert isinstance(a, Tensor)
        assert isinstance(b, Tensor)
        assert torch.equal(a, b)


def test_an_image_is_moved_otherwise_in_every_epoch() -> None:
    settings = Settings(batch_size=1, augment=Augment(shift=3))
    source = Feed(toy(1), noise(1), settings, torch.device("cpu"))
    for place in (0, 2):  # images, outliers
        moved = [source.batch(epoch, 0)[place] for epoch in range(1, 6)]
        assert any(not torch.equal(moved[0], m) for m in moved[1:])


def test_augmentation_equals_its_plain_loop() -> None:
    images = torch.randint(0, 256, (20, 3, 6, 5), generator=drawn(0)).to(torch.uint8)
    found = moved(images, 2, drawn_moves(20, Augment(shift=2, flip=True), drawn(7)))
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    kinds = set()
    for before, after in zip(padded, found, strict=True):
        crops = {
            (r, c, flip): torch.equal(after, cut.flip(2) if flip else cut)
            for r in range(5)
            for c in range(5)
            for flip in (False, True)
            for cut in [before[:, r : r + 6, c : c + 5]]
        }
        assert sum(crops.values()) == 1
        kinds |= {key for key, same in crops.items() if same}
    assert len(kinds) > 10
    assert {flip for _, _, flip in kinds} == {False, True}
