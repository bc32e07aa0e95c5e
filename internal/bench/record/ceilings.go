// SPDX-License-Identifier: Apache-2.0

package record

import "time"

// IDs of ceilings.
const (
	MemoryCopy   = "memory_copy"
	PageCache    = "page_cache_read"
	H2DPinned    = "h2d_pinned"
	D2HPinned    = "d2h_pinned"
	H2DPageable  = "h2d_pageable"
	D2HPageable  = "d2h_pageable"
	StorageRead  = "storage_read"
	StorageWrite = "storage_write"
	Loopback     = "loopback"
)

// Ceilings are the measured limits of one machine.
type Ceilings struct {
	Schema   int       `json:"schema"`
	Version  string    `json:"version"`
	Measured time.Time `json:"measured"`
	Machine  Machine   `json:"machine"`
	Limits   []Limit   `json:"limits"`
	Notes    []string  `json:"notes,omitempty"`
}

// Limit is one measured limit of a machine: the highest rate of a kind of transfer, such as reads from storage.
type Limit struct {
	ID   string `json:"id"`
	Name string `json:"name"`         // a name for readers, such as "pinned host memory to cuda:0"
	On   string `json:"on,omitempty"` // what the limit applies to: the ID of a device, or the source of a mount
	// GBps is the median rate of all rounds, in GB/s. Rounds lists the measured rate of each round in GB/s, in the
	// order of measurement.
	GBps   float64   `json:"gbps"`
	Rounds []float64 `json:"rounds"`
	// how the limit was measured, such as "64 MiB copies on one stream, 1 GiB a round"
	How string `json:"how"`
}

// Find returns the limit with the given ID for the given device or mount, and false if there is none.
func (c *Ceilings) Find(id, on string) (Limit, bool) {
	if c == nil {
		return Limit{}, false
	}
	for _, l := range c.Limits {
		if l.ID == id && l.On == on {
			return l, true
		}
	}
	return Limit{}, false
}

// Spread returns the difference between the rates of the rounds, relative to their median: (max - min) / median.
func (l Limit) Spread() float64 {
	if len(l.Rounds) == 0 || l.GBps == 0 {
		return 0
	}
	lo, hi := l.Rounds[0], l.Rounds[0]
	for _, r := range l.Rounds {
		lo, hi = min(lo, r), max(hi, r)
	}
	return (hi - lo) / l.GBps
}
