// SPDX-License-Identifier: Apache-2.0

package facts

import "github.com/nebulaio/nebulaio/internal/device"

// Proof is the result of reading the path through cuFile to the GPU, with counters by route. Counters.CountedBy names
// who counted the reads, if not cuFile itself. The checks only predict the route of the data; a Proof observes it.
//
// Done, Error and Skipped tell how the proof ended. If Done and Error are both set, the reads succeeded, but cuFile
// could not tell the route.
type Proof struct {
	Done     bool  `json:"done"`
	GPU      int   `json:"gpu"` // CUDA index of the GPU
	Reads    int   `json:"reads,omitempty"`
	ReadSize int64 `json:"read_size,omitempty"` // size of each read in bytes
	// Route is the observed route: "p2p", "nvfs", "compat", "mixed", "unknown" or "none".
	Route    string                `json:"route,omitempty"`
	Counters device.DirectCounters `json:"counters,omitzero"`
	Version  string                `json:"cufile_version,omitempty"`
	Error    string                `json:"error,omitempty"`
	// Log is the ERROR line of cuFile's log that best explains a failure.
	Log     string `json:"log,omitempty"`
	Skipped string `json:"skipped,omitempty"` // the reason why no proof was tried
	Fix     string `json:"fix,omitempty"`
}
