"""The site: pages are Markdown, code cells are run when it is built, and the reference comes from the docstrings."""

import logging
import os
import tempfile
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import posterity

# Kernels that run the pages say what is an error, and no more.
logging.getLogger("traitlets").setLevel(logging.WARNING)
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
profile = Path(os.environ["IPYTHONDIR"], "profile_default")
profile.mkdir()
(profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n")

project = "posterity"
release = version = posterity.__version__
project_copyright = "the posterity authors"
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "cache"  # a page is run again when its code changes; `make clean` forgets
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_show_tb = True  # else a page that fails says no more than that
nb_execution_in_temp = True
nb_merge_streams = True

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False

copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = "posterity"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_math_renderer = "mathml"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1b6b63", "color-brand-content": "#1b6b63"},
    "dark_css_variables": {"color-brand-primary": "#6fc7bb", "color-brand-content": "#6fc7bb"},
}


def _inline(self, node):
    self.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block(self, node):
    self.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _plain(app, what, name, obj, options, lines):
    """In a docstring an absolute value is no substitution, and what is indented after a colon is code."""
    for at, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.endswith(":") and lines[at + 1 : at + 2] == [""] and lines[at + 2][indent : indent + 4].isspace():
            line += ":"
        parts = line.split("`")
        lines[at] = "`".join(p if n % 2 else p.replace("|", r"\|") for n, p in enumerate(parts))


def setup(app):
    """Equations become MathML, which browsers draw themselves: no script, and nothing is fetched."""
    app.connect("autodoc-process-docstring", _plain)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
