"""A page in headless Chromium, driven by the DevTools protocol through a pipe."""

import json
import os
import shutil
import subprocess
import time
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
SECONDS = 120  # the longest that an answer may take, with a busy machine in mind


class Browser:
    """One tab; a context manager.

    Attributes:
      requests: addresses that the page asked for, without those of data.
      errors: what it wrote to the console as errors or warnings, and uncaught exceptions.
    """

    def __init__(self, profile):
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._number = 0
        from_browser, to_us = os.pipe()
        to_browser, from_us = os.pipe()
        script = f'exec "$@" 3<&{to_browser} 4>&{to_us}'
        arguments = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"),
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", CHROMIUM, *arguments],
            pass_fds=(to_browser, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(to_us)
        self._in = os.fdopen(from_browser, "rb")
        self._out = os.fdopen(from_us, "wb")
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *exception: object) -> None:
        self._out.close()
        self._process.terminate()
        self._process.wait(SECONDS)
        self._in.close()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False):
        """Loads a page, and returns when its scripts and pictures are done."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        for noted in (self._events, self.requests, self.errors):
            noted.clear()
        self.call("Page.navigate", url=address)
        ends = time.monotonic() + SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            assert time.monotonic() < ends, f"{address} was not loaded in {SECONDS} s"
            self._read()
        self.run("Promise.all([...document.images].map((image) => image.decode().catch(() => 0)))")

    def run(self, code: str) -> Any:
        """The value of an expression of JavaScript; a promise's is waited for."""
        result = self.call(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            found = os.read(self._in.fileno(), 1 << 20)
            assert found, "the browser has gone"
            self._buffer += found
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self._note(message["method"], message["params"])
            self._events.append(message)
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            address = params["request"]["url"]
            if not address.startswith("data:"):
                self.requests.append(address)
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
