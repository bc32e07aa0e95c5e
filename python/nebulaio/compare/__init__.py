# SPDX-License-Identifier: Apache-2.0
"""``python -m nebulaio.compare``: Hugging Face's way to load a model against ours.

Builds a model directory of true shapes with random weights, loads it with
`AutoModelForCausalLM.from_pretrained` and with `nebulaio.huggingface.load_pretrained`,
checks that both compute the same logits, and says what was measured. Modules
from the ground up, each importing only those before it:

  stats        arithmetic on samples
  shapes       the models: their tensors and sizes
  fit          what of a model fits on this machine, and what was changed for it
  cache        the page cache: what is resident, and making a wanted state
  memory       the memory of this process
  files        the model directory
  imports      what is imported before anything is timed
  loaders      the ways to load, each with its profile
  process      processes for jobs, forked or started anew
  child        the jobs: one loads in a fresh process and says what it took
  crowd        many processes that load at once
  figures      samples as the figures that are printed
  table        figures as text
  conclusions  sentences that follow from figures
  run          rounds of jobs
  cli          the command line
"""
