"""Progress as a person sees it: a bar at a terminal or in a notebook, else a line now and then."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from rood.evaluation.steps import Step
from rood.report.words import shown

FIRST = 10.0  # seconds until the first line, and at least between two
LINES = 30  # at most, about


def drawn(
    steps: Iterable[Step],
    title: str = "",
    *,
    quiet: bool = False,
    lines: bool = True,
    console: Console | None = None,
    clock: Callable[[], float] = monotonic,
) -> Iterator[Step]:
    """Pass the steps of a run on, drawing on stderr how far it is and how long it will take.

    Parameters
    ----------
    steps : iterable of Step
        What `rood.evaluation.run.run` yields.
    title : str
        What is shown before the first step.
    quiet : bool
        Draw nothing.
    lines : bool
        Whether to print a line now and then, at most about 30, where no bar can be drawn.
    console : rich.console.Console, optional
        Where to draw; stderr by default.
    clock : function
        Seconds.

    Examples
    --------
    >>> from rood.evaluation.steps import Step
    >>> from rood.progress import drawn
    >>> [step.label for step in drawn([Step("half", 1, 2), Step("all", 2, 2)])]
    ['half', 'all']
    """
    console = console or Console(stderr=True)
    if quiet:
        yield from steps
    elif _draws_bars(console):
        yield from _bar(steps, title, console, clock)
    else:
        yield from _heard(steps, _Lines(console, clock).show if lines else _nothing)


def _draws_bars(console: Console) -> bool:
    # in a notebook rich needs ipywidgets; without, it would print a warning and nothing else
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def _nothing(_: Step) -> None:
    pass


def _heard(steps: Iterable[Step], show: Callable[[Step], None]) -> Iterator[Step]:
    """Pass the steps on; `show` hears of them, and of what happens between them."""
    known = None
    for step in steps:
        if step.meter is not None and step.meter is not known:
            known = step.meter
            known.listeners.append(show)
        show(step)
        yield step


@dataclass
class _Estimate:
    """The time left, from the speed since the first step."""

    clock: Callable[[], float]
    left: float = math.nan  # seconds, when it was last known
    at: float = 0.0  # ... the time
    _begun: tuple[float, float] | None = None  # time and work at the first step

    def see(self, step: Step) -> None:
        now = self.clock()
        if self._begun is None:
            self._begun = now, step.done
        begun, before = self._begun
        if step.done > before:
            self.at = now
            self.left = (step.total - step.done) * (now - begun) / (step.done - before)

    def words(self) -> str:
        """As "0:01:30 left", counting down between two steps."""
        if math.isnan(self.left):
            return "estimating the time left"
        return f"{_duration(max(0.0, self.left - (self.clock() - self.at)))} left"


def _duration(seconds: float) -> str:
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}"


class _Left(ProgressColumn):
    """The time left, counted down between two steps."""

    def __init__(self, estimate: _Estimate) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self.estimate = estimate

    def render(self, task: Task) -> Text:
        return Text(self.estimate.words())


def _bar(
    steps: Iterable[Step], title: str, console: Console, clock: Callable[[], float]
) -> Iterator[Step]:
    estimate = _Estimate(clock)
    columns = (
        TextColumn("{task.percentage:>3.0f} %"),
        BarColumn(bar_width=min(40, console.width // 5)),
        TimeElapsedColumn(),
        _Left(estimate),
        # last, since it is the one that may be cut short
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)

        def show(step: Step) -> None:
            estimate.see(step)
            share = _share(step)
            bar.update(task, description=shown(step.label), completed=share, total=1.0)

        yield from _heard(steps, show)


def _share(step: Step) -> float:
    return step.done / step.total if step.total else 1.0  # nothing was left to do: all is done


@dataclass
class _Lines:
    """A line after 10 seconds, then at every thirtieth of the work."""

    console: Console
    clock: Callable[[], float]
    _last: float = -math.inf  # share of the work at the last line

    def __post_init__(self) -> None:
        self._estimate = _Estimate(self.clock)
        self._begun = self._at = self.clock()

    def show(self, step: Step) -> None:
        """Print a line if it is time for one."""
        self._estimate.see(step)
        now, share = self.clock(), _share(step)
        if now - self._at < FIRST or share - self._last < 1 / LINES:
            return
        self._at, self._last = now, share
        passed = _duration(now - self._begun)
        line = f"{share:4.0%}  {passed}, {self._estimate.words()}  {shown(step.label)}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
