// SPDX-License-Identifier: Apache-2.0

package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StateVariable is the environment variable that names the file with the meters of the fake GPUs, for programs that a
// test starts. The file has the lines that State returns, and may change while the program runs.
const StateVariable = "FAKE_NVML_STATE"

// Meters are the values that the fake libnvidia-ml reports about one GPU.
type Meters struct {
	Busy, MemoryBusy int     // percent of the time
	Receive, Send    float64 // bytes per second over the PCIe link, to the GPU and from it
}

// State returns the content of a file of meters, with a line for each GPU.
func State(all ...Meters) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%d %d %f %f\n", m.Busy, m.MemoryBusy, m.Receive, m.Send)
	}
	return b.String()
}

// Steer sets the meters of the fake GPUs. The number of meters is the number of GPUs that libnvidia-ml shows. Steer may
// be called again while a gauge reads.
func (g *GPU) Steer(all ...Meters) {
	g.tb.Helper()
	name := filepath.Join(filepath.Dir(g.NVML), "state")
	// A new file in place of the old one, so that no reader sees half of it.
	if err := os.WriteFile(name+".new", []byte(State(all...)), 0o600); err != nil {
		g.tb.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		g.tb.Fatal(err)
	}
	text := cstring(name)
	g.nvml.Lookup("fake_state_file").Call(text)
	g.nvml.Lookup("fake_count").Call(len(all))
}

// NarrowCounters makes libnvidia-ml count the bytes of the PCIe link in 32 bits, as drivers without whole counters do.
func (g *GPU) NarrowCounters() { g.nvml.Lookup("fake_narrow_counters").Call(1) }
