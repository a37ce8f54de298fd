"""The page in a real browser, where there is one: it fits the window, says nothing to the console, and prints."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcciol.paper.report import write
from tests.paper.report.example import results_folder

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
START = """
import fcntl, os, sys
fds = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]  # out of the way first
os.dup2(fds[0], 3)  # the browser reads from 3 and writes to 4
os.dup2(fds[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A headless browser, spoken to over two pipes; what its console says is kept."""

    def __init__(self, program: str, folder: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        words += ["--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(to_read), str(to_write), program, *words],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._left, self._count, self._session = b"", 0, ""
        self.console: list[str] = []
        try:
            self._attach()
        except OSError:
            self.close()
            raise

    def _attach(self) -> None:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        os.close(self._write)
        os.close(self._read)
        self._process.kill()
        self._process.wait()

    def ask(self, method: str, **values: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def evaluate(self, expression: str) -> Any:
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, page: Path, width: int, height: int = 900, scheme: str = "light", phone: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=page.as_uri())
        self.evaluate(
            "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        )

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            if not select.select([self._read], [], [], 60)[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self._read, 1 << 16)
            if not more:
                raise ConnectionError("the browser has left")
            self._left += more
        line, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(json.dumps(message["params"]))
        return message


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser is here (looked for {', '.join(NAMES)})")
    try:
        found = Browser(program, tmp_path_factory.mktemp("browser"))
    except OSError as error:
        pytest.skip(f"{program} does not start here: {error}")
    yield found
    found.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write(results_folder(folder / "results"), folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_the_page_fits_the_window(browser: Browser, page: Path, width: int, scheme: str) -> None:
    browser.open(page, width, scheme=scheme, phone=width < 600)
    for opened in ("false", "true"):
        browser.evaluate(f"for (const d of document.querySelectorAll('details')) d.open = {opened}")
        seen, room = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert room == width
        assert seen <= room
    assert browser.console == []


def test_a_number_opens_its_box_inside_the_window(browser: Browser, page: Path) -> None:
    for width in (1280, 375):
        browser.open(page, width)
        for pick in ("[0]", ".at(-1)"):
            browser.evaluate(f"var b = [...document.querySelectorAll('button[popovertarget]')]{pick}")
            browser.evaluate("b.scrollIntoView(); b.click(); var box = document.querySelector(':popover-open')")
            left, right = browser.evaluate("(r => [r.left, r.right])(box.getBoundingClientRect())")
            assert 0 <= left < right <= width
            assert "mean of each seed" in browser.evaluate("box.textContent")
    assert browser.console == []


def test_the_mouse_opens_a_box_and_pressing_keeps_it(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    browser.evaluate("document.querySelector('button[popovertarget]').scrollIntoView({block: 'center'})")
    browser.evaluate("new Promise(done => setTimeout(done, 600))")  # the page scrolls smoothly
    where = "document.querySelector('button[popovertarget]').getBoundingClientRect()"
    x, y = browser.evaluate(f"(r => [r.left + 5, r.top + 5])({where})")

    def mouse(kind: str, x: float, y: float, **more: Any) -> bool:
        browser.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        shown = "new Promise(done => setTimeout(() => done(!!document.querySelector(':popover-open')), 400))"
        return bool(browser.evaluate(shown))

    assert not mouse("mouseMoved", 2, 2)
    assert mouse("mouseMoved", x, y)
    assert not mouse("mouseMoved", 2, 2)
    assert mouse("mouseMoved", x, y)
    mouse("mousePressed", x, y, button="left", clickCount=1)
    assert mouse("mouseReleased", x, y, button="left", clickCount=1)
    assert mouse("mouseMoved", 2, 2)
    assert browser.console == []


def test_it_prints_what_is_unfolded(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    pdf = base64.b64decode(browser.ask("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 10_000
    browser.ask("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll('details')].filter(d => getComputedStyle(d).display !== 'none').length"
    assert browser.evaluate("document.querySelectorAll('details').length > 1")
    assert browser.evaluate(shown) == 0
    browser.evaluate("document.querySelector('details').open = true")
    assert browser.evaluate(shown) == 1
    browser.ask("Emulation.setEmulatedMedia", media="")
    assert browser.console == []


def test_our_own_results_fit_the_window_and_the_paper(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write(Path(__file__).parents[3] / "results", page)
    browser.open(page, 1280)
    hidden = "[...document.querySelectorAll('.stages .scroll')].filter(s => s.scrollWidth > s.clientWidth).length"
    assert browser.evaluate("document.querySelectorAll('.stages .wide').length") == 4
    assert browser.evaluate(hidden) == 0
    browser.open(page, 390, phone=True)
    tall = "[...document.querySelectorAll('.numbers tbody tr')].filter(r => r.clientHeight > 120).length"
    assert browser.evaluate("document.querySelectorAll('.numbers tbody tr').length > 30")
    assert browser.evaluate(tall) == 0  # no name stands there letter by letter
    browser.open(page, 703)  # A4 within its margins
    browser.ask("Emulation.setEmulatedMedia", media="print")
    seen, room = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert seen <= room
    browser.ask("Emulation.setEmulatedMedia", media="")
    assert browser.console == []
