// SPDX-License-Identifier: Apache-2.0

package record

// Train is the result of a run that simulates training: batches are loaded while simulated training steps run.
type Train struct {
	Workload    string  `json:"workload"` // "unet3d", "custom"
	Step        string  `json:"step"`     // what simulates the training step: "spin kernel on cuda:0" or "wait on host"
	StepSeconds float64 `json:"step_seconds"`
	BatchBytes  int64   `json:"batch_bytes"`
	Batch       int     `json:"batch"` // samples per batch
	SampleBytes int64   `json:"sample_bytes"`
	Memory      string  `json:"memory"` // "pageable", "pinned", "engine", "loader"
	Route       string  `json:"route"`
	Pattern     string  `json:"pattern"`
	Workers     int     `json:"workers"`
	Prefetch    int     `json:"prefetch"` // number of batches loaded ahead of the running step
	Steps       int     `json:"steps"`
	Warmup      int     `json:"warmup"` // number of steps at the start that the figures leave out

	// AU is the accelerator utilisation: the time spent in training steps divided by the elapsed time.
	AU float64 `json:"au"`
	// the lowest accelerator utilisation that the workload accepts; 0 if it demands none
	WantedAU      float64 `json:"wanted_au,omitempty"`
	SamplesPerSec float64 `json:"samples_per_second"`
	GBps          float64 `json:"gbps"`
	Seconds       float64 `json:"seconds"`

	// Isolated is the time that the loader alone takes to read a batch into host memory, as the median of its rounds.
	// Copy is the time that the copy of a batch to the device takes if nothing else runs. Target is the measured
	// duration of a training step. Idle is the time that the accelerator waited between two steps, and IdleP99 its
	// 99th percentile. Isolated, Copy, Target, Idle and IdleP99 are in seconds per step.
	Isolated float64 `json:"isolated_seconds"`
	Copy     float64 `json:"copy_seconds"`
	Target   float64 `json:"target_seconds"`
	Idle     float64 `json:"idle_seconds"`
	IdleP99  float64 `json:"idle_p99_seconds"`
	Timing   string  `json:"timing"` // clock for Idle: "device events" or "host clock"

	// IsolatedRounds, CopyRounds and IdleRounds list the times of single rounds in seconds per step, in the order of
	// measurement. IsolatedRounds has the times of the loader alone, before and after the training run. CopyRounds
	// has the times of the copy alone, and IdleRounds has the idle times in parts of the training run. Results of
	// older versions lack IsolatedRounds, CopyRounds and IdleRounds.
	IsolatedRounds []float64 `json:"isolated_rounds_seconds,omitempty"`
	CopyRounds     []float64 `json:"copy_rounds_seconds,omitempty"`
	IdleRounds     []float64 `json:"idle_rounds_seconds,omitempty"`

	Routes []Route `json:"routes,omitempty"` // bytes of the run including its warm-up, by route
	Proof  string  `json:"proof,omitempty"`  // how the program determined the routes of the bytes
	Cache  *Cache  `json:"cache,omitempty"`  // use of the page cache; nil if it was not queried

	Trace []StepAt `json:"trace,omitempty"`

	// Bound is what held the run back, in a word of package bottleneck. Results of older versions have other words, which
	// bottleneck.Current translates.
	Bound string   `json:"bound"`
	Why   string   `json:"why"`
	Next  []string `json:"next"` // advice: settings to change, most promising first

	// Interrupted reports whether the run was stopped early. In an interrupted run, Steps counts the steps measured
	// before the stop.
	Interrupted bool     `json:"interrupted,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

// StepAt has the times of one training step. All times in StepAt are in seconds from the start of the run.
type StepAt struct {
	Ready float64 `json:"ready"` // when the step's batch was in device memory
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
}
