// SPDX-License-Identifier: Apache-2.0

// Package meters reads the counters of a machine that show where data waits: disks, page cache, network, network file
// systems, PCIe, GPUs, control groups and processes.
//
// A Collector reads all meters once and returns a Sample. Every part of a Sample has counters that only grow, and rates
// since the Sample before. A meter that cannot be read is listed in Sample.Missing with the reason; the other meters go
// on. Package meters judges nothing: package bottleneck says what a Sample means.
package meters

import "time"

// Version is the version of Sample in recordings. A change that old readers would misread needs a higher version.
const Version = 1

// Sample has the values of all meters at one moment. Rates are averages over Seconds, the time since the Sample before.
// In the first Sample of a Collector, Seconds and all rates are 0. Sizes are bytes, rates are bytes per second, and
// shares are fractions of 1, unless a comment says otherwise.
type Sample struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"` // time since the sample before
	Host    string    `json:"host,omitempty"`
	// Own is the processor time of the process that read the meters, in seconds of processor time per second.
	Own float64 `json:"own_cpu"`

	CPU       CPU       `json:"cpu"`
	Memory    Memory    `json:"memory"`
	Pressure  Pressure  `json:"pressure"`
	Disks     []Disk    `json:"disks"`
	Networks  []Network `json:"networks"`
	TCP       TCP       `json:"tcp"`
	NFS       []NFS     `json:"nfs,omitempty"`
	Lustre    []Lustre  `json:"lustre,omitempty"`
	GPUs      []GPU     `json:"gpus,omitempty"`
	CuFile    *CuFile   `json:"cufile,omitempty"` // nil without the kernel module nvidia-fs
	CGroups   []CGroup  `json:"cgroups,omitempty"`
	Processes []Process `json:"processes"`
	Server    *Server   `json:"server,omitempty"` // nil if no server is watched

	// Missing lists the meters that could not be read.
	Missing []Missing `json:"missing,omitempty"`
}

// Missing names a meter that could not be read, with the reason and, if there is one, a fix.
type Missing struct {
	Meter  string `json:"meter"` // such as "gpu", "server", "lustre"
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty"`
}

// CPU has the processor time of the whole machine. The counters are seconds since boot, summed over all processors. The
// shares are fractions of all processors together; the shares of one sample add up to 1.
type CPU struct {
	Count   int     `json:"count"` // processors that are online
	User    float64 `json:"user_seconds"`
	System  float64 `json:"system_seconds"`
	Idle    float64 `json:"idle_seconds"`
	IOWait  float64 `json:"iowait_seconds"`
	IRQ     float64 `json:"irq_seconds"` // hardware and software interrupts
	Steal   float64 `json:"steal_seconds"`
	Running int     `json:"running"` // threads that run or wait for a processor
	Blocked int     `json:"blocked"` // threads that wait for I/O

	UserShare   float64 `json:"user_share"`
	SystemShare float64 `json:"system_share"`
	IdleShare   float64 `json:"idle_share"`
	IOWaitShare float64 `json:"iowait_share"`
	IRQShare    float64 `json:"irq_share"`
	StealShare  float64 `json:"steal_share"`
	// Busiest is the busy share of the busiest processor, from 0 to 1.
	Busiest float64 `json:"busiest_share"`
}

// Busy returns the share of all processors that did work: neither idle nor waiting for I/O.
func (c CPU) Busy() float64 { return c.UserShare + c.SystemShare + c.IRQShare + c.StealShare }

// Memory has the page cache and the memory of the whole machine.
type Memory struct {
	Total     uint64 `json:"total"`
	Available uint64 `json:"available"`
	Cached    uint64 `json:"cached"` // page cache, with buffers
	Dirty     uint64 `json:"dirty"`
	Writeback uint64 `json:"writeback"` // dirty pages that are being written now
	// DirtyBackground is the number of dirty bytes at which the kernel starts to write, and DirtyLimit the number at
	// which the kernel makes writers wait. 0 means unknown.
	DirtyBackground uint64 `json:"dirty_background"`
	DirtyLimit      uint64 `json:"dirty_limit"`

	PagedIn     uint64 `json:"paged_in"`     // bytes that were read from disks
	PagedOut    uint64 `json:"paged_out"`    // bytes that were written to disks
	Dirtied     uint64 `json:"dirtied"`      // bytes of pages that became dirty
	Written     uint64 `json:"written"`      // bytes of dirty pages that were written
	MajorFaults uint64 `json:"major_faults"` // page faults that read from a disk
	Refaults    uint64 `json:"refaults"`     // bytes of file pages that were evicted and read again
	DirectScans uint64 `json:"direct_scans"` // pages that allocating processes scanned to free memory
	SwappedIn   uint64 `json:"swapped_in"`

	PagedInRate     float64 `json:"paged_in_rate"`
	PagedOutRate    float64 `json:"paged_out_rate"`
	DirtiedRate     float64 `json:"dirtied_rate"`
	WrittenRate     float64 `json:"written_rate"`
	MajorFaultRate  float64 `json:"major_fault_rate"` // faults per second
	RefaultRate     float64 `json:"refault_rate"`
	DirectScanRate  float64 `json:"direct_scan_rate"` // pages per second
	SwappedInRate   float64 `json:"swapped_in_rate"`
	CallsRate       float64 `json:"calls_rate"`        // bytes that read calls of the seen processes returned
	FromStorageRate float64 `json:"from_storage_rate"` // bytes that storage delivered for the seen processes
	// HitShare estimates the share of the bytes of read calls that came without a read from storage: from the page cache,
	// a pipe or a socket. HitShare is -1 if the seen processes read less than 1 MB per second.
	HitShare float64 `json:"hit_share"`
}

// Pressure has the shares of time in which work waited for a resource, as the kernel's pressure stall information
// counts them. Some is the share of time in which at least one thread waited; Full is the share in which all threads
// waited. All values are -1 if the kernel does not count.
type Pressure struct {
	CPUSome    float64 `json:"cpu_some"`
	MemorySome float64 `json:"memory_some"`
	MemoryFull float64 `json:"memory_full"`
	IOSome     float64 `json:"io_some"`
	IOFull     float64 `json:"io_full"`
}

// Process has the I/O and the processor time of one process.
type Process struct {
	PID     int    `json:"pid"`
	Name    string `json:"name"`
	Command string `json:"command,omitempty"` // the command line, at most 256 bytes
	UID     int    `json:"uid"`
	Threads int    `json:"threads"`
	State   string `json:"state"` // such as "R" (runs), "S" (sleeps) or "D" (waits for I/O)

	ReadCalls    uint64  `json:"read_calls_bytes"`  // bytes that read calls returned, also from the page cache
	WriteCalls   uint64  `json:"write_calls_bytes"` // bytes that write calls took
	StorageRead  uint64  `json:"storage_read"`      // bytes that storage delivered for the process
	StorageWrite uint64  `json:"storage_write"`     // bytes that the process made dirty or wrote directly
	CPUSeconds   float64 `json:"cpu_seconds"`
	IODelay      float64 `json:"io_delay_seconds"` // waits of threads for block I/O; 0 if not counted

	ReadCallsRate    float64 `json:"read_calls_rate"`
	WriteCallsRate   float64 `json:"write_calls_rate"`
	StorageReadRate  float64 `json:"storage_read_rate"`
	StorageWriteRate float64 `json:"storage_write_rate"`
	CPU              float64 `json:"cpu"`      // processors that the process used on average
	IOWait           float64 `json:"io_wait"`  // threads that waited for block I/O on average
	Unread           bool    `json:"unread"`   // true if the I/O counters may not be read by this user
	NebulaIO         bool    `json:"nebulaio"` // true if the process is nebulaio or has loaded libnebulaio
	GPUMemory        uint64  `json:"gpu_memory,omitempty"`
	// BusiestThread is the processor time per second of the busiest thread. -1 means that the threads were not read,
	// which is so for all processes but the busiest few.
	BusiestThread float64 `json:"busiest_thread"`
	CGroup        string  `json:"cgroup,omitempty"` // path of the control group, for the busiest few
}
