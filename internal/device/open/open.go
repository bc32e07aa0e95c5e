// SPDX-License-Identifier: Apache-2.0

// Package open looks for GPUs, reports which libraries were found or are missing, and opens the requested device.
package open

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/cuda"
	"github.com/nebulaio/nebulaio/internal/device/cufile"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/device/nvml"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
)

// Options select the mode and the libraries of the search for devices. The zero value of Options means mode Auto with
// the default library names.
type Options struct {
	Mode device.Mode
	// CUDALibraries, NVMLLibraries and CuFileLibraries replace the default library names. Tests set CUDALibraries,
	// NVMLLibraries and CuFileLibraries to load fake libraries.
	CUDALibraries   []string
	NVMLLibraries   []string
	CuFileLibraries []string
	// StagedHost makes all bytes for the host device go through staging and asynchronous copies, as for a GPU. Tests
	// set StagedHost to run the code path of a GPU on host memory.
	StagedHost bool
}

// New creates the device set of this process. With mode Require, New looks for a GPU at once and fails if none works.
// With mode Auto, New does not load the CUDA driver. The CUDA driver is loaded when a GPU or the survey is first
// needed, so that a process that uses only host memory never loads it. New creates no CUDA context.
func New(o Options) (device.Set, error) {
	s := &set{opts: o, opened: map[string]device.Device{}, directs: map[*direct]struct{}{}}
	switch o.Mode {
	case "":
		s.survey.Mode = device.Auto
	case device.Auto, device.Require, device.Off:
		s.survey.Mode = o.Mode
	default:
		return nil, errs.New(errs.Invalid, "look for devices", strconv.Quote(string(o.Mode)),
			"is not a mode; expected auto, require or off")
	}
	if o.StagedHost {
		s.host = host.Staged()
	} else {
		s.host = host.New()
	}
	if s.survey.Mode == device.Require {
		if s.look(); s.driver == nil {
			return nil, &errs.Error{Kind: errs.Unsupported, Op: "require a GPU", Msg: s.survey.NoGPU, Fix: s.survey.Fix}
		}
	}
	return s, nil
}

// look searches for GPUs once. The caller holds mu or is New.
func (s *set) look() {
	if s.looked {
		return
	}
	s.looked = true
	if s.survey.Mode == device.Off {
		s.survey.NoGPU = "GPUs were not looked for: the mode is off"
		s.survey.Fix = "use mode auto or require"
	} else if err := s.findCUDA(); err != nil {
		s.survey.NoGPU, s.survey.Fix = err.Error(), errs.FixOf(err)
		if e := (*errs.Error)(nil); errors.As(err, &e) {
			// The survey has the fix in a field of its own.
			s.survey.NoGPU = (&errs.Error{Op: e.Op, Name: e.Name, Msg: e.Msg, Err: e.Err}).Error()
		}
	}
	s.survey.Devices = append(s.survey.Devices, s.host.Info())
}

type set struct {
	opts Options
	host device.Device

	mu        sync.Mutex // guards the fields below
	looked    bool
	survey    device.Survey
	driver    *cuda.Driver
	opened    map[string]device.Device
	nvml      *nvml.Library
	askedNVML bool
	cufile    *cufile.Library // nil until OpenDirect found it
	directs   map[*direct]struct{}
	closed    bool
}

func (s *set) findCUDA() error {
	drv, found, err := cuda.Find(or(s.opts.CUDALibraries, cuda.LibraryNames())...)
	s.survey.Findings = append(s.survey.Findings, found...)
	if err != nil {
		return err
	}
	infos, err := drv.List()
	if err != nil {
		return err
	}
	if len(infos) == 0 {
		return &errs.Error{Kind: errs.Unsupported, Op: "use CUDA", Msg: "the driver works but shows no GPU",
			Fix: "check CUDA_VISIBLE_DEVICES and that the container was given a GPU"}
	}
	s.driver = drv
	s.survey.Devices = infos
	return nil
}

func or(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}

// Survey returns the usable devices, and findings about the libraries that they need. The first call of Survey asks
// NVML for further facts about the GPUs. Loads do not need facts of NVML, so no load waits for NVML.
func (s *set) Survey() device.Survey {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	if s.driver != nil && !s.askedNVML && !s.closed {
		s.askedNVML = true
		s.survey.Findings = append(s.survey.Findings, cufile.Look(os.Getenv, s.cufileNames()...))
		lib, f, err := nvml.Find(or(s.opts.NVMLLibraries, nvml.LibraryNames())...)
		s.survey.Findings = append(s.survey.Findings, f)
		if err == nil {
			s.nvml = lib
			for i := range s.survey.Devices {
				if s.survey.Devices[i].Kind == device.CUDA {
					// Devices that are already open share the map, so it is cloned.
					s.survey.Devices[i].Facts = maps.Clone(s.survey.Devices[i].Facts)
					lib.Describe(&s.survey.Devices[i])
				}
			}
		}
	}
	return s.survey
}

// GPUs implements device.Counter.
func (s *set) GPUs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return len(s.survey.Devices) - 1
}

// Open implements device.Set.
func (s *set) Open(ctx context.Context, id string) (device.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap("open device", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errs.New(errs.Closed, "open device", id, "the device set is closed")
	}
	switch {
	case id == "host" || id == "cpu":
		return s.host, nil
	case id == "" || id == "auto":
		if s.look(); s.driver == nil {
			return s.host, nil
		}
		return s.openCUDA("cuda:0", 0)
	case id == "cuda":
		return s.openCUDA("cuda:0", 0)
	case strings.HasPrefix(id, "cuda:"):
		n, ok := cudaNumber(id)
		if !ok {
			return nil, unknown(id)
		}
		return s.openCUDA(id, n)
	}
	return nil, unknown(id)
}

// CheckName returns "" if id has the form of a device name, such as "host" or "cuda:0". If id is not a device name,
// CheckName returns the reason.
func CheckName(id string) string {
	switch id {
	case "", "auto", "host", "cpu", "cuda":
		return ""
	}
	if _, ok := cudaNumber(id); ok {
		return ""
	}
	return noDevice(id)
}

func noDevice(id string) string {
	return "is not a device; expected auto, host, cuda or cuda:N" + meant(id)
}

// cudaNumber returns N of a name cuda:N.
func cudaNumber(id string) (n int, ok bool) {
	text, ok := strings.CutPrefix(id, "cuda:")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == text
}

func unknown(id string) error {
	return errs.New(errs.Invalid, "open device", strconv.Quote(id), noDevice(id))
}

// meant suggests a device for an unknown name. Many programs use "gpu" for "cuda".
func meant(id string) string {
	if number, ok := strings.CutPrefix(strings.ToLower(id), "gpu"); ok {
		if n, err := strconv.Atoi(strings.TrimPrefix(number, ":")); err == nil && n >= 0 {
			return fmt.Sprintf(" (did you mean cuda:%d?)", n)
		}
		return " (did you mean cuda?)"
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(strings.ToLower(id), "cuda")); err == nil && n >= 0 {
		return fmt.Sprintf(" (did you mean cuda:%d?)", n)
	}
	return nearest.Hint(id, "auto", "host", "cuda")
}

func (s *set) openCUDA(id string, n int) (device.Device, error) {
	if d, ok := s.opened[id]; ok {
		return d, nil
	}
	if s.look(); s.driver == nil {
		return nil, &errs.Error{Kind: errs.NotFound, Op: "open device", Name: id, Msg: "no usable GPU: " + s.survey.NoGPU,
			Fix: s.survey.Fix}
	}
	gpus := len(s.survey.Devices) - 1
	if n >= gpus {
		return nil, errs.New(errs.NotFound, "open device", id,
			fmt.Sprintf("there are %d GPUs, cuda:0 to cuda:%d", gpus, gpus-1))
	}
	d, err := s.driver.Open(s.survey.Devices[n], n)
	if err != nil {
		return nil, err
	}
	s.opened[id] = d
	return d, nil
}

// Close closes every Direct that is still open, then every open device. A second call of Close does nothing.
func (s *set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var all []error
	for d := range s.directs {
		all = append(all, d.Session.Close())
		delete(s.directs, d)
	}
	for id, d := range s.opened {
		all = append(all, d.Close())
		delete(s.opened, id)
	}
	if s.nvml != nil {
		all = append(all, s.nvml.Close())
		s.nvml = nil
	}
	return errors.Join(all...)
}
