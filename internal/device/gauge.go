// SPDX-License-Identifier: Apache-2.0

package device

import "time"

// GPUReading has the meters of one GPU at one moment. -1 means that the driver does not tell.
type GPUReading struct {
	Index int    // number of the GPU, as nvidia-smi shows it
	Model string // such as "NVIDIA H200"
	PCI   string // such as 00000000:3b:00.0

	// Busy is the share of the driver's last sampling period in which a kernel ran, from 0 to 1. MemoryBusy is the share
	// of that period in which GPU memory was read or written.
	Busy, MemoryBusy        float64
	MemoryUsed, MemoryTotal int64 // bytes
	Watts, Celsius, SMClock float64
	// Slowed names the reasons for which the driver lowers the clocks now, such as "power cap".
	Slowed []string

	// Counted is true if the driver counts the bytes of the PCIe link. Received and Sent are then the bytes to and from
	// the GPU, and CountedAt is the time at which the driver read them.
	Counted        bool
	Received, Sent uint64
	CountedAt      time.Time
	// ReceiveRate and SendRate are the rates of the PCIe link over the last 20 ms in bytes per second. A Gauge reads the
	// rates only if the driver does not count, because each rate takes those 20 ms.
	ReceiveRate, SendRate float64

	LinkGen, LinkWidth, LinkGenMax, LinkWidthMax int

	// Processes has the GPU memory in bytes of each process that computes on the GPU, by process ID. A process whose
	// memory the driver does not tell is not listed.
	Processes map[int]uint64
}

// Gauge reads the meters of all GPUs of the machine. A Gauge is not safe for concurrent use.
type Gauge interface {
	// Read returns the meters of all GPUs, in the order of their Index. Values that the driver does not tell are -1.
	Read() []GPUReading
	// Close ends the use of the driver's library.
	Close() error
}
