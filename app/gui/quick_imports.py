"""Imports without what PySide6 adds to them."""

import sys

import PySide6.QtCore  # noqa: F401 - its import adds it


def hasten_imports() -> None:
    """Have PySide6 not read the source of each module that is imported from now on; call it before all other imports.

    It looks there for uses of itself, for the sake of `from __feature__ import`, which this program has nowhere. That
    takes a fifth of the time of the window's imports, and `linecache` keeps what was read: 24 MB. Where PySide6 has
    changed, imports are as slow as ever.
    """
    search = sys.modules.get("shibokensupport.feature")
    if search is not None:
        search.__dict__["_mod_uses_pyside"] = lambda _module: False
