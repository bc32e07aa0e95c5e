// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/bench/train"
	"github.com/nebulaio/nebulaio/internal/units"
)

// trainFlags are the flags of bench train.
type trainFlags struct {
	benchFlags
	c                     train.Config
	workload, accelerator string
	warm                  bool
}

// The defaults of bench train: samples of 1 MiB, as in shards of images, and a
// step as long as a fast accelerator needs for such a batch.
const (
	defaultSample = units.MiB
	defaultBatch  = 32
	defaultStep   = 20 * time.Millisecond
	defaultSteps  = 100
)

func newBenchTrain(a *app) *cobra.Command {
	var f trainFlags
	cmd := &cobra.Command{
		Use:   "train PATH...",
		Short: "Run a simulated training loop and show whether it waits for reads, copies or the GPU",
		Long: `Run a simulated training loop and show whether it waits for reads, copies or the
GPU.

The command reads batches into device memory while simulated training steps of a
fixed duration run. On a GPU, a simulated step is a kernel that keeps the GPU
busy; on the host, it is a sleep. The result is the accelerator utilisation, a
diagnosis (compute-bound, storage-bound or copy-bound) and the setting to change next.
The flag --workload selects an MLPerf Storage benchmark and uses its batch size,
sample size and step time.`,
		Args: somePaths,
	}
	fs := cmd.Flags()
	workload := choice(&f.workload, "NAME", "unet3d", "resnet50", "cosmoflow")
	f.workload, workload.text = "", ""
	fs.Var(workload, "workload", "MLPerf Storage workload: unet3d, resnet50 or cosmoflow; default: none")
	fs.Var(choice(&f.accelerator, "NAME", "h100", "a100"), "accelerator",
		"accelerator whose step time --workload uses: h100 or a100")
	fs.Var(sizeOf(&f.c.SampleBytes, defaultSample), "sample-size", "size of one sample, such as 128KiB")
	fs.Var(count(&f.c.Batch, defaultBatch, 1), "batch", "number of samples per batch")
	step := duration(&f.c.StepTime)
	f.c.StepTime, step.text = defaultStep, defaultStep.String()
	fs.Var(step, "step", "time that one simulated training step keeps the device busy, such as 20ms")
	fs.Var(count(&f.c.Steps, defaultSteps, 1), "steps", "number of simulated training steps to measure")
	fs.Var(count(&f.c.Workers, 4, 1), "workers", "number of threads that read samples")
	fs.Var(count(&f.c.Prefetch, 2, 0), "prefetch", "number of batches to read before they are needed")
	fs.Var(choice(&f.c.Memory, "MEMORY", train.Engine, train.Loader, train.Pinned,
		train.Pageable), "memory", "method that moves batches to the device: engine, loader, pinned or pageable")
	fs.Var(choice(&f.c.Route, "ROUTE", "auto", "direct", "buffered"), "route",
		"route of sample reads: auto, direct or buffered")
	fs.Var(choice(&f.c.Pattern, "ORDER", train.Random, train.Sequential), "pattern",
		"order in which samples are read: random or sequential")
	fs.BoolVar(&f.warm, "warm", false,
		"read the data set into the page cache first; default: drop the data set from the page cache before each epoch")
	fs.Var(number(&f.c.Seed), "seed", "seed for the contents of created files and for the random order of samples")
	f.define(fs, true)
	cmd.RunE = a.run(func(ctx context.Context, args []string) (err error) {
		if f.workload != "" {
			w, err := train.Workload(f.workload, f.accelerator)
			if err != nil {
				return err
			}
			f.c.Workload, f.c.WantedAU = w.Name+" on "+w.Accelerator, w.WantedAU
			f.c.SampleBytes, f.c.Batch, f.c.StepTime = w.SampleBytes, w.Batch, w.StepTime
			if !cmd.Flags().Changed("size") {
				// Enough for a few steps of the largest workload.
				f.data.FileSize = max(f.data.FileSize, 4*int64(w.Batch)*train.Stride(w.SampleBytes))
			}
		}
		f.data.Seed, f.c.Drop = f.c.Seed, !f.warm
		if f.c.Memory == train.Engine || f.c.Memory == train.Loader {
			f.forEngine(fs, f.c.Workers, 0, 0)
		}
		b, err := a.openBench(ctx, &f.benchFlags, args, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		if f.warm {
			b.live.step("reading the data into the page cache", 0, 1)
			if err := b.Warm(ctx); err != nil {
				return err
			}
		}
		return b.finish(b.train(ctx, f.c))
	})
	return cmd
}

// train runs one simulated training run.
func (b *bencher) train(ctx context.Context, c train.Config) error {
	c, err := b.forTraining(ctx, c)
	if err != nil {
		return err
	}
	_, err = b.Train(ctx, c)
	return err
}

// forTraining adds the host device and a progress display to c. The engine reads
// into the host device when the loader is measured alone.
func (b *bencher) forTraining(ctx context.Context, c train.Config) (train.Config, error) {
	var err error
	c.Host, err = b.sys.Devices.Open(ctx, "host")
	c.Progress = func(phase string, done, total int) { b.live.step("training, "+phase, min(done, total-1), total) }
	return c, err
}

// usual returns the training run of commands without training flags.
func (b *bencher) usual(steps int) train.Config {
	// A small data set gets smaller samples and batches.
	sample, samples := int64(defaultSample), int64(0)
	for _, f := range b.Set.Files() {
		sample = min(sample, f.Size())
	}
	for _, f := range b.Set.Files() {
		samples += f.Size() / train.Stride(sample)
	}
	batch := int(max(1, min(defaultBatch, samples)))
	return train.Config{SampleBytes: sample, Batch: batch, StepTime: defaultStep, Steps: steps, Workers: 4, Prefetch: 2,
		Memory: train.Engine, Pattern: train.Random, Drop: true, Seed: b.f.data.Seed}
}

func (b *bencher) prefetchSweep(ctx context.Context, _ bench.Spec) error {
	c := b.usual(40)
	c.StepTime, c.Memory = 0, train.Pinned
	c, err := b.forTraining(ctx, c)
	if err != nil {
		return err
	}
	return b.Prefetch(ctx, c)
}

func (b *bencher) trainDefault(ctx context.Context) error { return b.train(ctx, b.usual(defaultSteps)) }
