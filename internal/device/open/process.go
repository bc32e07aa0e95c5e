// SPDX-License-Identifier: Apache-2.0

package open

import (
	"errors"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/cuda"
	"github.com/nebulaio/nebulaio/internal/device/nvml"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// processes joins the driver's functions for processes with NVML, which knows how much memory a process uses.
type processes struct {
	*cuda.Processes
	infos   []device.Info
	version string
	nvml    *nvml.Library // nil if NVML cannot be used
	noNVML  error
}

// Processes loads the CUDA driver and returns its functions that suspend and resume other processes. Processes fails
// with kind Unsupported if there is no driver, or if the driver is older than CUDA 12.8. Processes creates no CUDA
// context. Without NVML, only the method Memory fails. The caller closes the result.
func Processes(o Options) (device.Processes, error) {
	drv, _, err := cuda.Find(or(o.CUDALibraries, cuda.LibraryNames())...)
	if err != nil {
		return nil, err
	}
	p := &processes{version: "CUDA " + drv.Version()}
	if p.Processes, err = drv.Processes(); err != nil {
		return nil, err
	}
	if p.infos, err = drv.List(); err != nil {
		return nil, err
	}
	if p.nvml, _, err = nvml.Find(or(o.NVMLLibraries, nvml.LibraryNames())...); err != nil {
		p.nvml, p.noNVML = nil, err
	} else if release := p.nvml.Driver(); release != "" {
		p.version = release + " (" + p.version + ")"
	}
	return p, nil
}

// Driver implements device.Processes.
func (p *processes) Driver() string { return p.version }

// Memory implements device.Processes.
func (p *processes) Memory(pid int) ([]device.ProcessMemory, error) {
	if p.noNVML != nil {
		return nil, errs.Wrap("read the GPU memory of process", fmt.Sprint(pid), p.noNVML)
	}
	var all []device.ProcessMemory
	for _, info := range p.infos {
		m, err := p.nvml.Memory(info.PCI, pid)
		if err != nil {
			return nil, errs.Wrap("read the GPU memory of process", fmt.Sprint(pid), err)
		}
		m.GPU, m.UUID = info.ID, info.UUID
		all = append(all, m)
	}
	return all, nil
}

// Close implements device.Processes.
func (p *processes) Close() error {
	if p.nvml == nil {
		return nil
	}
	err := p.nvml.Close()
	p.nvml = nil
	p.noNVML = errors.Join(p.noNVML, errs.New(errs.Closed, "use NVML", "", "it is closed"))
	return err
}
