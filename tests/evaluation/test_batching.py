"""Memory that runs out makes batches smaller and changes nothing else."""

import json

import pytest
import torch
from frail import hungry
from toy_plan import N, assert_same, carried_out, manifest, toy_plan

from rood.detectors import MSP
from rood.errors import CapabilityError
from rood.evaluation.batching import MOST, fitting, images_at_once, in_parts, out_of_memory
from rood.goals import look_in

HOST = "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"
ERRORS = {
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "python": MemoryError(),
    "the host": RuntimeError(HOST),
}
CALLS = 12  # of the network, before its memory runs out: clean scores are known, attacks began


def audit_of(case, out, model, batch_size=N):
    plan = toy_plan(case, detectors={"model": {"msp": MSP(model)}}, batch_size=batch_size)
    return carried_out(plan, out)


def lines(folder):
    return (folder / "rows.jsonl").read_text().splitlines()


@pytest.fixture(scope="module")
def undisturbed(case, tmp_path_factory):
    return audit_of(case, tmp_path_factory.mktemp("whole"), hungry(case.model, 99, MemoryError()))


@pytest.mark.parametrize("kind", ERRORS)
def test_an_audit_goes_on_with_fewer_images_at_once_and_the_same_rows(
    case, undisturbed, tmp_path, kind
):
    model = hungry(case.model, 5, ERRORS[kind], patience=CALLS)
    out = audit_of(case, tmp_path, model)
    assert model.net.refused
    found, wanted = ([json.loads(line) for line in lines(f)] for f in (out, undisturbed))
    for a, b in zip(found, wanted, strict=True):
        numbers = [[r.pop(k) or 0.0 for k in ("value", "low", "high")] for r in (a, b)]
        assert a == b
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=1e-5)
    assert manifest(out)["notes"] == [
        "model: memory ran out, and msp continued with 5 images at once, which changes scores "
        "by no more than rounding"
    ]
    assert "notes" not in manifest(undisturbed)


def test_memory_that_is_short_from_the_beginning_gives_the_rows_of_small_batches(case, tmp_path):
    model = hungry(case.model, 5, ERRORS["cuda"])
    found = audit_of(case, tmp_path / "short", model)
    assert model.net.refused
    wanted = audit_of(case, tmp_path / "small", hungry(case.model, 99, MemoryError()), batch_size=5)
    assert_same(found, wanted)


def test_an_image_that_alone_is_too_large_is_said_in_one_sentence(case, tmp_path):
    with pytest.raises(CapabilityError, match=r"memory for one image at a time.*CUDA out of") as e:
        audit_of(case, tmp_path, hungry(case.model, 0, ERRORS["cuda"], patience=CALLS))
    assert "\n" not in str(e.value)


def test_other_errors_are_not_taken_for_a_lack_of_memory(case, tmp_path):
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)")
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        audit_of(case, tmp_path, hungry(case.model, 5, error))
    assert not out_of_memory(error)
    assert not out_of_memory(ValueError("out of memory"))


def test_every_image_is_done_once_whatever_fails():
    tried = []

    def work(start, end):
        tried.append((start, end))
        if end - start > 3 and start >= 10:
            raise MemoryError
        return list(range(start, end))

    assert [i for part in in_parts(2, 27, 10, work) for i in part] == list(range(2, 27))
    assert tried == [(2, 12), (12, 22), (12, 17), *((i, min(i + 2, 27)) for i in range(12, 27, 2))]


def test_a_failed_batch_is_let_go_before_the_next_try():
    alive = []

    class Large:
        def __init__(self):
            alive.append(1)

        def __del__(self):
            alive.pop()

    def work(start, end):
        held = Large()
        assert len(alive) == 1
        if end - start > 2:
            raise MemoryError
        return held is None

    assert list(in_parts(0, 8, 8, work)) == [False] * 4


def test_images_at_once_are_a_power_of_two_that_fits():
    assert fitting(2 * 1000, 10) == 64
    assert fitting(2 * 1024, 10.24) == 64
    assert fitting(5, 10) == 1
    assert fitting(10**12, 10) == MOST
    assert fitting(10**12, 0) == MOST


def test_on_the_host_small_images_go_in_larger_batches(case):
    sizes = [images_at_once([], torch.zeros(1, 3, s, s)) for s in (8, 32, 224)]
    assert sizes[0] >= sizes[1] > sizes[2] >= 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_a_gpu_the_free_memory_decides(case):
    import copy

    model = copy.deepcopy(case.model).cuda()
    detector = MSP(model)
    x = torch.rand(16, 3, 256, 256, device="cuda")
    size = images_at_once([detector], x)
    free, _ = torch.cuda.mem_get_info()
    assert 1 <= size <= MOST
    held = torch.empty(int(free * 0.9), dtype=torch.uint8, device="cuda")
    fewer = images_at_once([detector], x)
    del held
    assert fewer < size or size == MOST
    more = torch.rand(fewer, 3, 256, 256, device="cuda", requires_grad=True)
    look_in(detector)(more).sum().backward()
