"""Where the program, its resources and its databases are on disk, and which version it is."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder that holds `app` and `workloads`: of a checkout its root, else where packages are installed."""

RESOURCES = ROOT / "resources"
"""What lies beside the packages: icons, presets, reference runs, traces."""

DATABASE_NAME = "profiles.db"


def checkout_root() -> Path | None:
    """The checkout this program runs from, or None when it is installed elsewhere."""
    return ROOT if (ROOT / "start.py").is_file() and (ROOT / "pyproject.toml").is_file() else None


def program_version() -> str:
    """Return the version of this program, from its installed metadata or its pyproject.toml."""
    import importlib.metadata  # here, as below: the window's first paint needs none of them

    try:
        return importlib.metadata.version("variantscope")
    except importlib.metadata.PackageNotFoundError:
        return _version_in_checkout()


def _version_in_checkout() -> str:
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def default_database() -> Path:
    """`profiles.db` at the checkout's root, or in the user's data folder when installed elsewhere."""
    import platformdirs

    return (checkout_root() or platformdirs.user_data_path("variantscope")) / DATABASE_NAME


def weights_path(database: Path, uid: str) -> Path:
    """Where the run of that uid keeps its weights, if it saves them: in a folder beside the database."""
    return database.with_name(f"{database.name}.weights") / f"{uid}.npz"
