"""Standard output that cannot stop a training."""

import contextlib
import os
import sys
from typing import Any, TextIO

_said: set[str] = set()


class LenientOutput:
    """A stream of text that reports its first failure on stderr and ignores later ones.

    What its encoding lacks is written as an escape; what cannot be written is lost.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:
            _say_once(f"what {error.encoding} lacks is written as an escape (PYTHONUTF8=1 helps)")
            known = text.encode(error.encoding, "backslashreplace").decode(error.encoding)
            return self.write(known)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        _say_once(f"output cannot be written ({error.strerror}); training goes on without it")
        # What waits in the buffer would make Python end with an error after all.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        with contextlib.suppress(OSError):  # stderr may lead to the same full disk
            print(f"warning: {message}", file=sys.stderr)
