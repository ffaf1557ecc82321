"""Contract checks for detectors, attacks and objectives, including third-party ones.

    from rood.testing import detector_checks, toy_world

    world = toy_world()
    for check in detector_checks(MyDetector):
        check(MyDetector, world)

A failing check raises an AssertionError that says what is wrong.
"""

from rood.testing.attacks import attack_checks
from rood.testing.detectors import detector_checks
from rood.testing.objectives import objective_checks
from rood.testing.world import World, toy_world

__all__ = ["World", "attack_checks", "detector_checks", "objective_checks", "toy_world"]


def __dir__() -> list[str]:
    return __all__
