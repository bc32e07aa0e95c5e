# SPDX-License-Identifier: Apache-2.0
"""The benchmark of transfer clients: nebulaio beside s5cmd, rclone, aws-cli, the CRT and obstore."""
