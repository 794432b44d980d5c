"""The code of the documentation's pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(
    r"^```(?:python|\{code-cell\}[^\n]*)\n"  # a block that is shown, or one that is run when the site is built
    r"(?:^---\n.*?^---\n|(?:^:[^\n]*\n)*)"  # a cell's options: YAML, or lines that begin with a colon
    r"(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def blocks(page):
    """The Python of a page below the project's folder, block by block."""
    return FENCE.findall((ROOT / page).read_text())
