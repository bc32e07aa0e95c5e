// SPDX-License-Identifier: Apache-2.0

// Package bottleneck judges what holds a job back, for every part of NebulaIO that says so.
//
// There are three kinds of evidence. Judge takes the meters of a machine or a command (Window). Overlapped takes a
// training run whose loader, copies and steps overlap. Loop takes a training loop whose parts run one after the other.
// All three answer with the same words, so that the answers of `top`, `diagnose`, `bench train` and
// `nebulaio.data.profile` can be compared. The package does no I/O.
package bottleneck

// Bound names what holds a job back.
type Bound string

const (
	// Compute means that the GPU computes nearly all the time, and hardly ever waits for data.
	Compute Bound = "compute-bound"
	// Communication means that the job waits for the network between processes or machines.
	Communication Bound = "communication-bound"
	// Storage means that the job waits for reads or writes of files and objects.
	Storage Bound = "storage-bound"
	// Copy means that the job waits for copies between host memory and device memory.
	Copy Bound = "copy-bound"
	// CPU means that the job waits for processors, for example because it decodes samples.
	CPU Bound = "cpu-bound"
	// Nothing means that no resource is near its limit.
	Nothing Bound = "nothing stands out"
	// Unclear means that the measurements contradict each other, or differ by less than their spread.
	Unclear Bound = "no clear verdict"
)

// Bounds returns all verdicts, in the order in which the documentation lists them.
func Bounds() []Bound {
	return []Bound{Compute, Communication, Storage, Copy, CPU, Nothing, Unclear}
}

// Current returns the present name of a verdict. Results of older versions have "gpu-bound", "loader-bound" and
// "decode-bound". Current returns any other word unchanged.
func Current(word string) Bound {
	switch word {
	case "gpu-bound":
		return Compute
	case "loader-bound":
		return Storage
	case "decode-bound":
		return CPU
	}
	return Bound(word)
}

// Verdict is an answer: what holds the job back, why, and what to do.
type Verdict struct {
	Bound Bound `json:"bound"`
	// Resource names the disk, GPU, network interface or limit that holds the job back, such as "nvme0n1". Resource is
	// empty if no single one does.
	Resource string `json:"resource,omitempty"`
	// Cause refines Bound where one bound has several causes. Cause is empty if there is nothing to add.
	Cause Cause `json:"cause,omitempty"`
	// Why is one sentence with the figures behind the verdict.
	Why string `json:"why"`
	// Figures are the four figures behind the verdict: GPU, network, storage and processors, in this order. Verdicts of
	// Overlapped and Loop have none, because their callers print the measured times themselves.
	Figures []Figure `json:"figures,omitempty"`
	// Next lists what to do, most promising first.
	Next []string `json:"next,omitempty"`
	// Step is the next of the ten steps of tuning. The Number of Step is 0 in verdicts without advice.
	Step Step `json:"step"`
}

// Cause refines a Bound.
type Cause string

const (
	// Throttled means that the CPU quota of the control group stops the job.
	Throttled Cause = "cgroup throttling"
	// OneThread means that one thread is busy all the time, and other processors are free.
	OneThread Cause = "one busy thread"
	// OtherPrograms means that other programs have the processors.
	OtherPrograms Cause = "other programs"
	// PageCache means that processors are busy with copies from the page cache.
	PageCache Cause = "page cache copies"
	// Writeback means that writers wait until the kernel has written dirty pages.
	Writeback Cause = "dirty pages"
	// Disk means that a local disk is busy all the time.
	Disk Cause = "busy disk"
	// RemoteStorage means that a server of files is slow, such as one of NFS or Lustre.
	RemoteStorage Cause = "slow file server"
)

// Figure is one figure behind a verdict.
type Figure struct {
	// Name is "gpu", "network", "storage" or "cpu".
	Name string `json:"name"`
	// Share is the part of the time in which the resource was at work or waited for, from 0 to 1. Share is negative if
	// the resource has no meter here.
	Share float64 `json:"share"`
	// Text describes the figure in words, such as "nvme0n1 busy 98 % of the time, 1.20 GB/s". If Share is negative, Text
	// says why.
	Text string `json:"text"`
}
