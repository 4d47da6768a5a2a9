"""Imports without what PySide6 and pyqtgraph add to them."""

import importlib
import sys

import PySide6.QtCore
import PySide6.QtGui
import PySide6.QtWidgets


def hasten_imports() -> None:
    """Have PySide6 not read the source of each module that is imported from now on; call it before all other imports.

    It looks there for uses of itself, for the sake of `from __feature__ import`, which this program has nowhere. That
    takes a fifth of the time of the window's imports, and `linecache` keeps what was read: 24 MB. Where PySide6 has
    changed, imports are as slow as ever.
    """
    search = sys.modules.get("shibokensupport.feature")
    if search is not None:
        search.__dict__["_mod_uses_pyside"] = lambda _module: False


def import_plots() -> None:
    """Import the plots with pyqtgraph, which uses PySide6's modules in place of copies of them.

    It copies every class of Qt into modules of its own, and PySide6 makes a class when it is first asked for: more than
    a third of the import's time and 7 MB are for classes that nobody uses. The modules list nothing meanwhile, so that
    nothing is copied. Where pyqtgraph has changed, it copies as ever.
    """
    shared = (PySide6.QtCore, PySide6.QtGui, PySide6.QtWidgets)
    listed = [vars(module).get("__dir__") for module in shared]
    for module in shared:
        sys.modules.setdefault(f"pyqtgraph.Qt.{module.__name__.rpartition('.')[2]}", module)
        module.__dict__["__dir__"] = list
    try:
        importlib.import_module("app.gui.plot.time_panel")
    finally:
        for module, names in zip(shared, listed, strict=True):
            if names is None:
                del module.__dict__["__dir__"]
            else:
                module.__dict__["__dir__"] = names
