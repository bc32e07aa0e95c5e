// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"strings"
	"testing"
)

func FuzzMountinfo(f *testing.F) {
	f.Add("22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n", "/data")
	f.Add("30 22 0:60 / /my\\040data rw - nfs4 s:/m rw\n", "/my data/x")
	f.Fuzz(func(t *testing.T, text, name string) {
		all := ParseMountinfo(text)
		if len(all) > strings.Count(text, "\n")+1 {
			t.Errorf("%d mounts of %q", len(all), text)
		}
		if m := MountOf(all, name); m != nil && !strings.HasPrefix(name+"/", strings.TrimSuffix(m.Point, "/")+"/") {
			t.Errorf("%q is not on %q", name, m.Point)
		}
	})
}

func FuzzCuFile(f *testing.F) {
	f.Add([]byte("// x\n{\"a\": \"//\"}"))
	f.Add([]byte("{/* \"\\"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out := stripComments(b); len(out) > len(b) {
			t.Errorf("%d bytes became %d", len(b), len(out))
		}
		if v, err := parseCuFile(b); err == nil {
			c := CuFile{Values: v}
			c.Boolean("properties.use_pci_p2pdma")
			c.Number("execution.max_io_threads")
		}
	})
}

// FuzzConfigSpace walks the capability lists of any bytes: a list that loops or
// leads outside ends.
func FuzzConfigSpace(f *testing.F) {
	f.Add(bridge(0x1d))
	loop := make([]byte, 4096)
	loop[0x34], loop[0x41] = 0x40, 0x40
	f.Add(loop)
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		if can, set, read, ok := Payload(b); ok && (can < 128 || can > 16384 || set < 128 || set > 16384 || read < 128 ||
			read > 16384) {
			t.Errorf("payload %d of %d, read request %d", set, can, read)
		}
		if ctl, ok := ACS(b); ok != (len(b) >= 4096) || ctl&^0x3c != 0 {
			t.Errorf("ACS %#x, %v of %d bytes", ctl, ok, len(b))
		}
		for id := range uint16(0x30) {
			if at := extended(b, id); at != 0 && (at < 0x100 || at+8 > len(b)) {
				t.Errorf("the capability %#x is at %#x of %d bytes", id, at, len(b))
			}
		}
	})
}

// FuzzOptions reads the options of network mounts and their statistics.
func FuzzOptions(f *testing.F) {
	f.Add("rw,vers=4.2,rsize=65536,proto=tcp,addr=127.0.0.1", mountstats, "/data")
	f.Add(",=,==,rsize", "device x mounted on  with\nREAD:", "")
	f.Fuzz(func(t *testing.T, options, stats, point string) {
		m := &Mount{FSType: "nfs4", Source: "h:/x", Super: strings.Split(options, ",")}
		for _, o := range m.Super {
			if k, _, _ := strings.Cut(o, "="); !m.Has(k) {
				t.Errorf("%q is not found in %q", k, options)
			}
		}
		facts := &Facts{Tree: NewRecord(), Mount: m}
		facts.EFS()
		if r := ParseMountstats(stats, point); r.Ops < 0 || r.Sent < 0 || r.Queue < 0 || r.Trip < 0 {
			t.Errorf("negative counters: %+v", r)
		}
	})
}

func FuzzLustreLayout(f *testing.F) {
	f.Add(plain(lovV1, 1<<20, 4))
	f.Add(composite(0x10))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseLayout(b); ok && (s.Count < 1 || s.Size < 1) {
			t.Errorf("%+v", s)
		}
	})
}

// FuzzLines gives any text to the parsers of single lines and lists.
func FuzzLines(f *testing.F) {
	f.Add("0-3,8")
	f.Add("580.95.05")
	f.Add("32.0 GT/s PCIe")
	f.Add("0x0 0xffffff 0x1\n0x200000000000 0x201fffffffff 0x2")
	f.Add("259:0 rbps=1 wbps=max")
	f.Fuzz(func(t *testing.T, s string) {
		if n := len(ParseList(s)); n > 1<<13 {
			t.Errorf("%d numbers", n)
		}
		if v := laneRate(parseSpeed(s)); v < 0 {
			t.Errorf("a lane of %v GB/s", v)
		}
		if n := secondRegion(s); n < 0 {
			t.Errorf("a region of %d bytes", n)
		}
		for _, n := range ParseVersion(s) {
			if n < 0 {
				t.Errorf("version %v", ParseVersion(s))
			}
		}
		DriverVersion(s)
		ParseParams(s)
		BootOptions(s)
		Chosen(s)
		Word(strings.Fields(s), "rbps")
	})
}
