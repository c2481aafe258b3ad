"""Finds gin files: by path, or those that ship by name, such as `--gin_files=inlining/ppo`.

`compiler_opt/gin_configs` is a link to the repository's `gin_configs/`; in a wheel, it is a folder with its files.
"""

from pathlib import Path

from compiler_opt.tools import ml_compiler_opt

FOLDER = Path(__file__).parents[1] / "gin_configs"
"""Of the gin files that ship, `PROBLEM/NAME.gin`."""

_AGENT = "_nn_agent"


def names() -> list[str]:
    """The names `PROBLEM/NAME` of the gin files that ship."""
    return sorted(file.relative_to(FOLDER).as_posix().removesuffix(".gin") for file in FOLDER.glob("*/*.gin"))


def shipped(path: Path) -> Path | None:
    """The gin file that ships under a name, or None.

    Args:
      path: `PROBLEM/NAME`, which may begin with `gin_configs/` and lack `.gin` and `_nn_agent`.
    """
    name = path.as_posix().removeprefix("gin_configs/").removesuffix(".gin")
    known = names()
    return next((FOLDER / f"{each}.gin" for each in (name, f"{name}{_AGENT}") if each in known), None)


def find(path: str) -> tuple[Path, str]:
    """Finds a gin file: that of the path, else the one that ships under this name or google/ml-compiler-opt's path.

    Returns:
      its path, and a note if it may not be the one that was meant; else an empty text.

    Raises:
      ValueError: there is none; the message says which files ship.
    """
    given = Path(path)
    if given.is_file():
        return given, ""
    ours = ml_compiler_opt.gin_path(given)
    if ours is not None and ours.is_file():
        return ours, f"--gin_files={path} is {ours} here"
    found = shipped(ours or given)
    if found is not None and ours is not None:
        return found, f"--gin_files={path} is {ours} here"
    if found is not None:
        beside = any(given.parent.glob("*.gin"))
        return found, f"--gin_files={path}: no such file here; takes the one that ships, {found}" if beside else ""
    if given.exists():
        return given, ""  # The reader says what is wrong with it.
    see = f" (see {ml_compiler_opt.PAGE})" if ours is not None else ""
    raise ValueError(f"no such file{_expected(ours or given)}{see}")


def _expected(path: Path) -> str:
    """The files that ship, for a message: those of the path's problem, else all; an empty text for absolute paths."""
    if path.is_absolute():
        return ""
    by_problem: dict[str, list[str]] = {}
    for name in names():
        problem, _, file = name.partition("/")
        by_problem.setdefault(problem, []).append(file.removesuffix(_AGENT))
    chosen = [path.parent.name] if path.parent.name in by_problem else list(by_problem)
    groups = ", ".join(f"{problem}/{{{','.join(by_problem[problem])}}}" for problem in chosen)
    return f"; expected a path, or one of those that ship: {groups}"
