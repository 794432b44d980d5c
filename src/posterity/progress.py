"""What is seen of work that takes long, and how it is stopped: a progress bar, and Ctrl-C."""

import signal
import sys
import threading
from pathlib import Path


def wanted(progress: bool | None) -> bool:
    """Whether a progress bar is shown: as asked, by default where standard error is a terminal."""
    return sys.stderr.isatty() if progress is None else progress


class Bar:
    """tqdm where it is wanted, else nothing."""

    def __init__(self, total: int, shown: bool, start: int = 0, unit: str = "step") -> None:
        self.shown, self.bar = shown, None
        if shown:
            from tqdm import tqdm

            self.bar = tqdm(total=total, initial=start, unit=unit, file=sys.stderr, dynamic_ncols=True, leave=False)

    def __enter__(self) -> "Bar":
        return self

    def update(self, postfix: dict[str, str] | None = None) -> None:
        """One step further."""
        if self.bar is not None:
            self.bar.update()
            if postfix:
                self.bar.set_postfix(postfix)

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
