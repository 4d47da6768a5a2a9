"""Users' commands: freezes the folder, checks out revisions, and combines settings into variants.

A frozen tree is a folder in the user's cache that no run writes to: each run uses a copy (`workloads.script`).
"""

import contextlib
import hashlib
import itertools
import os
import shutil
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import structs

from app.errors import UserError
from app.paths import expand_home
from app.runs.custom import save_source
from app.runs.environment import git_commit, run_git
from app.values import units
from workloads import catalog
from workloads.catalog import Machine, UsageError
from workloads.protocol import MOST_MODULES, Command, RunSpec, Source, UserModule, Value

_MOST_BYTES = 512 * 2**20
_LIFETIME_S = 30 * 86_400
"""How long an unused tree is kept."""
_HASH_SHOWN = 12
_MOST_REVISIONS = 15
"""The most branches, and the most commits, to offer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A command in the user's folder, and what varies besides its placeholders.

    Without revisions the folder is used as it is. The value "" means that an environment variable is not set.
    """

    command: Command
    folder: Path
    revisions: tuple[str, ...] = ()
    variables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    """A user's folder, and the root of its repository, or itself."""

    folder: Path
    root: Path
    is_repository: bool


def script_variants(
    script: Script, settings: Mapping[str, Sequence[Value]], machine: Machine, database: Path | None
) -> list[RunSpec]:
    """Freeze the folder, or each revision, and return every combination of values as a variant, each once.

    `settings` has the values of placeholders and of the program's own parameters. Without a database nothing is frozen,
    and the variants cannot run.

    Raises:
        UsageError: A placeholder lacks a value, or a value a placeholder.
        UserError: The folder cannot be frozen, or has no such revision.
    """
    workload = catalog.script_workload(catalog.script_name(script.command.words))
    names = catalog.command_names(script.command)
    program_names = [parameter.name for parameter in workload.parameters]
    _check_names(names, settings, program_names)
    first = script.command.words[0]
    if any(any(settings.get(name, ())) for name in ("interpreter", "packages")) and not catalog.names_python(first):
        raise UsageError(
            f"interpreter and packages change the command's first word, and {first} is not a Python: begin with "
            f"python, such as python -m torch.distributed.run."
        )
    origin = _find_origin(script)
    for path in map(Path, script.command.words):  # an absolute path would bypass the frozen tree
        if path.is_absolute() and path.suffix == ".py" and path.is_relative_to(origin.root):
            raise UsageError(f"{path} would not run as it is frozen: name it relative to {origin.folder}.")
    lists: dict[str, Sequence[Value]] = {
        **{catalog.placeholder_key(name) if name in names else name: values for name, values in settings.items()},
        **{f"{catalog.VARIABLE}{name}": values for name, values in script.variables.items()},
    }
    commits = {name: _find_commit(origin, name) for name in script.revisions} or {"": ""}
    variants = []
    for revision, commit in commits.items():
        sha256 = _freeze(script, origin, commit, database) if database else ""
        of_code: dict[str, Value] = {catalog.REVISION: f"{revision}@{commit[:_HASH_SHOWN]}"} if revision else {}
        for values in itertools.product(*lists.values()):
            variant = dict(zip(lists, values, strict=True))
            program = catalog.fill_defaults(workload, {k: variant[k] for k in variant if k in program_names}, machine)
            variant = {**program.variant, **variant, **of_code, catalog.SOURCE: sha256}
            catalog.examples_per_step(script.command, variant)
            variants.append(RunSpec(workload=workload.name, variant=variant))
    if len(variants) > catalog.MAX_VARIANTS:
        raise UsageError(f"{len(variants):,} combinations are too many: {catalog.MAX_VARIANTS} at most.")
    return catalog.distinct(variants)


def list_revisions(folder: Path) -> dict[str, str]:
    """Return the newest branches and last commits of a folder's repository, with their subjects; empty without one."""
    most = f"{_MOST_REVISIONS}"
    branches = ("for-each-ref", "--sort=-committerdate", f"--count={most}", "--format=%(refname:short)%00%(subject)")
    commits = ("rev-list", f"--max-count={most}", "--no-commit-header", "--format=%h%x00%s", "HEAD")
    revisions: dict[str, str] = {}
    with contextlib.suppress(UserError):  # no repository, or no commits
        for words in ((*branches, "refs/heads"), commits):
            lines = run_git(expand_home(folder), *words).decode(errors="replace").splitlines()
            revisions |= {name: subject for name, _, subject in (line.partition("\0") for line in lines)}
    return revisions


def _check_names(names: Iterable[str], settings: Iterable[str], program_names: Sequence[str]) -> None:
    if missing := [name for name in {*names} - {*settings} if catalog.placeholder_key(name) != name]:
        raise UsageError(f"{{{missing[0]}}} has no value: add -s {missing[0]}=… before the --.")
    if unknown := [name for name in settings if name not in names and name not in program_names]:
        raise UsageError(
            f"The command has no placeholder {{{unknown[0]}}} for -s {unknown[0]}, and scripts have no such "
            f"parameter; they have: {', '.join(program_names)}."
        )


def _find_origin(script: Script) -> _Origin:
    """Return where the files are; a folder that git ignores is like one outside a repository, but in no revision."""
    absolute = expand_home(script.folder).resolve()
    if not absolute.is_dir():
        raise UsageError(f"{script.folder} is not a folder.")
    outside = _Origin(folder=absolute, root=absolute, is_repository=False)
    try:
        root = Path(os.fsdecode(run_git(absolute, "rev-parse", "--show-toplevel")).strip()).resolve()
    except UserError:
        return outside
    if not absolute.is_relative_to(root):  # the repository's configuration names another folder
        return outside
    if not script.revisions:
        with contextlib.suppress(UserError):  # git fails unless it ignores the folder
            run_git(root, "check-ignore", "--quiet", "--", str(absolute))
            return outside
    return _Origin(folder=absolute, root=root, is_repository=True)


def _find_commit(origin: _Origin, revision: str) -> str:
    try:
        commit = run_git(origin.root, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        return commit.decode().strip()
    except UserError as error:
        shallow = run_git(origin.root, "rev-parse", "--is-shallow-repository").strip() == b"true"
        remote, _, branch = revision.partition("/")
        is_remote = remote in run_git(origin.root, "remote").decode().split()
        fetch = f"--depth=1 {remote} +refs/heads/{branch}:refs/remotes/{revision}" if is_remote else "--unshallow"
        remedy = f" The clone is shallow: `git fetch {fetch}` fetches it." if shallow else ""
        raise UsageError(f"{origin.root} has no revision {revision}.{remedy}") from error


def _freeze(script: Script, origin: _Origin, commit: str, database: Path) -> str:
    """Store a tree and the command as the source of variants; return its `Source.sha256`."""
    with _new_tree() as tree:
        if commit:
            _check_out(origin, commit, tree, tree.with_name("index"))
        else:
            _copy_files(origin.root, tree, _present_files(origin))
        for path in tree.rglob("*"):
            if path.is_symlink() and (target := path.readlink()).is_relative_to(origin.root):  # not to the user's files
                path.unlink()
                path.symlink_to(os.path.relpath(tree / target.relative_to(origin.root), path.parent))
        inner = origin.folder.relative_to(origin.root)
        if not (tree / inner).is_dir():
            raise UsageError(f"{origin.folder} has no files{f' in {commit}' if commit else ' that git tracks'}.")
        hashes = _hashed(tree)
        frozen = _keep(tree, hashes)
    if missing := [target for target in script.command.links.values() if not Path(target).exists()]:
        raise UsageError(f"{missing[0]}, which is to be linked, does not exist.")
    command = structs.replace(script.command, folder=str(inner))
    state = commit or (git_commit(origin.root) if origin.is_repository else "") or ""
    text = "\n".join(filter(None, (catalog.describe_command(command), state and f"git: {state}")))
    source = Source(path=str(origin.folder), text=text, modules=_modules(frozen, hashes), command=command)
    try:
        save_source(database, source)
    except UnicodeEncodeError as error:
        raise UserError(
            f"{error.object!r} is not UTF-8: rename the file, or exclude it in a repository's .gitignore."
        ) from error
    return source.sha256


def _trees() -> Path:
    trees = catalog.cache_folder() / "scripts"
    with contextlib.suppress(OSError):
        trees.mkdir(0o700, parents=True, exist_ok=True)
    if not os.access(trees, os.W_OK):
        raise UserError(f"{trees} is no folder that can be written; VARIANTSCOPE_CACHE names another place.")
    return trees


@contextlib.contextmanager
def _new_tree() -> Iterator[Path]:
    """Yield an empty folder for a tree, beside the others; remove trees that were not used lately."""
    trees = _trees()
    for entry in trees.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - entry.stat().st_mtime > _LIFETIME_S:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    with TemporaryDirectory(prefix="new-", dir=trees) as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        yield tree


def _keep(tree: Path, hashes: Sequence[tuple[str, str]]) -> Path:
    """Move a new tree to its final folder, unless another program has done so; return that folder."""
    frozen = _frozen_folder(hashes)
    if not frozen.is_dir() or _hashed(frozen) != hashes:
        shutil.rmtree(frozen, ignore_errors=True)
        with contextlib.suppress(FileExistsError):
            tree.rename(frozen)
    os.utime(frozen)
    return frozen


def _frozen_folder(hashes: Sequence[tuple[str, str]]) -> Path:
    return _trees() / hashlib.sha256(repr(hashes).encode()).hexdigest()[:_HASH_SHOWN]


def _modules(frozen: Path, hashes: Iterable[tuple[str, str]]) -> tuple[UserModule, ...]:
    return tuple(UserModule(name=name, path=str(frozen / name), sha256=sha256) for name, sha256 in hashes)


def pack_tree(source: Source) -> Path:
    """Return an archive of a command's frozen tree, for another machine; raises `UserError` if it was deleted."""
    frozen = _frozen_folder([(module.name, module.sha256) for module in source.modules])
    archive = frozen.with_suffix(".tar.gz")
    try:
        if not archive.exists():
            with TemporaryDirectory(prefix="new-", dir=frozen.parent) as scratch:
                new = Path(scratch) / archive.name
                with tarfile.open(new, "w:gz", compresslevel=1) as packed:
                    packed.add(frozen, ".")
                new.replace(archive)
        os.utime(archive)
    except OSError as error:
        raise UserError(f"{frozen}, the frozen tree, is gone, or cannot be packed; start the command again.") from error
    return archive


def place_tree(source: Source, archive: Path) -> Source | None:
    """Return another machine's source with its tree on this one, unpacked if needed; None without tree or archive.

    Raises:
        UserError: The tree cannot be unpacked.
    """
    hashes = [(module.name, module.sha256) for module in source.modules]
    if not hashes:
        return source
    frozen = _frozen_folder(hashes)
    if archive.is_file():
        try:
            with _new_tree() as tree:
                with tarfile.open(archive) as packed:
                    packed.extractall(tree, filter="tar")
                archive.unlink()
                _keep(tree, hashes)
        except (OSError, tarfile.TarError) as error:
            raise UserError(f"The files of the command cannot be unpacked in {frozen.parent} ({error}).") from error
    if not frozen.is_dir() or _hashed(frozen) != hashes:
        return None
    os.utime(frozen)
    return structs.replace(source, modules=_modules(frozen, hashes))


def _check_out(origin: _Origin, commit: str, tree: Path, index: Path) -> None:
    """Write the files of a commit through a separate index: the user's repository does not change."""
    for line in run_git(origin.root, "ls-tree", "-r", "--full-tree", commit).decode(errors="replace").splitlines():
        if line.startswith("160000"):  # git's mode of a submodule
            name = line.partition("\t")[2]
            raise UserError(f"{name} is a submodule, whose files are in no revision here; run the folder as it is.")
    run_git(origin.root, "read-tree", commit, index=index)
    run_git(origin.root, "checkout-index", "--all", f"--prefix={tree}{os.sep}", index=index)


def _present_files(origin: _Origin) -> Iterator[str]:
    """Yield the files that git tracks or does not ignore; outside a repository all but hidden ones and caches."""
    if origin.is_repository:
        listed = run_git(origin.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        yield from dict.fromkeys(filter(None, listed.decode(errors="surrogateescape").split("\0")))
        return
    for folder, folders, files in os.walk(origin.root):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__pycache__")) and not os.access(Path(folder, name, "pyvenv.cfg"), os.F_OK)
        ]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (os.path.relpath(Path(folder, name), origin.root) for name in (*links, *files))


def _copy_files(root: Path, tree: Path, names: Iterable[str]) -> None:
    total = 0
    for count, name in enumerate(names, 1):
        path = root / name
        # git also lists deleted files and folders of submodules. The script cannot read what the user cannot.
        if path.is_symlink() or (os.access(path, os.R_OK) and path.is_file()):
            total += path.lstat().st_size
            if count > MOST_MODULES or total > _MOST_BYTES:
                raise UserError(
                    f"{root} has more than {MOST_MODULES:,} files or {units.byte_size(_MOST_BYTES)} to freeze; "
                    f"exclude data in a repository's .gitignore, and link it (--link; in the window, Link)."
                )
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, tree / name, follow_symlinks=False)
        elif (path / ".git").exists():
            _copy_files(path, tree / name, _present_files(_Origin(folder=path, root=path, is_repository=True)))


def _hashed(tree: Path) -> list[tuple[str, str]]:
    """Return the files of a tree with their hashes, then its links with their targets."""
    files, links = [], []
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if path.is_symlink():
            links.append((f"{name} -> {path.readlink()}", ""))
        elif path.is_file():
            files.append((name, UserModule.read(name, str(path)).sha256))
    return [*files, *links]
