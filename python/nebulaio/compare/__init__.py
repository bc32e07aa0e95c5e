# SPDX-License-Identifier: Apache-2.0
"""``python -m nebulaio.compare`` compares Hugging Face's loader of models with NebulaIO's.

The tool builds a model directory of true shapes with random weights. The tool loads the model
with `AutoModelForCausalLM.from_pretrained` and with `nebulaio.huggingface.load_pretrained`,
checks that both compute the same logits, and prints the measurements. The modules of this
package are listed from the bottom up; each imports only those before it:

  stats        arithmetic on samples
  shapes       the models: their tensors and sizes
  fit          reduction of a model to the size that fits on this machine
  cache        the page cache: residency of files, and making them cold or warm
  memory       the memory of this process
  files        the model directory
  imports      imports before the first measurement
  loaders      the ways to load, each with its profile
  process      processes for jobs, forked or started anew
  child        the jobs of child processes, such as one measured load
  crowd        many processes that load at once
  figures      samples as the figures that are printed
  table        figures as text
  conclusions  sentences that follow from figures
  run          rounds of jobs
  cli          the command line
"""
