"""Tasks on the workers of a Ray cluster: one that is started here, or one that is running.

Plan, networks and images are put into the object store once; a task is a few bytes, and its
results go back to this process, the only one that writes. Ray repeats a task elsewhere when its
worker or node is lost.
"""

import copy
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from time import monotonic
from typing import Any

import torch

from rood.data.base import ImageSet
from rood.errors import CapabilityError, InputError, first_line
from rood.evaluation.engines import Engine, Perform
from rood.evaluation.manifest import full_precision, versions
from rood.evaluation.plan import Plan
from rood.evaluation.steps import Meter, Tick
from rood.evaluation.tasks import Found, Task

TRIES = 3  # more, for a task whose worker is lost or fails
LOOK = 2.0  # seconds after which a worker says again how far it is
AHEAD = 1000  # tasks submitted at once, so that a cluster that can grow sees the demand


@dataclass(frozen=True, kw_only=True)
class Ray(Engine):
    """One task per worker, each with one core, and with a GPU where there are any."""

    workers: int | None = None  # at most; None: a core or a GPU each
    address: str | None = None  # of a running cluster, "auto" for the one here; None: start one
    device: str | None = None  # of the workers; None: GPUs of a running cluster, else as here

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"expected at least 1 worker, got {self.workers}")

    @contextmanager
    def opened(self, plan: Plan) -> Iterator[Perform]:
        ray = _imported()
        with self._cluster(ray):
            device = self._device(ray, plan)
            do = ray.remote(_do).options(
                num_cpus=1,
                num_gpus=self._gpus(ray, device),
                max_retries=TRIES,
                retry_exceptions=[RuntimeError, OSError],
            )
            held, news = _put(ray, (_on_cpu(plan), device, versions())), _News(ray)
            # in a list, or Ray would unpack the plan for every task
            start = partial(do.remote, [held], sys.path, news.actor)
            yield partial(_perform, ray, start, news, self._ahead(ray, plan, device))

    @contextmanager
    def _cluster(self, ray: Any) -> Iterator[None]:
        """The cluster of the caller, the one at the address, or a new one for this block."""
        if ray.is_initialized():
            yield
            return
        own = {"address": "local", "num_cpus": self.workers, "include_dashboard": False}
        where = {"address": self.address} if self.address else own
        try:
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, OSError, RuntimeError, ValueError) as e:
            at = f"at {self.address}" if self.address else "here"
            raise CapabilityError(f"expected a Ray cluster {at}, got none: {first_line(e)}") from e
        try:
            yield
        finally:
            ray.shutdown()

    def _device(self, ray: Any, plan: Plan) -> str:
        if self.device is None and self.address and ray.cluster_resources().get("GPU"):
            return "cuda"
        return self.device or plan.model(next(iter(plan.detectors))).mean.device.type

    def _gpus(self, ray: Any, device: str) -> float:
        """GPUs per worker; a fraction where more workers are asked for than there are GPUs."""
        if not device.startswith("cuda"):
            return 0.0
        if self.address:
            return 1.0  # a cluster that grows may add its GPUs later
        if not (there := ray.cluster_resources().get("GPU", 0.0)):
            raise CapabilityError("expected a GPU on this machine for workers on cuda, got none")
        return min(1.0, there / (self.workers or there))

    def _ahead(self, ray: Any, plan: Plan, device: str) -> int:
        if plan.deadline is not None:  # what is begun may have to be given up
            kind = "GPU" if device.startswith("cuda") else "CPU"
            return self.workers or max(1, int(ray.cluster_resources().get(kind, 1)))
        return self.workers if self.workers and self.address else AHEAD


def _perform(
    ray: Any,
    start: Callable[[int, Task], Any],
    news: "_News",
    ahead: int,
    tasks: Iterable[Task],
    meter: Meter[Task],
) -> Iterator[tuple[Task, dict[str, Found]]]:
    left, running = enumerate(tasks), dict[Any, tuple[int, Task]]()
    try:
        while True:
            running |= {start(*task): task for task in islice(left, ahead - len(running))}
            if not running:
                return
            (ended,), _ = ray.wait([*running, *news.question], num_returns=1)
            if ended in running:
                yield running.pop(ended)[1], _fetched(ray, ended)
            else:
                news.tell(dict(running.values()), meter)
    finally:  # after a failure a shared cluster must not keep working
        for submitted in running:
            ray.cancel(submitted)


class _News:
    """What workers say of the tasks under way: a queue in a process that needs no core."""

    def __init__(self, ray: Any) -> None:
        queue = importlib.import_module("ray.util.queue")
        self._ray, self.actor = ray, queue.Queue(actor_options={"num_cpus": 0}).actor
        self.question = [self.actor.get.remote()]  # answered as soon as there is something

    def tell(self, running: Mapping[int, Task], meter: Meter[Task]) -> None:
        """Pass an answer on."""
        (answer,), self.question = self.question, []
        with suppress(self._ray.exceptions.RayError):  # its node is lost: tasks matter more
            number, work = self._ray.get(answer)
            self.question = [self.actor.get.remote()]
            if number in running:
                meter.part(running[number], work)


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        return importlib.import_module("ray")
    except ImportError as e:
        raise CapabilityError("needs ray: pip install 'rood[ray]'") from e


def _do(held: list[Any], path: list[str], news: Any, number: int, task: Task) -> dict[str, Found]:
    """One task, in a worker."""
    sys.path += [p for p in path if p not in sys.path]  # where a user's networks may be defined
    torch.set_num_threads(1)
    plan = _plan(held[0])
    try:
        with full_precision():
            return task.do(plan, _now_and_then(lambda work: news.put.remote((number, work))))
    except getattr(torch, "AcceleratorError", ()):
        logging.exception("a GPU that has failed once fails this process for good")
        os._exit(1)  # a new process takes over


def _now_and_then(tell: Callable[[float], object]) -> Tick:
    told = monotonic()

    def tick(work: float) -> None:
        nonlocal told
        if monotonic() - told >= LOOK:
            told = monotonic()
            tell(work)

    return tick


@lru_cache(maxsize=1)
def _plan(held: Any) -> Plan:
    """The plan, fetched and moved to the device once per process."""
    ray = _imported()
    try:
        plan, device, theirs = ray.get(held)
    except ray.exceptions.RayError as e:
        raise CapabilityError(
            f"expected workers that can load the networks, got one that cannot ({first_line(e)}): "
            "install on every node what is installed here"
        ) from e
    if theirs != versions():
        differ = {k: (v, versions().get(k)) for k, v in theirs.items() if versions().get(k) != v}
        raise CapabilityError(f"expected the same versions on every node, got {differ}")
    for detectors in plan.detectors.values():
        for detector in detectors.values():
            detector.to(device)
    return plan


def _put(ray: Any, value: Any) -> Any:
    """Put a value into the object store, images as arrays, which the workers of a node share."""
    ray.util.register_serializer(ImageSet, serializer=_plain, deserializer=_images)
    try:
        return ray.put(value)
    except (TypeError, AttributeError, RuntimeError) as e:
        raise CapabilityError(
            f"expected networks that can be sent to other processes, got one that cannot "
            f"({first_line(e)}): use --engine local"
        ) from e
    finally:
        ray.util.deregister_serializer(ImageSet)


def _plain(images: ImageSet) -> dict[str, Any]:
    labels = None if images.labels is None else images.labels.numpy()
    return vars(images) | {"images": images.images.numpy(), "labels": labels}


def _images(fields: dict[str, Any]) -> ImageSet:
    with warnings.catch_warnings():
        # shared memory cannot be written to, and nobody does: batches are copies
        warnings.simplefilter("ignore", UserWarning)
        labels = None if fields["labels"] is None else torch.from_numpy(fields["labels"])
        return ImageSet(**fields | {"images": torch.from_numpy(fields["images"]), "labels": labels})


def _on_cpu(plan: Plan) -> Plan:
    """The plan as it travels: a worker's GPU may have another number."""
    if all(plan.model(m).mean.device.type == "cpu" for m in plan.detectors):
        return plan
    copies = copy.deepcopy({m: dict(ds) for m, ds in plan.detectors.items()})
    for detectors in copies.values():
        for detector in detectors.values():
            detector.cpu()
    return replace(plan, detectors=copies)


def _fetched(ray: Any, ended: Any) -> dict[str, Found]:
    try:
        return ray.get(ended)
    except ray.exceptions.RayTaskError as e:
        raise e.cause from e
    except ray.exceptions.RayError as e:
        raise CapabilityError(
            f"expected a worker to finish a task, lost {TRIES + 1} ({first_line(e)}): "
            "is memory short?"
        ) from e
