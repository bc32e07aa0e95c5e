// SPDX-License-Identifier: Apache-2.0

package device

// UnknownActivity is the value of a field that a GPU does not report.
const UnknownActivity = -1

// GPUActivity says how much of a GPU works, as DCGM measures it. Shares are from 0 to 1, and rates are bytes per
// second.
type GPUActivity struct {
	Index  int     `json:"index"`  // NVML's index of the GPU
	SM     float64 `json:"sm"`     // mean share of the multiprocessors that had work
	Tensor float64 `json:"tensor"` // share of the time in which the tensor pipes were busy
	Memory float64 `json:"memory"` // share of the time in which GPU memory was read or written

	PCIeSent       float64 `json:"pcie_sent"`
	PCIeReceived   float64 `json:"pcie_received"`
	NVLinkSent     float64 `json:"nvlink_sent"`
	NVLinkReceived float64 `json:"nvlink_received"`
}

// ActivityReader reads the activity of all GPUs. An ActivityReader is safe for use by one goroutine at a time.
type ActivityReader interface {
	// Activity returns the latest values of all GPUs.
	Activity() ([]GPUActivity, error)
	// Close ends the measurement.
	Close() error
}
