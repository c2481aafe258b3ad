#!/usr/bin/env bash
# Prepares this machine: `.venv` with the locked Python packages, a clang with its LLVM tools and lld, C++ headers.
# If everything is in place, it takes about a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly OLDEST_CLANG=17 NEWEST_CLANG=40 # 17 was the first with the interactive channel; above 40 is not looked for
readonly PREFERRED_CLANGS=(22 19)        # the two that the tests cover; one is enough without --both-clangs
# The Pythons with a lock in requirements/, first the one of every published figure, then what most have.
readonly PYTHONS=(python3.11 python3 python3.13 python3.12 python3.10)

usage() {
  cat <<'HELP'
Usage: ./bootstrap.sh [options]

Creates .venv from the lock of its Python (requirements/), and checks for a clang >= 17 with llvm-size, opt, ld.lld and the
C++ standard headers. Installs missing packages by apt if it runs as root or sudo needs no password; otherwise lists them.

  --minimal       install no TensorFlow (170 MB instead of 2.6 GB): enough to deploy, measure and search for policies,
                  but not to train them; tries to install the LLVM headers, as with --try-plugin
  --both-clangs   require clang-19 and clang-22, and the other programs that the tests use (default: any clang >= 17)
  --clang PATH    use this clang and install none
  --plugin        also require the LLVM headers (llvm-NN-dev) for building the inliner plugin
  --try-plugin    install these headers if possible; without them, decisions go over pipes, which is slower
  --slow-tests    also install what slow tests need: chromium, and what links and runs programs of AArch64
  --python PATH   the Python for .venv, 3.10 to 3.13 (default: 3.11 if installed, else python3)
  --no-apt        install no system packages; list what is missing and stop
  -h, --help      this text
HELP
}

say() { echo "bootstrap: $*"; }
die() {
  echo "error: $*" >&2
  exit 2
}

minimal=false both_clangs=false clang="" plugin=false try_plugin=false slow_tests=false python="" allow_apt=true
while [ $# -gt 0 ]; do
  case "$1" in
    --minimal) minimal=true try_plugin=true ;;
    --both-clangs) both_clangs=true ;;
    --plugin) plugin=true ;;
    --try-plugin) try_plugin=true ;;
    --slow-tests) slow_tests=true ;;
    --no-apt) allow_apt=false ;;
    --clang | --python)
      [ $# -ge 2 ] || die "$1 needs a path; see ./bootstrap.sh --help"
      if [ "$1" = --clang ]; then clang=$2; else python=$2; fi
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) die "unknown option $1; see ./bootstrap.sh --help" ;;
  esac
  shift
done

exec 9<.
flock 9 # two runs at once take turns

# --- apt -------------------------------------------------------------------------------------------------------------

apt_updated=false
become_root=()

# Whether packages can be installed at all; sets become_root. Updates the package lists once.
can_apt() {
  $allow_apt && command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
    become_root=(sudo -n)
  fi
  $apt_updated && return 0
  say "updating the package lists"
  "${become_root[@]}" apt-get update -qq >/dev/null || say "apt-get update failed; using the lists from before"
  apt_updated=true
}

apt_has() { [ -n "$(apt-cache show "$1" 2>/dev/null)" ]; }

# install PACKAGE...: installs, or stops and says what a person has to do.
install() {
  if ! can_apt; then
    if command -v apt-get >/dev/null; then
      die "missing system packages and may not install them; run: sudo apt-get update && sudo apt-get install $*"
    fi
    die "missing system packages, and this system has no apt; install what your distribution calls: $*"
  fi
  say "installing $*"
  DEBIAN_FRONTEND=noninteractive "${become_root[@]}" apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >/dev/null ||
    die "apt-get could not install: $*; run that by hand to see why"
}

# --- Python ----------------------------------------------------------------------------------------------------------

# lock_of PYTHON: prints the path of the lock that fits it, or of one that is not there.
lock_of() { "$1" -c 'import sys; print("requirements/python%d.%d.txt" % sys.version_info[:2])' 2>/dev/null; }

python_fits() { command -v "$1" >/dev/null && [ -f "$(lock_of "$1")" ]; }

find_python() {
  local candidate
  for candidate in "${PYTHONS[@]}"; do
    if python_fits "$candidate"; then
      python=$candidate
      return
    fi
  done
  if can_apt; then
    for candidate in "${PYTHONS[@]}"; do
      if [ "$candidate" != python3 ] && apt_has "$candidate"; then
        install "$candidate" "$candidate-venv"
        python=$candidate
        return
      fi
    done
  fi
  die "no Python 3.10 to 3.13 found (there are locks for no other); install one, e.g. by pyenv or uv, and give --python PATH"
}

# stamp_of LOCK: what .venv/installed contains if that lock is installed.
stamp_of() { cat "$1" pyproject.toml | sha256sum; }

make_venv() {
  if [ -n "$python" ]; then
    command -v "$python" >/dev/null || die "--python $python: no such executable"
    python_fits "$python" || die "--python $python: expected a Python 3.10 to 3.13, found $("$python" --version 2>&1)"
  fi
  if ! python_fits .venv/bin/python || { [ -n "$python" ] && [ "$(lock_of "$python")" != "$(lock_of .venv/bin/python)" ]; }; then
    [ -n "$python" ] || find_python
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      install "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
  fi
  local stamp=.venv/installed full lock installed options=() duration="a few minutes"
  full=$(lock_of .venv/bin/python)
  lock=$full
  installed=$(cat "$stamp" 2>/dev/null) || true
  [ "$installed" = "$(stamp_of "$full")" ] && return # which is enough for --minimal, too
  if $minimal; then
    lock=requirements/minimal-${full#requirements/}
    [ "$installed" = "$(stamp_of "$lock")" ] && return
    options=(--no-compile) # Python compiles what is used, when it is used.
    duration="less than a minute"
  fi
  say "installing the packages of $lock ($duration the first time)"
  # --no-deps: the lock is complete, and from Python 3.12 on departs from pins of TF-Agents (requirements/overrides.txt).
  local pip_install=(.venv/bin/python -m pip --disable-pip-version-check --no-input install -q --no-deps "${options[@]}")
  # What builds the one package without a wheel (gym), and this project, comes out of the lock, too, and first.
  "${pip_install[@]}" --require-hashes -r <(sed -n '/^\(setuptools\|wheel\)==/,/[^\\]$/p' "$lock") &&
    "${pip_install[@]}" --no-build-isolation --require-hashes -r "$lock" ||
    die "pip could not install $lock; its message is above"
  "${pip_install[@]}" --no-build-isolation -e . || die "pip could not install this project; see above" # console commands
  stamp_of "$lock" >"$stamp"
}

# --- clang, LLVM, lld ------------------------------------------------------------------------------------------------

# has_llvm NN: clang-NN with the tools that corpora, scores and evaluation need.
has_llvm() {
  local tool
  for tool in "clang-$1" "clang++-$1" "llvm-size-$1" "llvm-objcopy-$1" "opt-$1" "ld.lld-$1"; do
    command -v "$tool" >/dev/null || [ -x "/usr/lib/llvm-$1/bin/${tool%-*}" ] || return 1
  done
  ! $plugin || [ -e "/usr/lib/llvm-$1/include/llvm/IR/Module.h" ]
}

# llvm_packages NN: what to install for it, one name a line.
llvm_packages() {
  printf '%s\n' "clang-$1" "llvm-$1" "lld-$1"
  if $plugin; then echo "llvm-$1-dev"; fi
}

# newest_llvm: sets clang to the newest complete installation.
newest_llvm() {
  local version
  for ((version = NEWEST_CLANG; version >= OLDEST_CLANG; version--)); do
    if has_llvm "$version"; then
      clang=$(command -v "clang-$version" || echo "/usr/lib/llvm-$version/bin/clang")
      return
    fi
  done
  return 1
}

see_to_clang() {
  if [ -n "$clang" ]; then
    command -v "$clang" >/dev/null || die "--clang $clang: no such executable"
    return
  fi
  if ! $both_clangs && newest_llvm; then return; fi
  local version packages=()
  for version in "${PREFERRED_CLANGS[@]}"; do
    if has_llvm "$version"; then continue; fi
    # Without apt at hand the names are only for the message.
    if ! can_apt || apt_has "clang-$version"; then
      mapfile -t -O ${#packages[@]} packages < <(llvm_packages "$version")
      $both_clangs || break
    elif $both_clangs; then
      say "apt knows no clang-$version; the tests that need it will fail"
    fi
  done
  # A distribution with neither, and nothing that will do: its newest.
  for ((version = NEWEST_CLANG; version >= OLDEST_CLANG; version--)); do
    if [ ${#packages[@]} -gt 0 ] || newest_llvm; then break; fi
    if apt_has "clang-$version"; then mapfile -t packages < <(llvm_packages "$version"); fi
  done
  if [ ${#packages[@]} -gt 0 ]; then install "${packages[@]}"; fi
  newest_llvm ||
    die "no clang >= $OLDEST_CLANG with its llvm tools and lld, and apt knows none; add LLVM's repository, https://apt.llvm.org, to apt's and run this again, or install one and give --clang PATH"
}

# see_to_plugin_headers: those of the clang that was found, if apt has them; never stops.
see_to_plugin_headers() {
  local major
  major=$("$clang" --version | sed -n 's/.*clang version \([0-9]*\).*/\1/p' | head -n 1)
  [ ! -e "/usr/lib/llvm-$major/include/llvm/IR/Module.h" ] || return 0
  if can_apt && apt_has "llvm-$major-dev"; then
    # A subshell, so that a failure to install ends only that.
    (install "llvm-$major" "llvm-$major-dev") && return
  fi
  say "no LLVM headers for the inliner plugin (package llvm-$major-dev); training works without it, more slowly; deploying does not"
}

compiles_cpp() {
  printf '#include <stdlib.h>\n#include <vector>\nint main() { return (int)std::vector<int>(1).back(); }\n' |
    "$clang" -x c++ -fsyntax-only - 2>/dev/null
}

see_to_cpp_headers() {
  compiles_cpp && return
  install g++
  compiles_cpp || die "$clang still finds no C++ standard headers after installing g++; see: $clang -x c++ -v -E /dev/null"
}

# What the tests build with besides clang: C++ by g++, CMake projects (CMake itself is in .venv) by Make and Ninja,
# through ccache, and a package by dpkg-dev, which wants build-essential; they measure with valgrind and perf, csmith makes
# programs for them, and zsh completes. Builds of C++20 modules run clang-scan-deps, and links gold, which some versions
# have in a package of its own; what records profiles needs a runtime, whose package has those of fuzzers, too.
see_to_test_tools() {
  local tool version packages=()
  for tool in ninja make ccache g++ valgrind zsh dpkg-buildpackage; do
    if ! command -v "$tool" >/dev/null; then
      packages+=(ninja-build make ccache g++ valgrind zsh dpkg-dev)
      break
    fi
  done
  # It contains no program; where there is no dpkg, nothing asks for it.
  if command -v dpkg-query >/dev/null &&
    [ "$(dpkg-query -W -f '${db:Status-Status}' build-essential 2>/dev/null)" != installed ]; then
    packages+=(build-essential)
  fi
  if ! command -v ld.gold >/dev/null && { ! can_apt || apt_has binutils-gold; }; then packages+=(binutils-gold); fi
  for version in "${PREFERRED_CLANGS[@]}"; do
    command -v "clang-scan-deps-$version" >/dev/null && continue
    # Without apt at hand the names are only for the message.
    if ! can_apt || apt_has "clang-tools-$version"; then packages+=("clang-tools-$version"); fi
  done
  if ! command -v perf >/dev/null && { ! can_apt || apt_has linux-perf; }; then packages+=(linux-perf); fi
  if ! command -v csmith >/dev/null && { ! can_apt || apt_has csmith; }; then packages+=(csmith libcsmith-dev); fi
  if $slow_tests; then
    if ! command -v chromium >/dev/null && { ! can_apt || apt_has chromium; }; then packages+=(chromium); fi
    if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
      packages+=(qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    fi
  fi
  for version in "${PREFERRED_CLANGS[@]}"; do
    compgen -G "$("clang-$version" -print-resource-dir 2>/dev/null)/lib/*/libclang_rt.profile*.a" >/dev/null && continue
    if ! can_apt || apt_has "libclang-rt-$version-dev"; then packages+=("libclang-rt-$version-dev"); fi
  done
  if [ ${#packages[@]} -gt 0 ]; then install "${packages[@]}"; fi
}

make_venv
see_to_clang
see_to_cpp_headers
if $both_clangs; then see_to_test_tools; fi
if $try_plugin; then see_to_plugin_headers; fi
say "ready: $(.venv/bin/python --version), $("$clang" --version | head -n 1)"
