// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

// made returns the files of a made-up machine.
func made() *facts.Record {
	r := facts.NewRecord()
	r.Dirs["/sys/block"] = []string{"loop0", "nvme0n1", "sda"}
	r.Dirs["/sys/block/nvme0n1"] = []string{"nvme0n1p1", "size"}
	r.Dirs["/sys/class/nvme/nvme0"] = []string{"hwmon3", "transport"}
	for name, text := range map[string]string{
		"/sys/block/nvme0n1/size": "2048\n", "/sys/block/nvme0n1/device/model": "Fast Disk  \n",
		"/sys/block/nvme0n1/device/firmware_rev": "F1", "/sys/block/nvme0n1/device/numa_node": "1",
		"/sys/block/nvme0n1/dev": "259:0", "/sys/block/nvme0n1/nvme0n1p1/dev": "259:1",
		"/sys/class/nvme/nvme0/transport":          "pcie\n",
		"/sys/class/nvme/nvme0/hwmon3/temp1_input": "41850\n",
		"/sys/block/sda/size":                      "10", "/sys/block/sda/ro": "1", "/sys/block/sda/queue/rotational": "1",
		"/proc/self/mountinfo": "22 1 259:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n",
		"/proc/diskstats": "259 0 nvme0n1 1 2 8 4 5 6 16 7 0 1500 9 0 0 0 0\n259 1 nvme0n1p1 1 2 8 4 5 6 16 7 0 1500 9\n" +
			"7 0 loop0 1 1 1 1 1 1 1 1 1 1 1\nbroken\n8 0 sda 1 2 x 4 5 6 16 7 0 1500 9\n",
	} {
		r.Files[name] = []byte(text)
	}
	return r
}

func TestDisksOfAMachine(t *testing.T) {
	all := Disks(made())
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	d := all[0]
	if d.Name != "nvme0n1" || d.Model != "Fast Disk" || d.Size != 1<<20 || d.Kind != "nvme" || d.NUMA != 1 ||
		d.Transport != "pcie" || d.Temperature == nil || *d.Temperature != 41.85 || fmt.Sprint(d.Mounts) != "[/data]" ||
		d.Firmware != "F1" || d.controller != "nvme0" {
		t.Errorf("%+v", d)
	}
	if s := all[1]; !s.ReadOnly || !s.Rotational || s.Temperature != nil || s.NUMA != -1 {
		t.Errorf("%+v", s)
	}
	if got := Disks(facts.NewRecord()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestCountersOfDisksSkipPartitionsAndDamage(t *testing.T) {
	c := New(Options{Tree: made()}).Counters()
	got := c.Disks()
	if fmt.Sprint(got) != "[{nvme0n1 4096 8192 1.5s}]" {
		t.Errorf("%v", got)
	}
}

func FuzzDiskstats(f *testing.F) {
	f.Add("259 0 nvme0n1 1 2 8 4 5 6 16 7 0 1500 9 0 0 0 0\n")
	f.Fuzz(func(t *testing.T, stats string) {
		for _, d := range parseDiskstats(stats, func(string) bool { return true }) {
			if d.Read < 0 || d.Written < 0 || d.Busy < 0 {
				t.Fatalf("%+v", d)
			}
		}
	})
}

func TestADiagnosisOfThisMachine(t *testing.T) {
	missing := open.Options{CUDALibraries: []string{"/missing/libcuda.so"}, NVMLLibraries: []string{"/missing/nvml.so"}}
	dir := t.TempDir()
	m := New(Options{Paths: []string{dir, dir + "/missing"}, Env: os.Getenv, Devices: missing})
	if s := m.State(); s.When != nil || len(s.Diagnoses) != 0 || s.NoGPU == "" || s.GPUs == nil {
		t.Errorf("%+v", s)
	}
	m.Start()
	m.Start() // one at a time
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	s := m.State()
	if s.Running || s.When == nil || len(s.Diagnoses) != 2 || s.Diagnoses[0].Result == nil || s.Diagnoses[0].GPU != -1 {
		t.Fatalf("%+v", s)
	}
	if s.Diagnoses[1].Error == "" {
		t.Errorf("a missing path: %+v", s.Diagnoses[1])
	}
	script, ok := m.Fix(dir, -1)
	if !ok || !strings.HasPrefix(script, "#!") {
		t.Errorf("%v %.60q", ok, script)
	}
	if _, ok := m.Fix("/etc/shadow", -1); ok {
		t.Error("a script for a path that was not diagnosed")
	}
	m.Failures()
}

func TestRatesOfALinkComeFromItsCounters(t *testing.T) {
	at := time.Unix(10, 0)
	before := device.GPUReading{Counted: true, Received: 100, Sent: 50, CountedAt: at}
	now := device.GPUReading{Counted: true, Received: 300, Sent: 150, CountedAt: at.Add(2 * time.Second)}
	if rx, tx := linkRates(before, now); rx != 100 || tx != 50 {
		t.Errorf("%v %v", rx, tx)
	}
	for _, bad := range []device.GPUReading{{}, {Counted: true, Received: 301, CountedAt: at}, {Counted: true,
		CountedAt: at.Add(2 * time.Second)}} {
		if rx, tx := linkRates(bad, now); rx != -1 || tx != -1 {
			t.Errorf("%+v: %v %v", bad, rx, tx)
		}
	}
}
