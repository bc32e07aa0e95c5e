#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the machine ====

# WARN topo.pair: across sockets (SYS): disk on node 0, GPU on node 1; nearer: --gpu 0
#   on nvme0n1 to GPU 1
# use a nearer pair: --gpu 0

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 1
