// SPDX-License-Identifier: Apache-2.0

// Package machine tells the console about the GPUs and disks of the server's machine: the verdicts of the doctor, the
// state of the devices, and their counters.
package machine

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/doctor"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostGPUs is the largest number of GPUs for which a path is diagnosed.
const mostGPUs = 16

// notProved is the reason why the console's diagnosis moves no data.
const notProved = "the console moves no data; run nebulaio doctor on the server to prove the route"

// Options say where a Machine looks.
type Options struct {
	// Paths are the directories of the server, such as its data directory.
	Paths []string
	// Env returns environment variables, as os.Getenv does.
	Env func(string) string
	// Tree has the files of the machine; nil means the running machine.
	Tree facts.Tree
	// Devices selects the libraries of the GPUs' driver; the zero value means those of the system.
	Devices open.Options
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Machine holds the last diagnosis, and reads the state of devices. A Machine is safe for concurrent use.
type Machine struct {
	o       Options
	working sync.WaitGroup // the diagnosis in progress

	mu        sync.Mutex
	running   bool
	when      time.Time
	diagnoses []Diagnosis
	health    map[string]facts.Health

	gpus sync.Mutex // held while the GPUs are read
	// gauge is nil until the GPUs are read for the first time, and noGPU is the reason why it stays nil.
	gauge device.Gauge
	noGPU error
}

// Diagnosis is what the doctor found out about the way from one path to one GPU.
type Diagnosis struct {
	Path   string         `json:"path"`
	GPU    int            `json:"gpu"` // CUDA's index; -1 if there is no GPU
	Result *doctor.Result `json:"result"`
	Error  string         `json:"error,omitempty"` // why there is no result
}

// New returns a Machine that has diagnosed nothing yet. The caller closes it.
func New(o Options) *Machine {
	if o.Tree == nil {
		o.Tree = facts.Live()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Machine{o: o}
}

// Close waits for a diagnosis in progress, and ends the use of the driver's library.
func (m *Machine) Close() error {
	m.working.Wait()
	m.gpus.Lock()
	defer m.gpus.Unlock()
	gauge := m.gauge
	m.gauge, m.noGPU = nil, errs.New(errs.Closed, "read the GPUs", "", "the server stops")
	if gauge == nil {
		return nil
	}
	return gauge.Close()
}

// Start begins a diagnosis in the background, unless one is running.
func (m *Machine) Start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running {
		return
	}
	m.running = true
	m.working.Go(func() {
		all, health := m.diagnose()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.running, m.when, m.diagnoses, m.health = false, m.o.Now(), all, health
	})
}

// diagnose asks the doctor about each path and each GPU.
func (m *Machine) diagnose() ([]Diagnosis, map[string]facts.Health) {
	all := []Diagnosis{}
	health := map[string]facts.Health{}
	survey, err := m.survey()
	if err != nil {
		return append(all, Diagnosis{GPU: -1, Error: err.Error()}), health
	}
	for _, path := range m.o.Paths {
		meta, err := facts.Look(path, m.o.Env)
		if err != nil {
			all = append(all, Diagnosis{Path: path, GPU: -1, Error: err.Error()})
			continue
		}
		for name, h := range meta.NVMe {
			health[name] = h
		}
		meta.Survey, meta.Proof = survey, &facts.Proof{Skipped: notProved}
		for _, gpu := range indices(survey) {
			d := Diagnosis{Path: path, GPU: gpu}
			if d.Result, err = doctor.Diagnose(m.o.Tree, meta, doctor.Options{GPU: gpu, Profile: doctor.Train}); err != nil {
				d.Error = err.Error()
			}
			all = append(all, d)
		}
	}
	return all, health
}

// survey lists the devices, without a context on a GPU.
func (m *Machine) survey() (*device.Survey, error) {
	set, err := open.New(m.o.Devices)
	if err != nil {
		return nil, err
	}
	s := set.Survey()
	return &s, set.Close()
}

// indices returns CUDA's indices of the GPUs, or -1 alone if there is none.
func indices(s *device.Survey) []int {
	n := 0
	for _, d := range s.Devices {
		if d.Kind == device.CUDA {
			n++
		}
	}
	if n == 0 {
		return []int{-1}
	}
	var all []int
	for i := range min(n, mostGPUs) {
		all = append(all, i)
	}
	return all
}

// State is what the console shows of the machine.
type State struct {
	Running   bool        `json:"running"`
	When      *time.Time  `json:"when"` // time of the diagnosis; null before the first
	Paths     []string    `json:"paths"`
	Diagnoses []Diagnosis `json:"diagnoses"`
	GPUs      []GPU       `json:"gpus"`
	NoGPU     string      `json:"gpu_reason,omitempty"`
	Disks     []Disk      `json:"disks"`
}

// State returns the last diagnosis and the present state of the devices.
func (m *Machine) State() State {
	gpus, err := m.GPUs()
	s := State{Paths: append([]string{}, m.o.Paths...), GPUs: gpus, Disks: Disks(m.o.Tree)}
	if err != nil {
		s.NoGPU = errs.MessageOf(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Running, s.Diagnoses = m.running, append([]Diagnosis{}, m.diagnoses...)
	if !m.when.IsZero() {
		when := m.when
		s.When = &when
	}
	for i := range s.Disks {
		if h, ok := m.health[s.Disks[i].controller]; ok {
			s.Disks[i].Health = &h
		}
	}
	return s
}

// Fix returns the doctor's fix script for a path and a GPU. The result is false if there is no such diagnosis.
func (m *Machine) Fix(path string, gpu int) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.diagnoses, func(d Diagnosis) bool { return d.Path == path && d.GPU == gpu && d.Result != nil })
	if i < 0 {
		return "", false
	}
	var b bytes.Buffer
	doctor.WriteFixScript(&b, m.diagnoses[i].Result)
	return b.String(), true
}

// Failures returns the findings of level FAIL of the last diagnosis, once each.
func (m *Machine) Failures() []doctor.Finding {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []doctor.Finding
	seen := map[string]bool{}
	for _, d := range m.diagnoses {
		if d.Result == nil {
			continue
		}
		for _, f := range d.Result.Findings {
			if id := f.ID + "\x00" + f.Subject; f.Level == doctor.Fail && !seen[id] {
				seen[id] = true
				all = append(all, f)
			}
		}
	}
	return all
}
