// SPDX-License-Identifier: Apache-2.0

package facts

import "github.com/nebulaio/nebulaio/internal/device"

// Proof is what was counted while cuFile read the path to the GPU, by the library
// itself or as Counters.CountedBy says. The checks say what should happen; this is
// what does. One of Done, Error and
// Skipped tells how it ended; Done with Error means that the reads were done
// and the library could not say on which route.
type Proof struct {
	Done     bool  `json:"done"`
	GPU      int   `json:"gpu"` // as CUDA counts
	Reads    int   `json:"reads,omitempty"`
	ReadSize int64 `json:"read_size,omitempty"` // of each, in bytes
	// Route is p2p, nvfs, compat, mixed, unknown or none.
	Route    string                `json:"route,omitempty"`
	Counters device.DirectCounters `json:"counters,omitzero"`
	Version  string                `json:"cufile_version,omitempty"`
	Error    string                `json:"error,omitempty"`
	// Log is the first ERROR line that cuFile wrote.
	Log     string `json:"log,omitempty"`
	Skipped string `json:"skipped,omitempty"` // why it was not tried
	Fix     string `json:"fix,omitempty"`
}
