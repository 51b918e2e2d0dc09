"""A real browser: Debian's chromium without a window, driven through its pipe."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium")


class Page:
    """A page of its own, `width` pixels wide. Made by open_page()."""

    def __init__(self, process, send, receive, width):
        self.process, self.send, self.receive = process, send, receive
        self.last = 0
        target = self.ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.ask("Page.enable")
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", size)

    def ask(self, method, params=None):
        """What the browser answers to one of its DevTools commands."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params or {}}
        if hasattr(self, "session"):
            message["sessionId"] = self.session
        self.send.write(json.dumps(message).encode() + b"\0")
        self.send.flush()
        while True:
            answer = json.loads(self._read())
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self):
        data = bytearray()
        while not data.endswith(b"\0"):
            byte = self.receive.read(1)
            assert byte, f"the browser is gone, with status {self.process.poll()}"
            data += byte
        return data[:-1]

    def go(self, url):
        self.ask("Page.navigate", {"url": url})

    def run(self, script):
        """The value of a JavaScript expression; of a promise, what it comes to."""
        options = {"expression": script, "returnByValue": True, "awaitPromise": True}
        result = self.ask("Runtime.evaluate", options)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script, seconds=30):
        """Waits until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < deadline, f"{script} did not come true; the page says {self.run('document.body.innerText')}"
            time.sleep(0.02)


@contextlib.contextmanager
def open_page(width):
    """A browser with one page, gone with the block."""
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    # A directory that the browser may still write to while it ends.
    with tempfile.TemporaryDirectory(prefix="heddle-browser-", ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            # The browser reads from 3 and writes to 4.
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "browser", PROGRAM]
            + ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
            + [f"--user-data-dir={home}", "about:blank"],
            pass_fds=[theirs_in, theirs_out],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            with open(ours_out, "wb") as send, open(ours_in, "rb") as receive:
                yield Page(process, send, receive, width)
        finally:
            process.terminate()
            process.wait(30)
