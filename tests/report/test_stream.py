"""The page of a stream: what is kept of a long one, the alarm line, and names of any kind."""

import json
import re
import tracemalloc

import numpy as np
import pytest

from rood.report.stream import POINTS, Stream, figure


def reading(number, evidence=1.0, *, alarm=False, accept=True, file="a.png"):
    return dict(number=number, evidence=evidence, alarm=alarm, accept=accept, file=file)


def seen(values, arl=1e9):
    stream = Stream(arl)
    for i, value in enumerate(values, 1):
        stream.add(reading(i, float(value), alarm=value >= arl))
    return stream


@pytest.mark.parametrize("n", [0, 1, 7, POINTS, POINTS + 1, 3 * POINTS + 5, 20 * POINTS + 123])
def test_points_are_the_highest_of_equally_many_images(n):
    values = np.random.default_rng(n).exponential(size=n)
    stream = seen(values)
    assert len(stream.highest) <= POINTS
    assert n <= POINTS or len(stream.highest) >= POINTS / 2 - 1
    every = stream.every
    parts = [values[i : i + every] for i in range(0, n, every)]
    assert [value for _, value in stream.highest] == [part.max() for part in parts]
    assert [at for at, _ in stream.highest] == [
        1 + i * every + int(part.argmax()) for i, part in enumerate(parts)
    ]


def test_memory_does_not_grow_with_the_stream():
    stream = seen(np.ones(4 * POINTS))
    tracemalloc.start()
    for i in range(4 * POINTS, 40 * POINTS):
        stream.add(reading(i + 1))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 400_000


def test_the_figure_has_the_line_at_which_an_alarm_is_raised():
    stream = seen([1, 30, 120, 2], arl=100)
    drawn = figure(stream).drawings[""]
    evidence, line, alarms = drawn["data"]
    assert (evidence["x"], evidence["y"]) == ([1, 2, 3, 4], [1, 30, 120, 2])
    assert (line["y"], line["name"]) == ([100, 100], "alarm at 100")
    assert (alarms["x"], alarms["y"]) == ([3], [120])
    assert drawn["summary"] == (
        "4 images, 1 alarm; the evidence is highest at image 3, 120, and an alarm is raised at 100."
    )


def test_the_page_is_one_file_and_escapes_names(tmp_path):
    stream = Stream(50)
    stream.add(reading(1, 60.0, alarm=True, accept=False, file="<script>x</script>&.png"))
    stream.write(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>x" not in page
    assert "&lt;script&gt;x" in page
    assert "1 alarm in 1 image<" in page
    assert re.search(r"raise one with probability 2\.0\s% at most", page)
    found = re.search(r'id="figures-json">(.*?)</script>', page, re.DOTALL)
    assert json.loads(found[1])["stream"]["drawings"]
    assert "default-src &#39;none&#39;" in page


def test_of_many_alarms_the_first_are_listed_and_all_are_counted():
    stream = seen([100.0] * 500, arl=10)
    assert (stream.raised, len(stream.alarms)) == (500, 200)
    page = stream.render()
    assert "<h1>500 alarms in 500 images</h1>" in page
    assert "The first 200 are listed." in page


def test_a_stream_without_images_has_a_page():
    assert "0 alarms in 0 images" in Stream(10).render()
