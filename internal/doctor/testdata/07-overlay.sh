#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the path: file system, mount, disks ====

# FAIL fs.type: overlay mounted at /: this file system has no direct route
#   on /data/model.safetensors
# put the data on a real mount; in a container bind-mount it: -v /data:/data

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
