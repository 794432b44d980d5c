"""What is seen of work that takes long, and how it is stopped: a progress bar, and Ctrl-C."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def wanted(progress: bool | None) -> bool:
    """Whether a progress bar is shown: as asked, by default where standard error is a terminal."""
    return sys.stderr.isatty() if progress is None else progress


class Bar:
    """tqdm where it is wanted, else nothing.

    Args:
        total: of the work; None where it is not known.
        shown: whether it is wanted.
        start: what was done before.
        unit: of the work.
        name: of the work.
        delay: seconds before anything is shown, for work that may be short.
    """

    def __init__(
        self,
        total: float | None,
        shown: bool,
        start: int = 0,
        unit: str = "step",
        name: str | None = None,
        delay: float = 0.0,
    ) -> None:
        self.bar: Any = None
        self.shown, self.began, self.delay, self.unshown = shown, time.time(), delay, 0.0
        self.options: dict[str, Any] = {
            "total": total,
            "initial": start,
            "unit": unit,
            "desc": name,
            "unit_scale": unit == "row",
        }
        if shown and not delay:
            self._show()

    def _show(self) -> None:
        from tqdm import tqdm

        self.bar = tqdm(**self.options, file=sys.stderr, dynamic_ncols=True, leave=False)
        self.bar.start_t = self.began

    def __enter__(self) -> "Bar":
        return self

    def update(self, postfix: dict[str, str] | None = None, count: float = 1) -> None:
        """So much further, by default one step."""
        if not self.shown:
            return
        self.unshown += count
        late = self.bar is None and time.time() - self.began >= self.delay
        if late:
            self._show()
        if self.bar is not None:
            self.bar.update(self.unshown)
            self.unshown = 0.0
            if postfix or late:
                self.bar.set_postfix(postfix)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """In here other work is done, which the bar names."""
        if self.bar is not None:
            self.bar.set_description(name)
        yield
        if self.bar is not None:
            self.bar.set_description(self.options["desc"])

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()


class Stop:
    """Ctrl-C with a checkpoint folder: the step under way is finished and saved first. A second one stops at once."""

    def __init__(self, checkpoint: str | Path | None) -> None:
        self.folder, self.asked = checkpoint, False
        self.active = checkpoint is not None and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "Stop":
        if self.active:
            self.before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def now(self, asked: bool) -> None:
        """Stop here, if asked to; all is saved."""
        if asked:
            raise KeyboardInterrupt(
                f"Training was stopped and saved in {self.folder}: the same call goes on from there."
            )

    def __exit__(self, *_: object) -> None:
        if self.active:
            signal.signal(signal.SIGINT, self.before)
