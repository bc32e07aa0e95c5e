// SPDX-License-Identifier: Apache-2.0

package report

// Feed describes the batches that a loader of training data has delivered.
type Feed struct {
	Device Device `json:"device"`
	Asked  Asked  `json:"asked"`
	// Total counts all batches, and Epochs the batches of each epoch. Epochs has at most the last 64 epochs. If an epoch
	// has not ended yet, it is the last entry.
	Total  FeedCount   `json:"total"`
	Epochs []FeedEpoch `json:"epochs"`
	// Depth is the number of batches that are read ahead now.
	Depth int `json:"depth"`
	// Bad lists the first errors about files and samples that were left out.
	Bad      []string  `json:"bad,omitempty"`
	Refusals []Refusal `json:"refusals"`
}

// FeedEpoch counts the batches of one epoch.
type FeedEpoch struct {
	Epoch int64 `json:"epoch"`
	FeedCount
}

// FeedCount counts batches, and says what limited their rate.
type FeedCount struct {
	Batches int64 `json:"batches"`
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
	// Skipped is the number of samples that were left out because they are bad.
	Skipped int64        `json:"skipped"`
	Routes  []RouteShare `json:"routes"`
	// WaitSeconds is how long the caller waited for batches. StepSeconds is how long the caller did other things between
	// two batches, such as training steps.
	WaitSeconds float64 `json:"wait_seconds"`
	StepSeconds float64 `json:"step_seconds"`
	// GBps and SamplesPerSecond are rates over WaitSeconds and StepSeconds together.
	GBps             float64 `json:"gbps"`
	SamplesPerSecond float64 `json:"samples_per_second"`
	// Limiting is "caller" if the caller waited for less than a fiftieth of the time. Otherwise Limiting is the stage
	// that limited most transfers, such as "read".
	Limiting string `json:"limiting"`
}
