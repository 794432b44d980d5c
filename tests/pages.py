"""The code of the documentation's pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(?:python|\{code-cell\}[^\n]*)\n((?:^:.*\n)*)(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page):
    """The Python of a page below the project's folder, block by block."""
    return [code for _, code in FENCE.findall((ROOT / page).read_text())]
