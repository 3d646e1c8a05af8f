"""The page in a real browser: Chromium, without a network, light and dark, by keyboard alone."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .world import Served, served, tiny_engine

CHROMIUM = os.environ.get("DRAFTPROOF_CHROMIUM") or next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
SHOTS = os.environ.get("DRAFTPROOF_SCREENSHOTS")  # a folder to leave pictures in


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(tiny_engine("chain")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any, server: Served, request: Any) -> Iterator[Any]:
    """A fresh page; whatever the browser complains of, or fetches from elsewhere, fails the test."""
    context = browser.new_context(color_scheme=getattr(request, "param", "light"), viewport=SIZE)
    made, complaints = context.new_page(), []
    made.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    made.on("pageerror", lambda e: complaints.append(str(e)))
    made.on("request", lambda r: complaints.append(r.url) if not r.url.startswith((server.url, "data:")) else None)
    made.goto(server.url)
    yield made
    context.close()
    assert complaints == []


SIZE = {"width": 1100, "height": 760}


def say(page: Any, text: str, *, tokens: int = 60) -> None:
    page.fill("#limit", str(tokens))
    page.focus("#input")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.wait_for_selector("#send:not([disabled])", timeout=20_000)


def shoot(page: Any, name: str) -> None:
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{name}.png")


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_an_answer_is_tinted_by_origin_and_the_figures_move(page: Any, server: Served, request: Any) -> None:
    say(page, "hello")
    answer = page.locator(".turn.assistant")
    whole = server.chat(max_tokens=60)["choices"][0]["message"]["content"]
    assert answer.evaluate("e => e.textContent") == whole
    drafted, bonus = page.locator(".turn .drafted"), page.locator(".turn .bonus")
    assert drafted.count() > 5 and bonus.count() > 5
    colours = {e.evaluate("e => getComputedStyle(e).backgroundColor") for e in (drafted.first, bonus.first)}
    assert len(colours) == 2
    titles = page.locator(".round").evaluate_all("all => all.map(e => e.title)")
    assert any(t.startswith("drafted 5, accepted") for t in titles)
    expect = pytest.importorskip("playwright.sync_api").expect  # waits without eval, which the page's policy forbids
    expect(page.locator("#tau")).to_have_text(re.compile("[1-9]"))
    expect(page.locator("#chart .bar")).to_have_count(5)
    assert "accept" in page.locator("#chart svg").get_attribute("aria-label").lower()
    assert "echo (chain)" in page.locator("#engine").inner_text()
    assert "fixed length" in page.locator("#policy").inner_text()
    shoot(page, request.node.callspec.id)


def test_an_example_is_asked_by_keyboard_and_its_rounds_are_summed_up(page: Any) -> None:
    shoot(page, "empty")
    page.fill("#limit", "40")
    page.focus(".example")
    page.keyboard.press("Enter")
    page.wait_for_selector(".summary")
    assert page.locator(".turn.user").inner_text().startswith("Tom has 3 boxes")
    rounds = page.locator(".round").count()
    told = page.locator(".summary").inner_text()
    assert told.startswith(f"{rounds} rounds · ") and float(told.split(" · ")[1].split()[0]) > 1.5, told
    assert page.locator("#hint").count() == 0
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator("#spark polyline")).to_have_count(1)


def test_dark_follows_the_system_and_the_button(page: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    page.click("#theme")
    assert page.evaluate(ground) == light and page.locator("#theme").inner_text() == "theme: light"
    page.click("#theme")
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == dark
    page.reload()
    assert page.evaluate(ground) == dark


def contrast(page: Any, selector: str) -> float:
    """WCAG's ratio between an element's text and the first opaque ground below it."""
    return float(page.eval_on_selector(selector, CONTRAST))


CONTRAST = """e => {
  const parts = c => c.match(/[\\d.]+/g).map(Number);
  const linear = v => v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = parts(c).map(linear); return .2126 * r + .7152 * g + .0722 * b; };
  const clear = e => parts(getComputedStyle(e).backgroundColor)[3] === 0;
  let ground = e;
  while (ground.parentElement && clear(ground)) ground = ground.parentElement;
  const found = [getComputedStyle(e).color, getComputedStyle(ground).backgroundColor].map(light);
  return (Math.max(...found) + .05) / (Math.min(...found) + .05);
}"""


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_text_can_be_read(page: Any) -> None:
    for selector in (
        "#hint",
        "#hint .drafted",
        "#hint .bonus",
        ".example",
        "#tau",
        "#engine",
        "dt",
        "dd",
        ".note",
        "#send",
        "form label",
    ):
        assert contrast(page, selector) >= 4.5, selector


def test_everything_can_be_reached_by_keyboard(page: Any) -> None:
    assert page.evaluate("document.activeElement.id") == "input"
    reached = set()
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert {"theme", "log", "input", "temperature", "limit", "clear", "send"} <= reached
    unnamed = page.evaluate("[...document.querySelectorAll('input,textarea')].filter(e => !e.labels.length).length")
    assert unnamed == 0


def test_escape_stops_an_answer(page: Any, server: Served) -> None:
    step = server.service.engine.step

    def slow() -> Any:
        import time

        time.sleep(0.03)
        return step()

    server.service.engine.step = slow  # type: ignore[method-assign]
    try:
        page.fill("#limit", "900")
        page.focus("#input")
        page.keyboard.type("for ever")
        page.keyboard.press("Enter")
        page.wait_for_selector(".turn.assistant .round", state="attached")
        page.keyboard.press("Escape")
        page.wait_for_selector("#send:not([disabled])", timeout=3000)
        assert page.evaluate("document.activeElement.id") == "input"
    finally:
        server.service.engine.step = step  # type: ignore[method-assign]


def test_a_second_turn_is_answered_from_the_cache(page: Any) -> None:
    say(page, "first " * 10, tokens=40)
    say(page, "second", tokens=20)
    assert page.locator(".turn.assistant").count() == 2
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator("#cache")).to_have_text(re.compile(r"^\s*(2[1-9]|[3-9]\d|\d{3})"))  # per cent, above 20


def test_what_a_model_writes_is_text_not_markup(page: Any) -> None:
    page.evaluate(
        "showRound(turn('assistant'), {drafted: 1, accepted: 1, pieces: [['<img src=x onerror=alert(1)>', true]]})"
    )
    assert page.locator(".turn img").count() == 0
    assert "<img" in page.locator(".turn.assistant").inner_text()


def test_narrow_screens(page: Any) -> None:
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    shoot(page, "narrow")


def test_a_key_is_asked_for(browser: Any) -> None:
    with served(tiny_engine(None), api_key="sesame") as server:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector("#key-label:not([hidden])")
        page.fill("#key", "sesame")
        say(page, "hello", tokens=5)
        assert page.locator(".turn.assistant").count() == 1 and page.locator(".turn.error").count() == 0
        page.close()
