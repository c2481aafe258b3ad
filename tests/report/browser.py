"""A headless Chromium, spoken to over two pipes in the DevTools protocol: a line of JSON for each message."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

import pytest

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",  # which root does not have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_TIMEOUT_S = 120.0


class Browser:
    """A page in a browser of its own, for `with`."""

    def __init__(self, profile: Path):
        """Starts the browser; its files are in the folder `profile`."""
        program = next(filter(None, map(shutil.which, _NAMES)), None)
        if program is None:
            pytest.fail("expected a browser, found none; install it: apt-get install chromium")
        (read_end, self._out), (self._in, write_end) = os.pipe(), os.pipe()
        # The browser reads from descriptor 3, and writes to descriptor 4.
        command = f'exec "$@" 3<&{read_end} 4>&{write_end}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", program, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(read_end, write_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        self._buffer, self._number, self._session = b"", 0, ""
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = self._call("Target.createTarget", url="about:blank")
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self._call("Page.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        os.close(self._out)
        self._process.kill()
        self._process.wait()
        os.close(self._in)

    def show(self, page: Path, width: int, scheme: Scheme = "light") -> None:
        """Opens a page in a window of this many pixels."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)
        self._call("Page.navigate", url=page.absolute().as_uri())
        # Scripts run in the page that is there, at first the one before.
        self._until(f"document.readyState == 'complete' && location.href == {json.dumps(page.absolute().as_uri())}")

    def value(self, script: str) -> Any:
        """The value of a JavaScript expression on the page, as JSON."""
        reply = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        reply = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(reply["data"])

    def _until(self, condition: str) -> None:
        end = time.monotonic() + _TIMEOUT_S
        while not self.value(condition):
            assert time.monotonic() < end, condition
            time.sleep(0.01)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (reply := self._message()).get("id") != self._number:
            pass  # an event
        assert "error" not in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._in], [], [], _TIMEOUT_S)[0], "the browser does not answer"
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message
