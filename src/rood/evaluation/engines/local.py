"""Units one after the other, in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rood.evaluation.engines import Engine, Results
from rood.evaluation.plan import Plan
from rood.evaluation.tasks import Found, Work


class Local(Engine):
    """Units one after the other, in this process."""

    @contextmanager
    def opened(self, plan: Plan) -> Iterator[Results]:
        def results(units: Sequence[Work]) -> Iterator[tuple[Work, dict[str, Found]]]:
            for unit in units:
                yield unit, unit.do(plan)

        yield results
