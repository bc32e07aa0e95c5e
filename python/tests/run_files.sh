#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the files of Python tests, several at a time: run_files.sh FOLDER [pytest arguments]. See run_files.py.
exec python3 "$(dirname "$0")/run_files.py" "$@"
