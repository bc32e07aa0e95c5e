#!/usr/bin/env bash
# Installs the Python sources of vLLM into an environment that has torch: install.sh DIRECTORY REQUIREMENTS
# vLLM's build for the target "empty" compiles nothing. The override keeps the version that was asked for.
set -euo pipefail
venv=$1 requirements=$2
exec 9>"$venv.lock"
flock 9
version=$(sed -n 's/^vllm==//p' "$requirements")
VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=$version PIP_NO_CACHE_DIR=1 "$venv/bin/python" -m pip install -q \
	--disable-pip-version-check --no-deps --no-build-isolation -r "$requirements"
