"""`bootstrap.sh` with make-believe Pythons: which one it takes, and what it has pip install."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"

# What the script calls besides Python, pip and a compiler.
TOOLS = "bash cat cp dirname env flock head mkdir mv sed sha256sum uname".split()

# Answers what bootstrap.sh asks of a Python; a virtual environment's is a copy of it. The file `pip` gets pip's
# arguments, and what the requirements file among them says.
PYTHON = """\
#!/usr/bin/env bash
case "$1 $2" in
  --version*) echo "Python {version}.1" ;;
  "-c "*requirements/*) echo "requirements/python{version}.txt" ;;
  "-c "*) ;;
  "-m venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  "-m pip")
    echo "$*" >>pip
    for last; do :; done
    [ -d "$last" ] || cat "$last" >>pip
    ;;
  *) exit 3 ;;
esac
"""


class Checkout:
    """A copy of what bootstrap.sh needs of this project, on a machine with nothing but the Pythons it is given."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.programs = directory / "programs"
        self.programs.mkdir()
        for tool in TOOLS:
            path = shutil.which(tool)
            assert path
            (self.programs / tool).symlink_to(path)
        self.add("clang", '#!/usr/bin/env bash\n[ "$1" = --version ] || cat >/dev/null\n')
        for name in ("bootstrap.sh", "pyproject.toml"):
            shutil.copy(ROOT / name, directory)
        shutil.copytree(LOCKS, directory / "requirements")

    def add(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def add_python(self, name: str, version: str) -> None:
        self.add(name, PYTHON.format(version=version))

    def bootstrap(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Runs it; its own interpreter and tools are all that PATH has."""
        command = ["./bootstrap.sh", "--no-apt", "--clang", "clang", *options]
        environment = {"PATH": str(self.programs)}
        return subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def pip(self) -> str:
        """What pip was called with, and the files that it was given."""
        return (self.directory / "pip").read_text()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_the_only_python_gets_its_lock(checkout: Checkout, version: str) -> None:
    checkout.add_python("python3", version)
    done = checkout.bootstrap()
    assert (done.returncode, done.stderr) == (0, "")
    assert f"ready: Python {version}.1" in done.stdout
    lock = (LOCKS / f"python{version}.txt").read_text()
    tools, everything, project = checkout.pip().split("-m pip ")[1:]
    assert "--no-deps --require-hashes -r" in tools
    for name in ("setuptools", "wheel"):
        assert any(line.startswith(f"{name}==") for line in tools.splitlines())
    assert tools.count("==") == 2 and tools.count("--hash=sha256:") >= 2 and not tools.rstrip().endswith("\\")
    assert f"--no-deps --no-build-isolation --require-hashes -r requirements/python{version}.txt\n{lock}" in everything
    assert project.endswith("--no-deps --no-build-isolation -e .\n")


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_a_minimal_installation_gets_its_own_lock(checkout: Checkout, version: str) -> None:
    checkout.add_python("python3", version)
    done = checkout.bootstrap("--minimal")
    assert (done.returncode, done.stderr) == (0, "")
    tools, everything, project = checkout.pip().split("-m pip ")[1:]
    assert "--no-deps --no-compile --require-hashes -r" in tools and "setuptools==" in tools
    lock = (LOCKS / f"minimal-python{version}.txt").read_text()
    assert f"--require-hashes -r requirements/minimal-python{version}.txt\n{lock}" in everything
    assert "tensorflow" not in everything and project.endswith("-e .\n")
    assert "no LLVM headers" in done.stdout, "what deploying needs is looked for"


def test_minimal_installs_once_and_never_instead_of_everything(checkout: Checkout) -> None:
    checkout.add_python("python3", "3.11")
    checkout.bootstrap("--minimal")
    minimal = checkout.pip()
    assert checkout.bootstrap("--minimal").returncode == 0
    assert checkout.pip() == minimal
    assert checkout.bootstrap().returncode == 0, "the rest is added"
    everything = checkout.pip().removeprefix(minimal)
    assert "-r requirements/python3.11.txt" in everything
    assert checkout.bootstrap("--minimal").returncode == 0
    assert checkout.pip() == minimal + everything


def test_311_is_preferred_and_then_python3(checkout: Checkout) -> None:
    for name, version in [("python3.10", "3.10"), ("python3.13", "3.13"), ("python3", "3.12")]:
        checkout.add_python(name, version)
    assert "ready: Python 3.12.1" in checkout.bootstrap().stdout
    shutil.rmtree(checkout.directory / ".venv")
    checkout.add_python("python3.11", "3.11")
    assert "ready: Python 3.11.1" in checkout.bootstrap().stdout


def test_a_python_that_does_not_run_is_passed_over(checkout: Checkout) -> None:
    checkout.add("python3.11", "#!/usr/bin/env bash\nexit 127\n")  # as pyenv leaves for what it has not switched on
    checkout.add_python("python3", "3.14")
    checkout.add_python("python3.13", "3.13")
    assert "ready: Python 3.13.1" in checkout.bootstrap().stdout


def test_a_second_run_installs_nothing(checkout: Checkout) -> None:
    checkout.add_python("python3", "3.13")
    checkout.bootstrap()
    installed = checkout.pip()
    assert checkout.bootstrap().returncode == 0
    assert checkout.pip() == installed


def test_another_python_makes_another_environment(checkout: Checkout) -> None:
    checkout.add_python("python3", "3.13")
    checkout.add_python("mine", "3.12")
    checkout.bootstrap()
    assert "ready: Python 3.12.1" in checkout.bootstrap("--python", "mine").stdout
    assert "-r requirements/python3.12.txt" in checkout.pip()
    assert "ready: Python 3.12.1" in checkout.bootstrap().stdout, "what is there is kept"


def test_no_python_that_fits(checkout: Checkout) -> None:
    checkout.add_python("python3", "3.14")
    done = checkout.bootstrap()
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: no Python 3.10 to 3.13 found") and "--python PATH" in line


def test_a_python_that_does_not_fit(checkout: Checkout) -> None:
    checkout.add_python("mine", "3.9")
    done = checkout.bootstrap("--python", "mine")
    assert done.returncode == 2
    assert done.stderr == "error: --python mine: expected a Python 3.10 to 3.13, found Python 3.9.1\n"
    done = checkout.bootstrap("--python", "nowhere/python")
    assert done.returncode == 2
    assert done.stderr == "error: --python nowhere/python: no such executable\n"


def test_what_the_tests_build_with(checkout: Checkout) -> None:
    checkout.add_python("python3", "3.13")
    checkout.add("dpkg-query", "#!/usr/bin/env bash\nexit 1\n")
    done = checkout.bootstrap("--both-clangs", "--slow-tests")
    wanted = "ninja-build make ccache g++ valgrind zsh dpkg-dev build-essential binutils-gold clang-tools-22 "
    wanted += "clang-tools-19 linux-perf csmith libcsmith-dev chromium qemu-user gcc-aarch64-linux-gnu "
    wanted += "libc6-dev-arm64-cross libclang-rt-22-dev libclang-rt-19-dev"
    assert done.returncode == 2 and wanted in done.stderr
    for version in (22, 19):
        checkout.add(f"clang-{version}", f"#!/usr/bin/env bash\necho {checkout.directory}\n")
    (checkout.directory / "lib" / "linux").mkdir(parents=True)
    (checkout.directory / "lib" / "linux" / "libclang_rt.profile-x86_64.a").touch()
    for tool in (
        "ninja",
        "make",
        "ccache",
        "g++",
        "valgrind",
        "zsh",
        "dpkg-buildpackage",
        "ld.gold",
        "perf",
        "csmith",
        "chromium",
        "clang-scan-deps-19",
        "clang-scan-deps-22",
    ):
        checkout.add(tool, "#!/usr/bin/env bash\n")
    checkout.add("dpkg-query", "#!/usr/bin/env bash\necho -n installed\n")
    assert checkout.bootstrap("--both-clangs").returncode == 0
