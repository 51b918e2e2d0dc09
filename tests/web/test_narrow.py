"""The page on a telephone, in a real browser: 390 pixels wide, nothing has to be scrolled sideways."""

import json
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))
import browser  # noqa: E402
from subject import KEY, PROMPT, heddle  # noqa: E402

WIDTH = 390
MODEL = "somebody/a-model-with-a-name-that-is-as-long-as-those-of-checkpoints-are-70b-instruct"
TOO_WIDE = f"""[...document.querySelectorAll("body *")]
  .filter((e) => e.getBoundingClientRect().right > {WIDTH} + 0.5 || (e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === "auto"))
  .map((e) => e.tagName + "#" + e.id + "." + e.className)"""


@pytest.fixture(scope="module")
def server():
    row = f"  {MODEL}: {{path: {heddle.MODELS / 'adder'}}}\n"
    with heddle.Server(heddle.config(models=[row, "sorter"], extra=f"apiKeys: [{{key: {KEY}, role: admin}}]\n")) as running:
        for prompt in [PROMPT, PROMPT, "x" * 5000]:
            body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}]}
            running.call("/v1/chat/completions", body, headers={"x-api-key": KEY})
        yield running


@pytest.fixture
def page(server):
    if browser.PROGRAM is None:
        pytest.skip("chromium is not installed: the page was not looked at")
    with browser.open_page(WIDTH) as opened:
        opened.go(f"{server.url}/ui/")
        opened.until("document.getElementById('key')?.hidden === false")
        yield opened


def check(page, view):
    width, inner, too_wide = page.run(f"[document.documentElement.scrollWidth, innerWidth, {TOO_WIDE}]")
    assert inner == WIDTH
    assert width <= inner and too_wide == [], f"{view}: {width} px wide; {too_wide}"


def enter(page):
    page.run(f"document.querySelector('#key input').value = {json.dumps(KEY)}; document.getElementById('key').requestSubmit()")
    page.until("document.querySelectorAll('#models tr').length === 2 && document.querySelectorAll('#requests li').length >= 2")


def test_the_question_for_a_key(page):
    check(page, "the question for a key")


def test_what_is_and_was(page):
    enter(page)
    page.until("document.querySelectorAll('#memory .bar').length === 2 && document.querySelectorAll('#decisions li').length >= 1")
    assert page.run("document.querySelector('#models td button').getBoundingClientRect().right") <= WIDTH
    check(page, "memory, models, requests and decisions")


def test_an_answer_and_what_goes_wrong(page):
    enter(page)
    page.run("document.querySelector('#ask output').value = 'x'.repeat(2000)")
    check(page, "a long answer")
    page.run(f"document.querySelector('#ask textarea').value = 'x'.repeat(20000); document.getElementById('ask').requestSubmit()")
    page.until("!document.getElementById('trouble').hidden")
    check(page, "what went wrong")


def test_the_log(page):
    enter(page)
    page.run("document.getElementById('logs').open = true")
    page.until("document.querySelector('#logs pre').textContent.includes('request ended')")
    check(page, "the log")
