#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the machine ====

# FAIL pcie.link.nvme: 32.0 GT/s x2 of 32.0 GT/s x4, 7.9 GB/s
#   on nvme0n1 (0000:3a:00.0)
# reseat the drive, check bifurcation in the firmware and the slot's wiring

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
