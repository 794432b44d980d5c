"""One self-contained page that shows what a comparison found. Needs matplotlib."""

from posterity.report.comparison import Comparison
from posterity.report.page import page, write

__all__ = ["Comparison", "page", "write"]
