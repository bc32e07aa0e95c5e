// SPDX-License-Identifier: Apache-2.0

package open

import (
	"errors"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/nvml"
)

// Gauge loads NVML and returns a Gauge that reads the meters of all GPUs. Gauge loads no CUDA driver and creates no
// CUDA context. Gauge fails with kind Unsupported if NVML cannot be used, and with kind Device if it fails. The caller
// closes the Gauge.
func Gauge(o Options) (device.Gauge, error) {
	lib, _, err := nvml.Find(or(o.NVMLLibraries, nvml.LibraryNames())...)
	if err != nil {
		return nil, err
	}
	g, err := lib.Gauge()
	if err != nil {
		return nil, errors.Join(err, lib.Close())
	}
	return g, nil
}
