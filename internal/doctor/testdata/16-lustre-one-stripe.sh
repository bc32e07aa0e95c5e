#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the path: file system, mount, disks ====

# WARN lustre: 4.00 GiB on one OST, in stripes of 1.00 MiB
#   on /data/model.safetensors
# lfs setstripe -c -1 -S 16M /data, then write the file anew: lfs migrate -c -1 -S 16M /data/model.safetensors

# WARN lustre: 8 on scratch-OST0000-osc-ff01
#   on osc.*.max_rpcs_in_flight
lctl set_param osc.*.max_rpcs_in_flight=32

# WARN lustre: targets are 50 to 95 % full, the fullest is scratch-OST0000-osc-ff01
#   on /data
# free space, or spread files anew: lfs df /data; lfs migrate -c -1 FILE

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
