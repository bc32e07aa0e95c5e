// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// FuzzParsers gives any text to each parser of a file of the kernel. A parser never panics, and what it returns is
// bounded.
func FuzzParsers(f *testing.F) {
	for _, name := range []string{"/proc/stat", "/proc/meminfo", "/proc/vmstat", "/proc/diskstats", "/proc/net/dev",
		"/proc/net/snmp",
		"/proc/self/stat", "/proc/self/io", "/proc/self/cgroup", "/proc/self/mountinfo", "/proc/self/mountstats",
		"/proc/pressure/io"} {
		if b, err := os.ReadFile(name); err == nil {
			f.Add(b[:min(len(b), 4096)])
		}
	}
	for _, s := range []string{"1 (a) b) S 1 2 3", "cpu  1 2 3 4\ncpu0 1 2 3 4 5 6 7 8\n",
		"read_bytes 1 samples [bytes] 1 2 3\n",
		" 7 0 loop0 1 2 3 4 5 6 7 8 9 10 11\n", "device a mounted on b with fstype nfs\n READ: 1 2 3 4 5 6 7 8\n",
		"some avg10=1 total=18446744073709551615\n", "Reads : n=1 err=2 readMiB=18446744073709551615\nIO stats: Disabled\n",
		"0::/a b\n3:cpu,cpuacct:/x\n0::/../..\n", "max 100000\n", "100 0\n",
		"nebulaio_s3_requests_total{code=\"500\",operation=\"x\"} 1e400\n",
		"nebulaio_gpudirect_reported_bytes_total{route=\"a\\\"b\",stage=\"total\"} -1\n",
		"eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseStat(b); ok && (s.running < 0 || s.blocked < 0 || len(s.each) > 1<<14) {
			t.Errorf("%+v", s)
		}
		if disks, numbers := parseDiskstats(b); len(disks) > mostDisks || len(numbers) > mostDisks {
			t.Errorf("%d disks", len(disks))
		}
		for _, n := range parseNetDev(b) {
			n.since(Network{}, 1)
			if math.IsNaN(n.ReceiveRate) || n.ReceiveRate < 0 {
				t.Errorf("%+v", n)
			}
		}
		var m Memory
		parseMeminfo(b, &m)
		parseVmstat(b, 4096, &m)
		for _, n := range parseMountstats(b) {
			n.since(NFS{}, 1)
			if n.ReadTrip < 0 || math.IsNaN(n.ReadTrip) {
				t.Errorf("%+v", n)
			}
		}
		for _, p := range parsePIDCGroup(b) {
			if _, path, ok := strings.Cut(p, ":"); !ok || !filepath.IsAbs(path) || strings.Contains(path, "..") &&
				filepath.Clean(path) != path {
				t.Errorf("%q leaves the tree of control groups", p)
			}
		}
		if some, full := parsePressure(b); some < -1 || full < -1 {
			t.Errorf("%d %d", some, full)
		}
		if q := parseCPUMax(b); math.IsNaN(q) || q < 0 {
			t.Error(q)
		}
		if n := parseInFlight(b); n < 0 || n > 1<<20 {
			t.Error(n)
		}
		if s, ok := parseMetrics(b); ok && len(s.DoorBytes) > mostRoutes {
			t.Errorf("%d routes", len(s.DoorBytes))
		}
		var (
			p Process
			l Lustre
			c CuFile
		)
		parsePIDStat(b)
		parsePIDIO(b, &p)
		parseLustreStats(b, &l)
		parseNVFS(b, &c)
		parseSNMP(b)
		parseMounts(b)
		linkRate(string(b))
	})
}

// FuzzRecording gives any bytes to the reader of recordings. What it returns can be judged.
func FuzzRecording(f *testing.F) {
	f.Add([]byte(`{"version":1,"time":"2026-01-02T03:04:05Z","seconds":1,"disks":[{"name":"x","busy":1e308}]}` + "\n"))
	f.Add([]byte("\n\n{}\n"))
	f.Add([]byte(`{"version":2,"time":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"version":1,"time":"2026-01-02T03:04:05Z","seco`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := ReadRecording(strings.NewReader(string(b)), "x")
		for {
			s, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				if !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.Unsupported) {
					t.Errorf("kind of %v", err)
				}
				return
			}
			if v := bottleneck.Judge(s.Window()); v.Bound == "" {
				t.Errorf("no verdict: %+v", v)
			}
		}
	})
}
