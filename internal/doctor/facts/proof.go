// SPDX-License-Identifier: Apache-2.0

package facts

import "github.com/nebulaio/nebulaio/internal/device"

// Proof is the result of reading the path through cuFile to the GPU, with counters by route. Counters.CountedBy names
// the source of the counters if it is not cuFile itself. The checks predict the route; a Proof observes it.
//
// Done, Error and Skipped tell how the proof ended. If Done and Error are both set, the reads succeeded, but cuFile
// could not tell the route.
type Proof struct {
	Done     bool  `json:"done"`
	GPU      int   `json:"gpu"` // CUDA index of the GPU
	Reads    int   `json:"reads,omitempty"`
	ReadSize int64 `json:"read_size,omitempty"` // bytes of each read
	// Route is "p2p", "nvfs", "compat", "mixed", "unknown" or "none".
	Route    string                `json:"route,omitempty"`
	Counters device.DirectCounters `json:"counters,omitzero"`
	Version  string                `json:"cufile_version,omitempty"`
	Error    string                `json:"error,omitempty"`
	// Log is the ERROR line of cuFile's log that best explains a failure.
	Log     string `json:"log,omitempty"`
	Skipped string `json:"skipped,omitempty"` // the reason why no proof was tried
	Fix     string `json:"fix,omitempty"`
}
