// SPDX-License-Identifier: Apache-2.0

package bottleneck

// Unknown is the value of a share that could not be measured. Every negative share counts as unknown.
const Unknown = -1.0

// Names of the four figures, which are also the keys of Window.Missing.
const (
	FigureGPU     = "gpu"
	FigureNetwork = "network"
	FigureStorage = "storage"
	FigureCPU     = "cpu"
)

// Window has the meters of a stretch of time, of a whole machine or of one command. All shares are parts of the
// stretch, from 0 to 1, and all rates are in GB/s (10^9 bytes). The list of a resource without a meter is empty, and
// Missing gives the reason.
type Window struct {
	// Seconds is the duration of the stretch.
	Seconds float64
	GPUs    []GPU
	Network []Interface
	Disks   []Device
	Servers []Device // file servers, such as NFS and Lustre mounts
	CPU     Processors
	Memory  PageCacheState
	// Waits has the waits of one command. For the whole machine, Waits is nil.
	Waits *Waits
	// Missing gives the reason for each figure ("gpu", "network", "storage", "cpu") that has no meter here.
	Missing map[string]string
}

// GPU has the meters of one GPU.
type GPU struct {
	Name string // such as "GPU 0"
	// Busy is the share of the time in which a kernel ran (NVML's utilization.gpu), or Unknown.
	Busy float64
	// Active is the mean share of multiprocessors that had work (DCGM's SM active), or Unknown without DCGM. Kernels that
	// wait for other GPUs count as Busy, but hardly as Active.
	Active float64
	// PCIeGBps is the rate of the busier direction, and LinkGBps the highest rate of the link; zero means unknown.
	PCIeGBps, LinkGBps float64
}

// Interface has the meters of one network interface.
type Interface struct {
	Name     string
	GBps     float64 // of the busier direction
	LinkGBps float64 // highest rate; zero means unknown
	// Queued is the share of the time in which packets waited in the queue of the interface, or Unknown.
	Queued float64
}

// Device has the meters of one disk or file server.
type Device struct {
	Name      string
	GBps      float64 // reads and writes together
	Reads     float64 // reads per second
	Writes    float64 // writes per second
	Busy      float64 // share of the time in which a request was in flight
	Depth     float64 // mean number of requests in flight
	Latency   float64 // mean seconds of a request
	LimitGBps float64 // highest rate that was ever measured; zero means unknown
}

// Processors has the meters of processors.
type Processors struct {
	Used    float64 // processors that were busy, on average
	Usable  float64 // processors that may be used, by affinity and by the quota of the control group; zero means unknown
	Kernel  float64 // of Used: in the kernel
	Busiest float64 // share of the time in which the busiest thread ran, or Unknown
	// Starved is the share of the time in which a thread of the command was ready and had no processor. The other shares
	// of a command leave this time out, so that other programs do not change the verdict.
	Starved float64
	// Throttled is the share of the quota's periods in which the control group Group was stopped, or Unknown.
	Throttled float64
	Group     string
	// Pressure is the share of the time in which some thread was ready and had no processor (PSI), or Unknown.
	Pressure float64
}

// PageCacheState has the meters of the page cache.
type PageCacheState struct {
	HitGBps    float64 // bytes that programs read and no disk delivered
	DirtyShare float64 // dirty pages as a share of the limit at which writers have to wait
	WriteGBps  float64 // rate at which dirty pages are written
	// IOPressure is the share of the time in which some thread waited for I/O (PSI), or Unknown.
	IOPressure float64
}

// Waits has the waits of one command, found by looking at its threads and sockets many times a second.
type Waits struct {
	Looks   int     // how many times the command was looked at
	Storage float64 // share of the time in which a thread waited for a disk or file server
	Network float64 // share of the time in which the network had not taken or not yet delivered bytes
	// ReadGBps and WriteGBps are the rates of the command at the block layer.
	ReadGBps, WriteGBps float64
}
