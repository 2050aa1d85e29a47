#!/usr/bin/env bash
# Installs, by name, the Debian 12 packages that Weighlock needs. The one place that names them.
#
#   tools/install.sh            everything (the same as: tools/install.sh build test)
#   tools/install.sh build      to build and run the program
#   tools/install.sh test       to run all checks, the real engines included
#   tools/install.sh --list     only print the names
#
# Needs root or sudo, and apt. When all are there it asks neither, and takes a moment.
# The Python environment of the real engines is not made here: tests/real/install_env.sh does that.
set -euo pipefail

build_packages=(
  # make, the compilers' driver and the C library's headers
  make g++ libc6-dev
  cmake ninja-build ccache pkg-config git ca-certificates
  # libraries, see cmake/dependencies.cmake
  libboost1.81-dev libboost-json1.81-dev
  libssl-dev libsqlite3-dev libfmt-dev libspdlog-dev
  libcli11-dev libtomlplusplus-dev libc-ares-dev libxxhash-dev libzstd-dev
  prometheus-cpp-dev
  # built with the program, so that `make build` also builds the checks
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
  # what the demonstration and the scripts call
  curl procps python3
)

test_packages=(
  # the second compiler, its sanitisers, and the tools that read our code
  clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev llvm-14
  # the real engines: their environment is made with venv; numba and triton look for a C compiler and Python.h
  python3-venv python3-dev gcc libnuma1 libgomp1
  # the types of the Python package
  mypy
  # the model of docs/model: spin makes the verifier, gcc (above) compiles it
  spin
  # looking into running processes and files when a check fails
  sqlite3 gdb lsof
)

say() { printf 'install: %s\n' "$*"; }

chosen=()
list_only=no
for word in "$@"; do
  case $word in
    build) chosen+=("${build_packages[@]}") ;;
    test) chosen+=("${test_packages[@]}") ;;
    --list) list_only=yes ;;
    *)
      say "unknown word '$word'; known are: build, test, --list" >&2
      exit 2
      ;;
  esac
done
if [ ${#chosen[@]} -eq 0 ]; then
  chosen=("${build_packages[@]}" "${test_packages[@]}")
fi
if [ "$list_only" = yes ]; then
  printf '%s\n' "${chosen[@]}" | sort -u
  exit 0
fi

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status} ' "$1" 2>/dev/null) == "installed "* ]]
}

missing=()
for package in "${chosen[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  say "all ${#chosen[@]} packages are there"
  exit 0
fi
say "${#missing[@]} of ${#chosen[@]} packages are missing: ${missing[*]}"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    say "neither root nor sudo: run this as root, or install sudo" >&2
    exit 1
  fi
  as_root=(sudo)
fi
# Nothing may ask a question: there is nobody to answer in a check. C.UTF-8 is in every Debian, other locales aren't.
quiet=(env DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C.UTF-8)
get=("${as_root[@]}" "${quiet[@]}" apt-get -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)

began=$(date +%s)
# The lists may be absent (a fresh root) or older than what the archive still has: without new ones a fetch is a 404.
say "reading the package lists"
"${get[@]}" -qq update
say "installing"
# dpkg tells every file of every package: hundreds of lines that matter only when it fails.
log=$(mktemp)
if ! "${get[@]}" -qq install --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  rm -f "$log"
  say "apt-get failed, see above" >&2
  exit 1
fi
rm -f "$log"
for package in "${missing[@]}"; do
  if ! is_installed "$package"; then
    say "$package is still missing; 'apt-cache policy $package' tells what this system knows of it" >&2
    exit 1
  fi
done
say "installed ${#missing[@]} packages in $(($(date +%s) - began)) s"
