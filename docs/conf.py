"""Settings of Sphinx. `make docs` builds the pages into build/docs; a warning is an error."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "codemod"), str(HERE.parent / "runtime")]

project = "accelerate-migrate"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "from_code", "docstrings"]
default_role = "code"  # docstrings have `this` for code
keep_warnings = False

html_theme = "furo"
html_title = project
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False

myst_heading_anchors = 3
toc_object_entries_show_parents = "hide"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {
    "members": True,
    # Of our own classes, not of those of Python and torch
    "inherited-members": "object,str,Enum,BaseException,Exception,RuntimeError,UserWarning,"
    "LoggerAdapter,DataLoader,Optimizer",
}
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 90
