# SPDX-License-Identifier: Apache-2.0
"""The benchmark harness measures how fast a model file becomes tensors on a device.

Each module imports only the modules above it:

  stats       arithmetic on samples
  stfile      safetensors headers, and a small writer
  cache       the page cache: measures residency, and makes a wanted state
  machine     facts about the machine: hardware, kernel, versions
  device      one interface for a CUDA device and for host memory
  models      the model files that the rows load
  verify      bit-by-bit comparison with a reference
  methods     the loaders that are compared
  ceilings    the highest rates of the bus and the disk
  measure     one timed call, with everything that is recorded
  context     options, clock and rounds, shared by all rows
  rows_*      the rows; child is the fresh process of two of them
  results     the results file
  digest      rows as figures
  table, table_analysis, svg, checks, report   figures as Markdown, a plot and a check list
  cli         the command line
"""
