#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== driver and fabric: before GPUDirect Storage ====

# FAIL drv.open: proprietary kernel module 580.95.05: no direct route works with it
#   on nvidia.ko
# replace the proprietary flavour by the open one, which serves every GPU from Turing on, then reboot; on Ubuntu: apt-get install -y nvidia-driver-580-open

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
