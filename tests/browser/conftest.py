"""A real browser without a network. Every error or warning of a page is a failure."""

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def chromium():
    """Path of the browser: what the environment variable CHROMIUM says, else the first one that is installed."""
    if named := os.environ.get("CHROMIUM"):
        assert shutil.which(named), f"CHROMIUM={named} is no program; name Chromium's executable, or unset it"
        return named
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("needs Chromium: apt-get install chromium, or name its executable in the environment as CHROMIUM")


@pytest.fixture(scope="session")
def browser(chromium):
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra 'dev'")
    with sync_api.sync_playwright() as playwright:
        # Root, as in a container, has no sandbox; the pages are our own.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page, its network requests and its console messages."""

    def __init__(self, context):
        self.page = context.new_page()
        self.requests = []
        self.complaints = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "console",
            lambda message: message.type in ("error", "warning") and self.complaints.append(message.text),
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path):
        self.page.goto(path.as_uri(), wait_until="load")
        return self.page

    def check(self):
        """Fail if the page requested anything but itself, or logged an error or a warning."""
        foreign = [url for url in self.requests if not url.startswith(("file:", "blob:", "data:"))]
        assert not foreign, foreign
        assert len([url for url in self.requests if url.startswith("file:")]) == 1, self.requests
        assert not self.complaints, self.complaints


@pytest.fixture
def opened(browser):
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    found = Opened(context)
    yield found
    context.close()
