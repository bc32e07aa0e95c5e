# SPDX-License-Identifier: Apache-2.0
"""The benchmark harness: how fast a model file becomes tensors on a device.

Modules from the ground up, each importing only those before it:

  stats       arithmetic on samples
  stfile      safetensors headers, and a small writer
  cache       the page cache: what is resident, and making a wanted state
  machine     what was measured on: hardware, kernel, versions
  device      one face for a CUDA device and for host memory
  models      the model files that the rows load
  verify      bit-by-bit comparison with a reference
  methods     the loaders that are compared
  ceilings    what the bus and the disk can do at most
  measure     one timed call with everything that is recorded about it
  context     options, clock and rounds, shared by all rows
  rows_*      the rows; child is the fresh process of two of them
  results     the results file
  digest      rows as figures
  table, table_analysis, svg, checks, report   figures as Markdown, a plot and a check list
  cli         the command line
"""
