// SPDX-License-Identifier: Apache-2.0

package open

import (
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/dcgm"
)

// hostEngine is the address of the host engine of DCGM on this machine.
const hostEngine = "127.0.0.1"

// Activity connects to DCGM on this machine, which measures how much of each GPU computes. The caller closes the
// returned reader. libraries are the file names of libdcgm to try; none means the usual names. Activity fails with kind
// Unsupported if there is no DCGM, or if it does not run.
func Activity(libraries ...string) (device.ActivityReader, error) {
	if len(libraries) == 0 {
		libraries = dcgm.LibraryNames()
	}
	e, err := dcgm.Open(hostEngine, libraries...)
	if err != nil {
		return nil, err
	}
	return e, nil
}
