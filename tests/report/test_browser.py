"""The report in a real browser: it draws, answers, fits a phone, and stays at home."""

import csv
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_folder import build

from rood.report import write_report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("ROOD_CHROMIUM") or shutil.which("chromium")
ARGUMENTS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
FIGURES = ("fall", "eps", "scores")
KINDS = (
    "two networks",
    "one network",
    "20 detectors",
    "unfinished",
    "untrustworthy",
    "of rood 0.1",
    "hostile names",
)
ROOT = Path(__file__).parents[2]
AXE = [root / "node_modules/axe-core/axe.min.js" for root in (ROOT / ".npm", ROOT)]
WCAG_AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium: install one or set ROOD_CHROMIUM"),
]


PATIENCE = 120_000  # milliseconds to load a page on a busy machine


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
        page.goto(path.as_uri(), timeout=PATIENCE)
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
        last = selectors.nth(i).locator("option").count() - 1
        selectors.nth(i).select_option(index=last)
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


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
@pytest.mark.parametrize("kind", KINDS)
def test_no_width_makes_the_page_scroll_sideways(opened, pages, width: int, kind: str) -> None:
    page = opened(pages[kind], width=width)
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
    page.goto(broken.as_uri(), timeout=PATIENCE)
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


@pytest.mark.parametrize("kind", ["unfinished", "untrustworthy"])
@pytest.mark.parametrize("width", [390, 1280])
def test_what_cannot_be_trusted_has_a_red_banner_on_the_first_screen(
    opened, pages, kind: str, width: int
) -> None:
    page = opened(pages[kind], width=width)
    box = page.locator(".banner").bounding_box()
    assert box["y"] < 100
    assert box["y"] < page.locator("h1").bounding_box()["y"]
    red, green, blue = colour(page, ".banner", "backgroundColor")
    assert red > 120 > 2 * max(green, blue) - 10
    said = page.inner_text(".banner")
    reason = "guesses" if kind == "untrustworthy" else "continues where it stopped"
    assert reason in said


def test_a_page_that_can_be_trusted_has_no_banner(opened, report: Path) -> None:
    assert opened(report).locator(".banner").count() == 0


def colour(page, selector: str, name: str) -> tuple[int, ...]:
    script = "([s, n]) => getComputedStyle(document.querySelector(s))[n].match(/[0-9]+/g)"
    return tuple(int(v) for v in page.evaluate(script, [selector, name])[:3])


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_is_banner_title_facts_figure_findings_numbers(opened, pages, kind: str) -> None:
    page = opened(pages[kind])
    order = [".banner", "h1", ".facts", "nav", "#plot-fall", "#findings", "#networks", "#flags"]
    tops = [page.locator(s).bounding_box()["y"] for s in order if page.locator(s).count()]
    assert tops == sorted(tops)
    assert len(tops) == len(order) - (kind not in ("unfinished", "untrustworthy"))
    assert page.locator("#plot-fall .scatterlayer path").count() > 4


def test_the_first_screen_has_the_figure(opened, report: Path) -> None:
    page = opened(report)
    box = page.locator("#plot-fall").bounding_box()
    assert box["y"] + box["height"] < 950


def test_a_desktop_page_is_no_longer_than_six_screens(opened, pages) -> None:
    for kind in ("two networks", "one network", "20 detectors", "untrustworthy"):
        page = opened(pages[kind])
        assert page.evaluate("document.documentElement.scrollHeight") < 6000, kind
        assert page.locator("details").count() > 5


def test_on_a_phone_the_decisive_column_is_the_first_after_the_name(opened, report: Path) -> None:
    page = opened(report, width=390)
    heads = page.locator("table.summary").first.locator("thead th").all_inner_texts()
    assert heads[0].startswith("Detector")
    assert heads[1].startswith("Both attacked")
    cell = page.locator("table.summary tbody tr").first.locator("td").first
    box = cell.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert cell.locator(".value").inner_text() == "0.077"


def test_the_contents_stay_in_sight(opened, report: Path) -> None:
    page = opened(report)
    page.locator("#flags").scroll_into_view_if_needed()
    page.evaluate("scrollTo(0, 2500)")
    until(page, "Math.abs(document.querySelector('nav').getBoundingClientRect().top) < 2")
    page.locator("nav a[href='#networks']").click()
    script = "document.querySelector('#h-networks').getBoundingClientRect().top"
    until(page, f"Math.abs({script} - 70) < 45")


def column(page, place: int) -> list[str]:
    cells = f"#networks table.summary >> nth=0 >> tbody tr td:nth-child({place}) .value"
    return page.locator(cells).all_inner_texts()


def test_a_table_is_sorted_by_click_and_by_key(opened, report: Path) -> None:
    page = opened(report)
    heads = page.locator("#networks table.summary").first.locator("thead th")
    heads.nth(2).locator("button").click()
    assert column(page, 3) == sorted(column(page, 3), reverse=True)
    assert heads.nth(2).get_attribute("aria-sort") == "descending"
    heads.nth(2).locator("button").press("Enter")
    assert column(page, 3) == sorted(column(page, 3))
    assert heads.nth(2).get_attribute("aria-sort") == "ascending"
    heads.nth(0).locator("button").press("Space")
    names = page.locator("#networks table.summary >> nth=0 >> tbody th").all_inner_texts()
    assert names == sorted(names, reverse=True)
    assert heads.nth(2).get_attribute("aria-sort") == "none"


def test_a_table_is_saved_as_csv_without_formulas(opened, report: Path, tmp_path: Path) -> None:
    page = opened(report)
    with page.expect_download() as waiting:
        page.locator("#networks .csv").first.click()
    assert waiting.value.suggested_filename == "digits-ce-worst-case.csv"
    waiting.value.save_as(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as file:
        head, *lines = csv.reader(file)
    assert head[:2] == ["Detector", "Both attacked"]
    assert {line[0] for line in lines} == {"msp", "energy", "knn", "vim"}
    assert all(0 <= float(line[1]) <= 1 for line in lines)
    page.evaluate("document.querySelector('table.summary tbody th').textContent = '=1+1'")
    with page.expect_download() as waiting:
        page.locator("#networks .csv").first.click()
    waiting.value.save_as(tmp_path / "table.csv")
    assert '"\'=1+1"' in (tmp_path / "table.csv").read_text()


def test_a_term_and_a_badge_open_what_they_mean_by_key(opened, report: Path) -> None:
    page = opened(report)
    assert not page.locator("#term-auroc").is_visible()
    page.locator(".lead button[popovertarget=term-auroc]").focus()
    page.keyboard.press("Enter")
    assert "coin toss" in page.inner_text("#term-auroc")
    assert overflow(page) <= 0
    page.keyboard.press("Escape")
    assert not page.locator("#term-auroc").is_visible()
    page.locator("#networks button.badge.fail").first.press("Enter")
    note = page.locator(".popover:visible")
    assert "vim on digits-aloe, both sides attacked" in note.inner_text()
    note.locator("a").first.click()
    assert not note.is_visible()
    until(page, "document.querySelector('#flag-zero_gradient').closest('details').open")


def test_a_note_opens_beside_its_badge_on_a_phone(opened, report: Path) -> None:
    page = opened(report, width=390)
    page.locator("#networks button.badge.fail").first.click()
    box = page.locator(".popover:visible").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


def test_the_command_is_copied(opened, report: Path) -> None:
    page = opened(report, permissions=["clipboard-read", "clipboard-write"])
    page.locator(".copy").click()
    until(page, "document.querySelector('.copy').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.inner_text("#command")
    assert copied.startswith("rood audit --inside")


def test_two_points_are_not_joined_by_a_line(opened, tmp_path: Path) -> None:
    page = opened(write_report(build(tmp_path, eps=("0.05", "0.1"))))
    assert page.locator("#plot-eps .js-line").count() == 0
    assert page.locator("#plot-eps .scatterlayer path.point").count() == 4 * 3


def test_one_budget_needs_no_figure_of_budgets(opened, tmp_path: Path) -> None:
    page = opened(write_report(build(tmp_path, eps=("0.1",))))
    assert page.locator("#eps").count() == 0
    assert page.locator("nav a[href='#eps']").count() == 0


def test_without_scripts_the_numbers_are_there(browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri(), timeout=PATIENCE)
    assert "0.077" in page.inner_text("#networks")
    assert "needs a browser with scripts" in page.inner_text("#fall")
    page.locator("#networks button.badge").first.click()
    assert page.locator("#verdict-pass").is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_wcag_aa(browser, pages, kind: str, scheme: str) -> None:
    """axe-core finds no violation, contrast included, with everything unfolded."""
    axe = next((path for path in AXE if path.is_file()), None)
    if axe is None:
        pytest.skip("no axe-core: npm install --no-save axe-core@4 --prefix .npm")
    # the page's own policy forbids scripts that are not of the page
    context = browser.new_context(color_scheme=scheme, bypass_csp=True, reduced_motion="reduce")
    page = context.new_page()
    page.goto(pages[kind].as_uri(), timeout=PATIENCE)
    page.wait_for_selector("#plot-scores svg.main-svg")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.evaluate("document.querySelector('.popover.verdict').showPopover()")
    page.evaluate(axe.read_text(encoding="utf-8"))
    options = {"runOnly": {"type": "tag", "values": WCAG_AA}}
    found = page.evaluate("options => axe.run(document, options)", options)
    context.close()
    assert "color-contrast" in {rule["id"] for rule in found["passes"]}
    wrong = [
        (v["id"], n["target"], n["failureSummary"]) for v in found["violations"] for n in v["nodes"]
    ]
    assert wrong == []
