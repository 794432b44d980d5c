"""The report in a real browser: Chromium without a window."""

import os
import shutil

import pytest
from test_page import classification, regression

from posterity import report

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None and not os.environ.get("CI"):
        pytest.skip("there is no Chromium: `make browser` installs it")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as session:
        running = session.chromium.launch(executable_path=found, args=list(OPTIONS))
        yield running
        running.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    return {
        "images": report.write(classification(), folder / "images.html"),
        "table": report.write(regression(), folder / "table.html"),
    }


@pytest.fixture
def opened(browser, reports):
    """A function that opens a report; at the end nothing may have been complained about or asked of the network."""
    contexts, troubles = [], []

    def complain(message):
        if message.type in ("error", "warning"):
            troubles.append(message.text)

    def open_page(name, viewport=DESKTOP, **options):
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or troubles.append(request.url))
        page.goto(reports[name].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.parametrize("name", ["images", "table"])
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_check_finds_no_serious_fault_and_nothing_is_wider_than_the_screen(
    opened, name, viewport, scheme
):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(name, viewport, color_scheme=scheme)
    found = axe.Axe().run(page).response["violations"]
    serious = [f"{fault['id']}: {fault['nodes'][0]['html'][:200]}" for fault in found]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_the_table_sorts_by_the_column_pressed_and_back(opened):
    page = opened("images")
    table = page.locator("table").first

    def column(place):
        return [
            float(v)
            for v in table.locator("tbody tr").evaluate_all(f"rows => rows.map(r => r.cells[{place}].dataset.value)")
        ]

    heading = table.locator("thead th").nth(2)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    rising = column(2)
    assert rising == sorted(rising)
    assert len(set(rising)) > 1
    page.keyboard.press("Enter")  # the heading has the focus
    assert heading.get_attribute("aria-sort") == "descending"
    assert column(2) == rising[::-1]


@pytest.mark.parametrize("name", ["images", "table"])
def test_the_slider_shows_one_input_at_a_time_and_says_which(opened, name):
    page = opened(name)
    slider, items = page.get_by_role("slider"), page.locator(".item")
    assert items.count() > 20
    assert page.locator(".item:visible").count() == 1
    assert items.first.is_visible()
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert items.nth(1).is_visible()
    assert slider.get_attribute("aria-valuetext").startswith(f"2 of {items.count()}: ")
    page.keyboard.press("End")
    assert items.last.is_visible()
    assert page.locator(".item:visible").count() == 1
    if name == "images":
        shown = items.last.locator("img")
        assert shown.evaluate("image => image.complete && image.naturalWidth") == 5
        assert shown.get_attribute("alt").startswith("Test image ")


def test_everything_that_can_be_used_is_reached_by_the_tab_key(opened):
    page = opened("images")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.tagName + (document.activeElement.textContent || '').slice(0, 12)")
        )
    buttons = page.locator("thead button").all_inner_texts()
    assert {f"BUTTON{text}"[:18] for text in buttons} <= {entry[:18] for entry in reached}
    assert any(entry.startswith("INPUT") for entry in reached)


def test_figures_are_drawn_and_the_page_prints(opened):
    page = opened("images")
    sizes = page.locator("svg[role=img]").evaluate_all("all => all.map(svg => svg.getBoundingClientRect().height)")
    assert len(sizes) > 3
    assert min(sizes) > 80
    assert page.pdf().startswith(b"%PDF")


def test_without_scripts_all_inputs_are_there(opened):
    page = opened("images", java_script_enabled=False)
    assert page.locator(".item:visible").count() == page.locator(".item").count() > 20
