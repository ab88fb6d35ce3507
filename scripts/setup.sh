#!/usr/bin/env bash
# Installs every dependency of Stagecoach on Debian 12 and builds the programs into build/bin/.
# Idempotent: a second call finds everything in place and returns at once.
#
#   scripts/setup.sh [--deps-only] [--tests] [--cuda]
#
#   --deps-only  install packages and libtorch, build nothing
#   --tests      build the tests and benchmarks too
#   --cuda       install the full CUDA set of the torch wheel (4.9 GB) instead of the three wheels that a CPU needs
set -euo pipefail
cd "$(dirname "$0")/.."

deps_only=; tests=; cuda=
for argument in "$@"; do
  case $argument in
    --deps-only) deps_only=1 ;;
    --tests) tests=1 ;;
    --cuda) cuda=1 ;;
    *) sed -n 2,9p "$0" >&2; exit 64 ;;
  esac
done

# Everything here comes from Debian 12 main.
packages=(
  g++ cmake ninja-build ccache pkg-config git ca-certificates
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  libcli11-dev libyaml-cpp-dev nlohmann-json3-dev libsqlite3-dev libssl-dev zlib1g-dev libc-ares-dev libre2-dev
  sentencepiece
  python3 python3-venv python3-pip
  bible-kjv
)
# Where libtorch goes: outside the checkout, so that every clone on a machine shares it.
torch_home=${STAGECOACH_TORCH_HOME:-/opt/stagecoach/torch-2.11.0}

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "setup: run as root, or install first: apt-get install ${missing[*]}" >&2; exit 77
  fi
  echo "setup: installing ${#missing[@]} Debian packages" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The wheel carries libtorch; libtorch_cpu.so needs only two of the NVIDIA wheels, so the other 3.8 GB stay away.
install_torch() {
  [ ! -f "$torch_home/complete${cuda:+-cuda}" ] || return 0
  echo "setup: installing libtorch 2.11.0 into $torch_home" >&2
  mkdir -p "$torch_home"
  python3 -m venv "$torch_home/venv"
  if [ -n "$cuda" ]; then
    "$torch_home/venv/bin/pip" install -q --disable-pip-version-check torch==2.11.0
    touch "$torch_home/complete-cuda"
  else
    "$torch_home/venv/bin/pip" install -q --disable-pip-version-check --no-deps \
      torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
  fi
  touch "$torch_home/complete"
}

[ -z "$tests" ] || packages+=(clang-format clang-tidy)
install_packages
install_torch
[ -z "$deps_only" ] || exit 0

export CCACHE_DIR=${CCACHE_DIR:-$HOME/.cache/ccache}
export STAGECOACH_TORCH_HOME=$torch_home
# Ninja configures again by itself when a CMake file has changed.
if [ ! -f build/build.ninja ]; then
  mkdir -p build
  cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 70; }
fi
preset=release
[ -z "$tests" ] || preset=checks
cmake --build --preset "$preset" >&2
