"""Notices an interrupt (Ctrl-C) while other code runs, whatever that code makes of it.

Python's handler of SIGINT raises KeyboardInterrupt wherever the main thread is. Some engines turn
it into an error of their own (DuckDB: RuntimeError), and an import that it breaks off may end as
an AttributeError. A caller would take either for a failed query, and would go on and spend.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# A person's Ctrl-C, and the end that a supervisor asks for.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Watched:
    """A handler that calls another one, and keeps what that has raised to leave the program.

    It may stay in place when an interrupt comes while it is put there or taken away: it then does
    what the other does, and the next call uses it again.
    """

    def __init__(self, handler: Any) -> None:
        self.handler, self.raised = handler, list[BaseException]()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self.handler(number, frame)
        except Exception:
            raise
        except BaseException as leaving:
            self.raised.append(leaving)
            raise


class Interrupts:
    """Exceptions that handlers of signals have raised since a moment, to leave the program."""

    def __init__(self, watched: list[_Watched]) -> None:
        self._watched = [(one, len(one.raised)) for one in watched]

    def check(self) -> None:
        """Raises what a handler has raised: a new exception, without text, cause or frames.

        Raises:
            KeyboardInterrupt: a person has interrupted the program.
            SystemExit: a handler of SIGTERM ends the program.
        """
        for one, before in self._watched:
            for leaving in one.raised[before:]:
                if isinstance(leaving, SystemExit):
                    code = leaving.code
                    raise SystemExit(code if isinstance(code, int) else 1) from None
                raise KeyboardInterrupt from None


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Watches the handlers of SIGINT and SIGTERM in a block, if it is in the main thread.

    Handlers that are no function of Python (the operating system's own) stay as they are. A
    handler that raises nothing, or an Exception, interrupts nothing here. An interrupt that the
    block has hidden, and gone on, is raised at its end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Interrupts([])  # Python runs handlers in the main thread alone
        return
    watched, placed = list[_Watched](), list[tuple[int, _Watched]]()
    try:
        for number in _SIGNALS:
            handler: Any = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, (_Watched, signal.Handlers)):
                placed.append((number, _Watched(handler)))
                signal.signal(number, placed[-1][1])  # guard: interrupts-are-watched
                handler = placed[-1][1]
            if type(handler) is _Watched:
                watched.append(handler)
        seen = Interrupts(watched)
        yield seen
        seen.check()  # guard: interrupt-of-an-engine
    finally:
        for place, one in placed:
            now: Any = signal.getsignal(place)
            if now is one:
                signal.signal(place, one.handler)
