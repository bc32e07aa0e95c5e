#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the path: file system, mount, disks ====

# FAIL ct.udev: not there
#   on /run/udev/data/b259:1
# start the container with -v /run/udev:/run/udev:ro

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
