"""The report in a real browser: it draws, answers, fits a phone, and stays at home."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("ROOD_CHROMIUM") or shutil.which("chromium")
ARGUMENTS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
FIGURES = ("fall", "eps", "scores")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium: install one or set ROOD_CHROMIUM"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    """A way to open a page; afterwards nothing may have gone wrong on it or left the machine."""
    contexts, wrong = [], []

    def watch(request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            wrong.append(f"request to {request.url}")

    def open_page(path: Path, width: int = 1280, **context: object):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **context))
        page = contexts[-1].new_page()
        page.on("request", watch)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda m: m.type in ("error", "warning") and wrong.append(m.text))
        page.goto(path.as_uri())
        page.wait_for_selector("#plot-scores svg.main-svg")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def drawn(page, name: str) -> str:
    return page.inner_html(f"#plot-{name}")


def background(page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def line_colours(page) -> list[str]:
    script = "[...document.querySelectorAll('#plot-eps .js-line')].map(l => l.style.stroke)"
    return page.evaluate(script)


def until(page, script: str) -> None:
    """Wait for something to be true; playwright's own way needs eval, which the page forbids."""
    for _ in range(100):
        if page.evaluate(script):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {script}")


def overflow(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_with_marks_in_it(opened, report: Path, name: str) -> None:
    page = opened(report)
    assert page.locator(f"#plot-{name} svg.main-svg").count() > 0
    assert page.locator(f"#plot-{name} .scatterlayer path").count() >= 4
    assert page.locator(f"#plot-{name}").get_attribute("role") == "img"
    assert page.inner_text(f"#words-{name}").strip() or page.text_content(f"#words-{name}")


@pytest.mark.parametrize("name", FIGURES)
def test_every_selector_changes_its_figure_and_its_words(opened, report: Path, name: str) -> None:
    page = opened(report)
    selectors = page.locator(f"select[data-figure={name}]:visible")
    assert selectors.count() >= 2
    for i in range(selectors.count()):
        before, words = drawn(page, name), page.text_content(f"#words-{name}")
        selectors.nth(i).select_option(index=1)
        assert drawn(page, name) != before
        assert page.text_content(f"#words-{name}") != words


def test_one_line_can_be_picked_out(opened, report: Path) -> None:
    page = opened(report)
    page.locator("select[data-highlight=eps]").select_option(label="knn")
    script = "[...document.querySelectorAll('#plot-eps .trace.scatter')].map(t => t.style.opacity)"
    faint = [float(o or 1) < 0.5 for o in page.evaluate(script)]
    assert sorted(faint) == [False, True, True, True]


def test_a_choice_without_numbers_says_so_and_the_next_one_draws_again(opened, report) -> None:
    page = opened(report)
    page.evaluate(
        "s => { s.add(new Option('none', '99')); s.value = '99';"
        " s.dispatchEvent(new Event('change', {bubbles: true})); }",
        page.query_selector("select[data-figure=fall]"),
    )
    assert page.inner_text("#plot-fall") == "There are no numbers for this choice."
    page.locator("select[data-figure=fall]").first.select_option(index=0)
    assert page.locator("#plot-fall svg.main-svg").count() > 0
    assert "There are no numbers" not in page.inner_text("#plot-fall")


def test_the_keyboard_reaches_every_control_and_shows_where_it_is(opened, report: Path) -> None:
    page = opened(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    reached, selectors = [], page.locator("select:visible").count()
    for _ in range(80):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "(() => { const e = document.activeElement;"
            " return [e.tagName, getComputedStyle(e).outlineStyle]; })()"
        )
        reached.append(focused[0])
        if focused[0] in ("SELECT", "SUMMARY", "A"):
            assert focused[1] != "none"
    assert reached.count("SELECT") >= selectors
    assert {"A", "SUMMARY", "DIV"} <= set(reached)


def test_dark_mode_changes_the_page_and_the_plots_at_once(opened, report: Path) -> None:
    page = opened(report, color_scheme="light")
    paper, lines = background(page), line_colours(page)
    page.emulate_media(color_scheme="dark")
    until(page, f"document.querySelector('#plot-eps .js-line').style.stroke !== '{lines[0]}'")
    assert background(page) != paper
    assert not set(line_colours(page)) & set(lines)


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("names", ["report", "hostile_report"])
def test_no_width_makes_the_page_scroll_sideways(
    opened, request: pytest.FixtureRequest, width: int, names: str
) -> None:
    page = opened(request.getfixturevalue(names), width=width)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert overflow(page) <= 0
    widths = page.evaluate("[...document.querySelectorAll('.plot svg')].map(s => s.clientWidth)")
    assert max(widths) <= width


def test_turning_the_phone_draws_the_figures_again(opened, report: Path) -> None:
    page = opened(report, width=360)
    page.set_viewport_size({"width": 800, "height": 360})
    until(page, "document.querySelector('#plot-eps svg').clientWidth > 600")
    page.set_viewport_size({"width": 360, "height": 800})
    until(page, "document.querySelector('#plot-eps svg').clientWidth < 360")
    assert overflow(page) <= 0


def test_hostile_names_do_not_run(opened, hostile_report: Path) -> None:
    page = opened(hostile_report)
    for name in FIGURES:
        for select in page.locator(f"select[data-figure={name}]:visible").all():
            select.select_option(index=1)
    page.mouse.move(640, 450)
    assert page.evaluate("window.hacked") is None
    assert page.locator(".plot a").count() == 0
    assert "<script>window.hacked = true</script>" in page.inner_text("main")


def test_a_script_that_got_in_would_not_run(browser, report: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    text = report.read_text(encoding="utf-8")
    bad = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'></main>"
    broken.write_text(text.replace("</main>", bad), encoding="utf-8")
    page = browser.new_page()
    page.goto(broken.as_uri())
    page.wait_for_selector("#plot-scores svg.main-svg")
    assert page.evaluate("window.hacked") is None
    page.close()


def test_paper_is_light_even_in_dark_mode(opened, report: Path) -> None:
    page = opened(report, color_scheme="dark")
    dark = line_colours(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not set(line_colours(page)) & set(dark)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert line_colours(page) == dark
    assert len(page.pdf()) > 10_000
