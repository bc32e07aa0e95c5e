// SPDX-License-Identifier: Apache-2.0

package device

import "time"

// ProcessState is the state of another process at the GPU driver.
type ProcessState string

const (
	// ProcessRunning means that the process uses its GPUs.
	ProcessRunning ProcessState = "running"
	// ProcessLocked means that calls of the process to the GPU driver block. The GPU memory of the process is in place.
	ProcessLocked ProcessState = "locked"
	// ProcessSuspended means that the GPU memory of the process was copied away and freed. Calls of the process to the
	// GPU driver block.
	ProcessSuspended ProcessState = "suspended"
	// ProcessFailed means that the driver can neither suspend nor resume the process any more.
	ProcessFailed ProcessState = "failed"
)

// GPUPair maps a GPU that a suspended process used to the GPU on which it is resumed.
type GPUPair struct {
	Old, New [16]byte // UUIDs
}

// ProcessMemory is the memory of one GPU, and the part of it that one process uses.
type ProcessMemory struct {
	GPU  string `json:"gpu"`  // such as "cuda:0"
	UUID string `json:"uuid"` // such as "GPU-1b2c…"
	// Bytes is the GPU memory that the process uses; -1 if the driver does not tell.
	Bytes int64 `json:"bytes"`
	// Used and Total are the used and the whole memory of the GPU in bytes, of all processes together.
	Used  int64 `json:"used"`
	Total int64 `json:"total"`
	// MIG is true if the GPU is divided into MIG instances.
	MIG bool `json:"mig,omitempty"`
}

// Processes suspends and resumes other processes that use GPUs, through the GPU driver of this process. All methods
// block until the driver has answered, and cannot be cancelled. All methods are safe for concurrent use.
type Processes interface {
	// Driver returns the release of the driver, such as "580.95 (CUDA 13.0)".
	Driver() string
	// State returns the state of a process. State fails with kind Device if the driver does not know the process.
	State(pid int) (ProcessState, error)
	// Lock blocks the calls of a running process to the GPU driver, and waits until its GPU work has ended. If that
	// takes longer than the timeout, Lock fails with an error for which IsTimeout is true, and the process runs on.
	Lock(pid int, timeout time.Duration) error
	// Checkpoint copies the GPU memory of a locked process to host memory of that process and frees it.
	Checkpoint(pid int) error
	// Restore allocates the GPU memory of a suspended process and copies its content back. The process is locked
	// afterwards. If pairs is not empty, it has every GPU that the process used.
	Restore(pid int, pairs []GPUPair) error
	// Unlock lets a locked process call the GPU driver again.
	Unlock(pid int) error
	// RestoreThread returns the id of the thread of the process that does the driver's work of Checkpoint and Restore.
	RestoreThread(pid int) (int, error)
	// Memory returns the memory of every visible GPU, and how much of it the process uses. Memory fails with kind
	// Unsupported if the library that knows is missing.
	Memory(pid int) ([]ProcessMemory, error)
	// Storage returns nil if the driver can hand the GPU memory of a process to the caller (CUDA 13.4). Otherwise
	// Storage returns the reason, an error of kind Unsupported.
	Storage() error
	// CheckpointOut frees the GPU memory of a locked process as Checkpoint does, but shows its content to the caller
	// instead of copying it. The caller copies the regions and then calls Complete.
	CheckpointOut(pid int) (MappedMemory, error)
	// RestoreIn allocates the GPU memory of a process that CheckpointOut has suspended, and shows it to the caller. The
	// caller fills the regions and then calls Complete. The process is locked afterwards.
	RestoreIn(pid int, pairs []GPUPair) (MappedMemory, error)
	// IsTimeout reports whether err means that Lock has reached its timeout.
	IsTimeout(err error) bool
	// Close ends the use of the driver. Close changes the state of no process.
	Close() error
}

// MappedMemory is GPU memory of another process that the driver has mapped into this one.
type MappedMemory interface {
	// Regions returns one region for each GPU that the other process used, in the order of the driver.
	Regions() []MappedRegion
	// Complete waits for the streams of the regions, removes the mappings and ends the operation. Complete must be
	// called once. After an error of Complete, the state of the other process is not known.
	Complete() error
}

// MappedRegion is the memory of one GPU that belongs to another process.
type MappedRegion struct {
	GPU    int // number of the GPU, as in cuda:N
	Ptr    Ptr
	Size   int64
	Stream uint64 // copies of the region are queued on this CUDA stream or have ended when Complete is called
}
