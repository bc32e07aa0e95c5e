// SPDX-License-Identifier: Apache-2.0

package meters_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/meters"
	"github.com/nebulaio/nebulaio/internal/meters/fakemachine"
	"github.com/nebulaio/nebulaio/test/effort"
)

// stagedGPU is a Gauge whose values a test sets.
type stagedGPU struct{ device.GPUReading }

func (g *stagedGPU) Read() []device.GPUReading { return []device.GPUReading{g.GPUReading} }
func (g *stagedGPU) Close() error              { return nil }

// stage is a machine with a GPU, on which a situation happens.
type stage struct {
	*fakemachine.Machine
	gpu *stagedGPU
	rnd *rand.Rand
}

func newStage(t *testing.T, seed uint64) *stage {
	s := &stage{Machine: fakemachine.New(t), rnd: rand.New(rand.NewPCG(seed, 1)), gpu: &stagedGPU{device.GPUReading{
		Model: "NVIDIA H200", Counted: true, LinkGen: 5, LinkWidth: 16, LinkGenMax: 5, LinkWidthMax: 16,
		MemoryTotal: 140 << 30, MemoryUsed: 20 << 30, Celsius: 40, Watts: 100}}}
	s.CPUs = make([]fakemachine.CPU, 16)
	s.Disks["nvme0n1"] = &fakemachine.Disk{Reads: 1, ReadSectors: 8}
	s.Processes[500] = &fakemachine.Process{Name: "python", Group: "/job"}
	s.Processes[600] = &fakemachine.Process{Name: "sshd"}
	s.Groups["/job"] = &fakemachine.Group{}
	return s
}

// about returns v with a spread of 5 percent to both sides.
func (s *stage) about(v float64) float64 { return v * (0.95 + 0.1*s.rnd.Float64()) }

// read lets a disk deliver a rate for a second: busy for a share of it, with a mean depth and reads of the given size.
func (s *stage) read(name string, rate, busy, depth, each float64) {
	d, n := s.Disks[name], uint64(rate/each)
	d.Reads += n
	d.ReadSectors += uint64(rate / 512)
	d.BusyMS += uint64(min(busy, 1) * 1000)
	d.QueueMS += uint64(depth * 1000)
	d.ReadMS += uint64(depth * 1000)
	d.InFlight = uint64(depth)
}

// situations are the eight situations that top has to tell apart. Each function stages one second of it.
func situations() []situation {
	return []situation{
		{"disk", bottleneck.Storage, bottleneck.Disk, "nvme0n1", func(s *stage) {
			rate := s.about(3.2e9)
			s.read("nvme0n1", rate, s.about(0.98), s.about(24), 128<<10)
			p := s.Processes[500]
			p.Rchar, p.ReadBytes, p.State = p.Rchar+uint64(rate), p.ReadBytes+uint64(rate), 'D'
			p.Ticks += uint64(s.about(30))
			p.Delay += uint64(s.about(95))
			s.Stalls[3] += uint64(s.about(920_000))
			s.gpu.Busy = s.about(0.2)
			s.move(s.about(3.2e9))
			s.Pass(time.Second, 0.03, 0.05, s.about(0.3), 0)
		}},
		{"cache-bound CPU", bottleneck.CPU, bottleneck.PageCache, "", func(s *stage) {
			p := s.Processes[500]
			p.Rchar += uint64(s.about(7e9))
			used := uint64(s.about(97))
			if used > 100 {
				used = 100
			}
			p.Ticks += used
			p.Threads = map[int]uint64{500: p.Ticks}
			s.Stalls[0] += uint64(s.about(10_000))
			s.Pass(time.Second, 0.005, 0.06, 0, 0)
		}},
		{"PCIe", bottleneck.Copy, "", "GPU 0", func(s *stage) {
			s.gpu.Busy = s.about(0.3)
			s.move(s.about(52e9))
			s.Processes[500].Ticks += uint64(s.about(50))
			s.Pass(time.Second, s.about(0.05), 0.01, 0, 0)
		}},
		{"network", bottleneck.Communication, "", "eth0", func(s *stage) {
			n := s.Networks["eth0"]
			rate := s.about(1.15e9) // of 1.25e9
			n.Received += uint64(rate)
			n.Sent += uint64(rate / 50)
			p := s.Processes[500]
			p.Rchar += uint64(rate)
			p.Ticks += uint64(s.about(40))
			s.gpu.Busy = s.about(0.25)
			s.Pass(time.Second, s.about(0.05), s.about(0.06), 0, 0)
		}},
		{"GPU busy", bottleneck.Compute, "", "GPU 0", func(s *stage) {
			s.gpu.Busy = min(s.about(0.97), 1)
			s.move(s.about(2e9))
			s.read("nvme0n1", s.about(4e8), s.about(0.15), 1, 128<<10)
			s.Processes[500].Ticks += uint64(s.about(90))
			s.Pass(time.Second, s.about(0.1), 0.02, 0, 0)
		}},
		{"throttled cgroup", bottleneck.CPU, bottleneck.Throttled, "/job", func(s *stage) {
			g, p := s.Groups["/job"], s.Processes[500]
			g.Max = "150000 100000"
			g.Periods += 10
			g.Throttled += uint64(8 + s.rnd.IntN(3))
			g.ThrottledUS += uint64(s.about(700_000))
			g.UsageUS += uint64(s.about(1_500_000))
			p.Ticks += uint64(s.about(150))
			s.Stalls[0] += uint64(s.about(400_000))
			s.gpu.Busy = s.about(0.1)
			s.Pass(time.Second, s.about(0.09), 0.01, 0, 0)
		}},
		{"dirty writeback", bottleneck.Storage, bottleneck.Writeback, "nvme0n1", func(s *stage) {
			d, p := s.Disks["nvme0n1"], s.Processes[500]
			rate := s.about(9e8)
			d.Writes += uint64(rate / (512 << 10))
			d.WriteSectors += uint64(rate / 512)
			d.BusyMS += uint64(min(s.about(0.97), 1) * 1000)
			d.QueueMS += uint64(s.about(60_000))
			d.WriteMS += uint64(s.about(60_000))
			s.Memory.DirtyKB, s.Memory.WritebackKB = uint64(s.about(700_000*4)), uint64(s.about(50_000*4))
			s.Memory.Dirtied += uint64(rate / 4096)
			s.Memory.Written += uint64(rate / 4096)
			p.Wchar, p.Written, p.State = p.Wchar+uint64(rate), p.Written+uint64(rate), 'D'
			p.Delay += uint64(s.about(80))
			s.Stalls[3] += uint64(s.about(800_000))
			s.Pass(time.Second, 0.01, 0.05, s.about(0.3), 0)
		}},
		{"nothing", bottleneck.Nothing, "", "", func(s *stage) {
			s.read("nvme0n1", s.about(2e7), s.about(0.02), 0.1, 64<<10)
			s.Networks["eth0"].Received += uint64(s.about(3e6))
			s.Processes[600].Rchar += uint64(s.about(1e6))
			s.Processes[500].Ticks += uint64(s.about(5))
			s.Stalls[0] += uint64(s.about(5_000))
			s.gpu.Busy = 0.01
			s.Pass(time.Second, s.about(0.04), 0.01, 0.01, 0)
		}},
	}
}

type situation struct {
	name     string
	bound    bottleneck.Bound
	cause    bottleneck.Cause
	resource string
	second   func(*stage)
}

// move copies bytes to the GPU for a second.
func (s *stage) move(rate float64) { s.gpu.Received += uint64(rate) }

func TestEachSituationHasItsVerdict(t *testing.T) {
	seeds := effort.Rounds{Test: 5, CI: 20}.Of(t)
	for _, c := range situations() {
		t.Run(c.name, func(t *testing.T) {
			right, s := 0, newStage(t, 0)
			for seed := range uint64(seeds) {
				s.rnd = rand.New(rand.NewPCG(seed, 2)) // a machine that runs on, and a new look at it
				s.Write()
				m, err := meters.Open(meters.Options{Root: s.Root, GPUs: s.gpu, Now: s.Clock})
				if err != nil {
					t.Fatal(err)
				}
				m.Read(t.Context())
				for second := range 3 {
					c.second(s)
					s.Write()
					sample := m.Read(t.Context())
					v := bottleneck.Judge(sample.Window())
					if v.Bound != c.bound || v.Cause != c.cause || c.resource != "" && v.Resource != c.resource || v.Why == "" ||
						len(v.Figures) != 4 {
						t.Errorf("seed %d, second %d: %s, %q, %q: %s", seed, second, v.Bound, v.Cause, v.Resource, v.Why)
						continue
					}
					right++
				}
				if len(m.Read(t.Context()).Missing) > 0 {
					t.Error("a meter is missing")
				}
				m.Close()
			}
			if right != 3*seeds {
				t.Errorf("%d of %d seconds were judged right", right, 3*seeds)
			}
		})
	}
}

// TestAVerdictHasEvidenceAndAdvice says that each verdict but "nothing" names figures and what to do.
func TestAVerdictHasEvidenceAndAdvice(t *testing.T) {
	for _, c := range situations() {
		s := newStage(t, 7)
		s.Write()
		m, err := meters.Open(meters.Options{Root: s.Root, GPUs: s.gpu, Now: s.Clock})
		if err != nil {
			t.Fatal(err)
		}
		m.Read(t.Context())
		c.second(s)
		s.Write()
		v := bottleneck.Judge(m.Read(t.Context()).Window())
		if text := fmt.Sprint(v.Figures); len(v.Next) == 0 || text == "" {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}
