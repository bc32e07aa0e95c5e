// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Options say which meters a Collector reads. The zero value of Options reads the running machine without GPUs and
// without a server.
type Options struct {
	// Root is the directory that holds proc and sys; "" means the running machine. Tests use a directory with files.
	Root string
	// GPUs reads the meters of the GPUs. If GPUs is nil, NoGPU is the reason, which every Sample then lists; if both are
	// nil, GPUs are not mentioned. The caller closes GPUs after the Collector.
	GPUs  device.Gauge
	NoGPU error
	// Ceilings are the measured limits of the machine; nil if none were measured.
	Ceilings *record.Ceilings
	// Server is the address of the console of a NebulaIO server, such as http://127.0.0.1:9001; "" reads no server.
	Server ServerOptions
	// Now returns the time; nil means time.Now.
	Now func() time.Time
}

// Collector reads the meters of a machine. A Collector is not safe for concurrent use.
type Collector struct {
	files    *files
	gauge    device.Gauge
	noGPU    error
	ceilings ceilings
	now      func() time.Time
	host     string
	self     int // own process ID; 0 if the files are those of another machine

	reads  uint64 // samples so far
	opened time.Time
	last   time.Time
	clock  float64 // seconds since opened, at this sample; never 0
	passed float64 // seconds since the last sample; 0 at the first
	own    float64 // processor time of this process at the last sample

	// What the last sample read.
	stat      procStat
	stalls    stalls
	memory    Memory
	shape     *shape
	disks     map[string]Disk
	nics      map[string]nic
	networks  map[string]Network
	tcp       TCP
	nfs       map[string]NFS
	lustre    map[string]Lustre
	cufile    *CuFile
	gpus      map[int]device.GPUReading
	gpusAt    time.Time // when gpus was read
	gpuMemory map[int]uint64
	groups    map[string]groupState
	watched   map[int]*watched
	server    *serverMeter
}

// Open returns a Collector. Open fails with kind Invalid if the address of the server is not an http or https URL. The
// Collector keeps no file open; the caller closes it to end its connection to the server.
func Open(o Options) (*Collector, error) {
	c := &Collector{files: newFiles(o.Root), gauge: o.GPUs, noGPU: o.NoGPU, ceilings: ceilings{o.Ceilings}, now: o.Now,
		watched: map[int]*watched{}, gpuMemory: map[int]uint64{}, stalls: stalls{-1, -1, -1, -1, -1}}
	if c.now == nil {
		c.now = time.Now
	}
	c.host = c.files.text("/proc/sys/kernel/hostname")
	if c.host == "" && o.Root == "" {
		c.host, _ = os.Hostname() // an empty name is shown as none
	}
	if o.Root == "" {
		c.self = os.Getpid()
	}
	c.opened = c.now().Add(-time.Second)
	if o.Server.Address != "" {
		m, err := newServerMeter(o.Server)
		if err != nil {
			return nil, err
		}
		c.server = m
	}
	return c, nil
}

// Read reads all meters. Rates are those since the last call; the first call returns counters only. Read never fails: a
// meter that cannot be read is listed in Sample.Missing. The context bounds the wait for the server.
func (c *Collector) Read(ctx context.Context) *Sample {
	at := c.now()
	s := &Sample{Version: Version, Time: at, Host: c.host}
	if c.reads > 0 {
		s.Seconds = max(at.Sub(c.last).Seconds(), 0)
	}
	c.last, c.clock, c.passed = at, at.Sub(c.opened).Seconds(), s.Seconds
	c.readCPU(s)
	c.readPressure(s)
	c.readMemory(s)
	c.readDisks(s)
	c.readNetworks(s)
	c.readNFS(s)
	c.readLustre(s)
	c.readCuFile(s)
	c.readProcesses(s)
	c.readCGroups(s)
	c.readGPUs(s)
	if c.server != nil {
		c.server.read(ctx, s)
	}
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) == nil {
		used := seconds(use.Utime) + seconds(use.Stime)
		if c.reads > 0 {
			s.Own = ago(used, c.own, s.Seconds)
		}
		c.own = used
	}
	c.reads++
	return s
}

func seconds(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// Close ends the connection to the server.
func (c *Collector) Close() {
	if c.server != nil {
		c.server.close()
	}
}

// miss lists a meter that could not be read.
func (s *Sample) miss(meter string, err error) {
	s.missText(meter, errs.MessageOf(err), errs.FixOf(err))
}

func (s *Sample) missText(meter, reason, fix string) {
	s.Missing = append(s.Missing, Missing{Meter: meter, Reason: reason, Fix: fix})
}
