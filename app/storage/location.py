"""Where the user's database lies when no `--db` says otherwise."""

from pathlib import Path

import platformdirs

from app.places import ROOT

DATABASE_NAME = "profiles.db"


def checkout_root() -> Path | None:
    """The checkout this program runs from, or None when it is installed elsewhere."""
    return ROOT if (ROOT / "start.py").is_file() and (ROOT / "pyproject.toml").is_file() else None


def default_database() -> Path:
    """`profiles.db` at the checkout's root, or in the user's data folder when installed elsewhere."""
    return (checkout_root() or platformdirs.user_data_path("variantscope")) / DATABASE_NAME


def weights_path(database: Path, uid: str) -> Path:
    """Where the run of that uid keeps its weights, if it saves them: in a folder beside the database."""
    return database.with_name(f"{database.name}.weights") / f"{uid}.npz"
