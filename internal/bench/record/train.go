// SPDX-License-Identifier: Apache-2.0

package record

// Bound names the resource for which a training-shaped run waits.
type Bound string

const (
	// LoaderBound means that reading alone is slower than the training step.
	LoaderBound Bound = "loader-bound"
	// CopyBound means that reading is fast enough, but the copy into device memory is not.
	CopyBound Bound = "copy-bound"
	// GPUBound means that the accelerator hardly ever waits for data.
	GPUBound Bound = "gpu-bound"
	// Unclear means that the candidates differ by no more than they vary from round to round.
	Unclear Bound = "no clear verdict"
)

// Train is the result of a training-shaped run: batches are loaded while simulated training steps run.
type Train struct {
	Workload    string  `json:"workload"` // "unet3d", "custom"
	Step        string  `json:"step"`     // what stands in for the step: "spin kernel on cuda:0", "wait on host"
	StepSeconds float64 `json:"step_seconds"`
	BatchBytes  int64   `json:"batch_bytes"`
	Batch       int     `json:"batch"` // samples per batch
	SampleBytes int64   `json:"sample_bytes"`
	Memory      string  `json:"memory"` // "pageable", "pinned", "engine"
	Route       string  `json:"route"`
	Pattern     string  `json:"pattern"`
	Workers     int     `json:"workers"`
	Prefetch    int     `json:"prefetch"` // batches that are loaded ahead
	Steps       int     `json:"steps"`
	Warmup      int     `json:"warmup"` // number of first steps that the figures leave out

	// AU is the accelerator utilisation: time spent in steps over elapsed time.
	AU float64 `json:"au"`
	// the utilisation that the workload demands; 0 if it demands none
	WantedAU      float64 `json:"wanted_au,omitempty"`
	SamplesPerSec float64 `json:"samples_per_second"`
	GBps          float64 `json:"gbps"`
	Seconds       float64 `json:"seconds"`

	// Isolated is the time of the loader alone, from storage to host memory, as the median of its rounds. Copy is the
	// time of the copy to the device alone. Target is the measured time of the step. Idle is the time that the
	// accelerator waited between two steps, and IdleP99 its 99th percentile. All five times are in seconds per step.
	Isolated float64 `json:"isolated_seconds"`
	Copy     float64 `json:"copy_seconds"`
	Target   float64 `json:"target_seconds"`
	Idle     float64 `json:"idle_seconds"`
	IdleP99  float64 `json:"idle_p99_seconds"`
	Timing   string  `json:"timing"` // "device events", "host clock"

	// Times of single rounds in seconds per step, in the order of measurement. IsolatedRounds has rounds of the
	// loader alone before and after the run. CopyRounds has rounds of the copy alone, and IdleRounds has parts of the
	// run. All three lists are absent in results of older versions.
	IsolatedRounds []float64 `json:"isolated_rounds_seconds,omitempty"`
	CopyRounds     []float64 `json:"copy_rounds_seconds,omitempty"`
	IdleRounds     []float64 `json:"idle_rounds_seconds,omitempty"`

	Routes []Route `json:"routes,omitempty"` // bytes of the run, with its warm-up, by the route that they took
	Proof  string  `json:"proof,omitempty"`  // how the routes were determined
	Cache  *Cache  `json:"cache,omitempty"`  // nil if the page cache was not queried

	Trace []StepAt `json:"trace,omitempty"`

	Bound Bound    `json:"bound"`
	Why   string   `json:"why"`
	Next  []string `json:"next"` // settings to change, most promising first

	// Interrupted reports whether the run was stopped early. Steps then counts the steps measured before the stop.
	Interrupted bool     `json:"interrupted,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

// StepAt is one step of a run. All times are in seconds from the start of the run.
type StepAt struct {
	Ready float64 `json:"ready"` // when the batch was in device memory
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
}
