#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the machine ====

# FAIL iommu: on, groups: 1, type: identity (iommu.passthrough=1)
# see the fix for the next boot
# for the next boot:
# put iommu.passthrough=0 on the kernel command line, and remove iommu.passthrough=1 and iommu=pt

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
