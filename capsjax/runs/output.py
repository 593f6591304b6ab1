"""Standard output that cannot stop a training."""

import contextlib
import io
import os
import sys
from typing import Any, TextIO


class LenientOutput:
    """A stream of text that reports its first failure on stderr and ignores later ones.

    What its encoding lacks is written as an escape; what cannot be written is lost.
    """

    def __init__(self, stream: TextIO):
        self._stream, self._failed = stream, False
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._may_fail():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._may_fail():
            self._stream.flush()

    @contextlib.contextmanager
    def _may_fail(self) -> Any:
        try:
            yield
        except OSError as error:
            if not self._failed:
                self._failed = True
                message = (
                    f"output cannot be written ({error.strerror}); training goes on without it"
                )
                with contextlib.suppress(OSError):  # stderr may lead to the same full disk
                    print(f"warning: {message}", file=sys.stderr)
            # What waits in the buffer would make Python end with an error after all.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
