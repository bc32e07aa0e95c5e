// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process/target"
)

// Status describes a process and what stands in the way of its suspension.
type Status struct {
	target.Process
	// State is empty if the driver does not know the process; Why is the reason.
	State  device.ProcessState `json:"state,omitempty"`
	Why    string              `json:"why,omitempty"`
	Driver string              `json:"driver,omitempty"`
	// RestoreThread is the thread of the process that does the driver's work.
	RestoreThread int `json:"restore_thread,omitempty"`
	// GPUMemory is the memory of the GPUs and of the process on them, or empty if the driver does not tell.
	GPUMemory  []device.ProcessMemory `json:"gpu_memory,omitempty"`
	FreeMemory int64                  `json:"free_memory"` // host memory that the process can still take, in bytes
	FreeBy     string                 `json:"free_memory_limited_by"`
	ToStorage  string                 `json:"to_storage"` // "yes", or why the driver cannot suspend to a file
	Obstacles  []Obstacle             `json:"obstacles"`
}

// Look returns the status of a process. Look changes nothing. Look fails if there is no such process, or if this user
// may not trace it.
func Look(_ context.Context, d Driver, pid int, t target.Tree) (*Status, error) {
	p, err := find(t, "look at", pid, os.Getpid())
	if err != nil {
		return nil, err
	}
	s := &Status{Process: *p, Obstacles: []Obstacle{}}
	if s.FreeMemory, s.FreeBy, err = target.FreeMemory(t, pid); err != nil {
		return nil, err
	}
	if err := ready(d, "suspend", p); err != nil {
		s.Why = errs.MessageOf(err)
		if d.Processes == nil {
			return s, nil
		}
	}
	s.Driver, s.ToStorage = d.Driver(), "yes"
	if err := d.Storage(); err != nil {
		s.ToStorage = errs.MessageOf(err)
	}
	if !p.CUDA {
		return s, nil
	}
	if s.State, err = d.State(pid); err != nil {
		s.Why = errs.MessageOf(err)
	} else if tid, err := d.RestoreThread(pid); err == nil {
		s.RestoreThread = tid
	}
	s.GPUMemory, _ = d.Memory(pid) // an empty list says that it is not known
	s.Obstacles = append(s.Obstacles, obstacles(p, s.GPUMemory, s.Driver)...)
	return s, nil
}
