"""Pages in a browser, in windows of three widths: nothing is cut off, and what is wider than the window scrolls."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.browser import SCHEMES, Browser, Scheme
from tests.report.sample_pages import write_pages

WIDTHS = (400, 800, 1400)

_CUT_OFF = """
(() => {
  const width = document.documentElement.clientWidth;
  const scrolls = element => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const inScroller = element => {
    for (let e = element.parentElement; e; e = e.parentElement) if (scrolls(e)) return true;
    return false;
  };
  const isCutOff = element => {
    if (inScroller(element)) return false;
    const box = element.getBoundingClientRect();
    return box.right > width + 1 || box.left < -1 || (!scrolls(element) && element.scrollWidth > element.clientWidth + 1
      && getComputedStyle(element).display != "inline" && element.clientWidth > 0);
  };
  const found = [...document.querySelectorAll("body, body *:not(svg *)")].filter(isCutOff);
  return found.map(e => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 60)}`);
})()
"""
"""Elements outside of scrollers that are, or whose content is, wider than the window."""

_BROKEN_WORDS = """
[...document.querySelectorAll("td:first-child .fit, .option")].filter(element => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return element.textContent.length < 10 && new Set([...range.getClientRects()].map(box => box.top)).size > 1;
}).map(element => element.textContent)
"""
"""Short words in several lines."""

_PLOT_TEXTS = """
[...document.querySelectorAll("figure svg text")].filter(text => text.textContent.length > 2).map(text => {
  const box = text.getBoundingClientRect();
  return [Math.min(box.width, box.height), text.textContent];
})
"""
"""The height in pixels of each text in a plot, whichever way it is turned; short ones may be higher than wide."""

_LOW_CONTRAST = """
(() => {
  const channels = color => color.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const luminance = color => {
    const linear = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = channels(color).map(c => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const card = getComputedStyle(document.querySelector(".scroll")).backgroundColor;
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  return [...document.querySelectorAll("td, th, .good, .bad, .muted, figcaption, figure svg text")].map(element => {
    const style = getComputedStyle(element);
    return [contrast(element.namespaceURI.endsWith("svg") ? style.fill : style.color, card), element.textContent];
  }).filter(([value]) => value < 3);
})()
"""
"""Texts on cards whose contrast is below 3 (WCAG's least, for large text)."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_wider_than_the_window_scrolls(
    pages: dict[str, Path], browser: Browser, width: int, scheme: Scheme
) -> None:
    for name, page in pages.items():
        browser.show(page, width, scheme)
        assert browser.value("document.documentElement.scrollWidth") == width, name
        assert browser.value(_CUT_OFF) == [], name
        assert browser.value(_BROKEN_WORDS) == [], name


@pytest.mark.slow
def test_the_page_itself_would_be_found_to_be_cut_off(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text("<body><p style='white-space: nowrap'>" + 200 * "wide " + "</p></body>")
    browser.show(page, 400)
    assert any(found.startswith("P.: wide") for found in browser.value(_CUT_OFF))


@pytest.mark.slow
def test_plots_can_be_read_on_a_narrow_screen(pages: dict[str, Path], browser: Browser) -> None:
    for name, page in pages.items():
        browser.show(page, 400)
        texts = browser.value(_PLOT_TEXTS)
        assert texts or name in ("explanation", "optimized-speed")
        assert [text for height, text in texts if height < 8] == [], name


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_has_contrast(pages: dict[str, Path], browser: Browser, scheme: Scheme) -> None:
    for name, page in pages.items():
        browser.show(page, 800, scheme)
        assert browser.value("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
        assert browser.value(_LOW_CONTRAST) == [], name
