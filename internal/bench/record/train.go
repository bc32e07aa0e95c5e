// SPDX-License-Identifier: Apache-2.0

package record

// Bound names what a training-shaped run waits for.
type Bound string

const (
	// LoaderBound: reading alone is slower than the step.
	LoaderBound Bound = "loader-bound"
	// CopyBound: reading keeps up, the way into device memory does not.
	CopyBound Bound = "copy-bound"
	// GPUBound: the accelerator hardly ever waits.
	GPUBound Bound = "gpu-bound"
	// Unclear: the figures differ by no more than they vary from round to round.
	Unclear Bound = "no clear verdict"
)

// Train is a training-shaped run.
type Train struct {
	Workload    string  `json:"workload"` // "unet3d", "custom"
	Step        string  `json:"step"`     // "spin kernel on cuda:0", "wait on host"
	StepSeconds float64 `json:"step_seconds"`
	BatchBytes  int64   `json:"batch_bytes"`
	Batch       int     `json:"batch"` // samples
	SampleBytes int64   `json:"sample_bytes"`
	Memory      string  `json:"memory"` // "pageable", "pinned", "engine"
	Route       string  `json:"route"`
	Pattern     string  `json:"pattern"`
	Workers     int     `json:"workers"`
	Prefetch    int     `json:"prefetch"` // batches ahead
	Steps       int     `json:"steps"`
	Warmup      int     `json:"warmup"` // steps left out of the figures

	// AU is accelerator utilisation: time in steps over elapsed time.
	AU            float64 `json:"au"`
	WantedAU      float64 `json:"wanted_au,omitempty"` // the workload's own, 0 when it has none
	SamplesPerSec float64 `json:"samples_per_second"`
	GBps          float64 `json:"gbps"`
	Seconds       float64 `json:"seconds"`

	// All in seconds per step. Isolated is the loader alone, storage to host,
	// the median of its rounds; Copy the copy alone; Target the step itself as it
	// really took; Idle what the accelerator waited between two steps.
	Isolated float64 `json:"isolated_seconds"`
	Copy     float64 `json:"copy_seconds"`
	Target   float64 `json:"target_seconds"`
	Idle     float64 `json:"idle_seconds"`
	IdleP99  float64 `json:"idle_p99_seconds"`
	Timing   string  `json:"timing"` // "device events", "host clock"

	// The same by rounds, in seconds per step, in the order in which they were
	// measured: rounds of the loader alone before and after the run, rounds of
	// the copy alone, and parts of the run. Absent in results of older versions.
	IsolatedRounds []float64 `json:"isolated_rounds_seconds,omitempty"`
	CopyRounds     []float64 `json:"copy_rounds_seconds,omitempty"`
	IdleRounds     []float64 `json:"idle_rounds_seconds,omitempty"`

	Routes []Route `json:"routes,omitempty"` // of the run's bytes, as taken, warm-up included
	Proof  string  `json:"proof,omitempty"`  // how the routes are known
	Cache  *Cache  `json:"cache,omitempty"`  // nil when it was not looked at

	Trace []StepAt `json:"trace,omitempty"`

	Bound Bound    `json:"bound"`
	Why   string   `json:"why"`
	Next  []string `json:"next"` // what to change, most promising first

	// Interrupted reports whether the run was stopped; Steps is what it had measured.
	Interrupted bool     `json:"interrupted,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

// StepAt is one step on the time line of a run, in seconds from its start.
type StepAt struct {
	Ready float64 `json:"ready"` // its batch was in device memory
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
}
