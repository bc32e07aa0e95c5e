#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the machine ====

# FAIL iommu: off
# see the fix for the next boot
# for the next boot:
# turn the SMMU on in the firmware, and boot a kernel with CONFIG_ARM_SMMU_V3=y and iommu.passthrough=0 on its command line

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
