#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the path: file system, mount, disks ====

# FAIL blk.peer: a virtio disk is not a PCI peer: its data passes through the host's memory
#   on vda
# give the machine an NVMe disk of its own (PCI passthrough or local NVMe) and put the data there; until then the staged route is the fastest

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
