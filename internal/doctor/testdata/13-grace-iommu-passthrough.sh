#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -e

# ---- now ----

# FAIL iommu: on, groups: 1, type: identity (iommu.passthrough=1)
# see the part for the next boot

# ---- for the next boot ----

# FAIL iommu: on, groups: 1, type: identity (iommu.passthrough=1)
# put iommu.passthrough=0 on the kernel command line, and remove iommu.passthrough=1, iommu=pt and arm-smmu.disable
