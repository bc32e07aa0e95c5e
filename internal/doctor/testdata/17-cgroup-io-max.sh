#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the machine ====

# WARN cg.io: io.max: 259:0 rbps=524288000 wbps=max riops=max wiops=max
#   on /sys/fs/cgroup/kubepods.slice/pod1
# raise or remove the limit: /sys/fs/cgroup/kubepods.slice/pod1/io.max
# for the next boot:
# edit the unit or the pod that owns this cgroup

# WARN cg.cpu: cpu.max: 2.0 CPUs
#   on /sys/fs/cgroup/kubepods.slice/pod1
# raise the quota: /sys/fs/cgroup/kubepods.slice/pod1/cpu.max
# for the next boot:
# edit the unit or the pod that owns this cgroup

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
