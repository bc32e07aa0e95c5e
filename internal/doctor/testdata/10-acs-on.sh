#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the machine ====

# WARN pcie.acs: ACS redirects peer traffic
#   on 0000:39:01.0
setpci -s 0000:39:01.0 ECAP_ACS+6.w=0000
# for the next boot:
# turn ACS off in the firmware; setpci does not last over a boot

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
