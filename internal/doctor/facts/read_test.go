// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestLists(t *testing.T) {
	for text, want := range map[string][]int{"0-3,8,10-11\n": {0, 1, 2, 3, 8, 10, 11}, "": nil, "5": {5}, "3-1": nil,
		"x,2": {2}, "0-99999999": nil, "-4": nil} {
		if got := ParseList(text); !slices.Equal(got, want) {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

func TestSecondRegion(t *testing.T) {
	for what, c := range map[string]struct {
		text string
		want int64
	}{
		"a 32-bit first region": {"0x00 0xffffff 0x40200\n0x200000000000 0x2001ffffffff 0x14220c\n", 8 << 30},
		"a 64-bit first region": {"0x104002000000 0x104002ffffff 0x14220c\n0x0 0x0 0x0\n0x100000000000 0x103fffffffff " +
			"0x14220c\n", 256 << 30},
		"ports before it": {"0x0 0xffffff 0x40200\n0x1000 0x107f 0x40101\n0x200000000000 0x2001ffffffff 0x14220c\n",
			8 << 30},
		"one region": {"0x0 0xffffff 0x40200\n0x0 0x0 0x0\n", 0},
		"no numbers": {"a b\nc d\n", 0},
		"nothing":    {"", 0},
	} {
		if got := secondRegion(c.text); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
}

const mountstats = `device store:/models mounted on /data with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.2
	per-op statistics
	        NULL: 1 1 0 44 24 0 0 0 0
	        READ: 100000 100500 3 1 2 70000 200000 280000 0
device x mounted on /y with fstype nfs4 statvers=1.1
	        READ: 1 1 0 1 2 3 4 5 6
`

func TestMountstats(t *testing.T) {
	if r := ParseMountstats(mountstats, "/data"); r != (NFSReads{Ops: 100000, Sent: 100500, Queue: 70000, Trip: 200000,
		HasTimes: true, Transmission: true}) {
		t.Errorf("got %+v", r)
	}
	if r := ParseMountstats(mountstats, "/y"); r.Ops != 1 || r.Trip != 4 {
		t.Errorf("got %+v", r)
	}
	for _, bad := range []string{"", "/da", "/none"} {
		if r := ParseMountstats(mountstats, bad); r.Transmission {
			t.Errorf("%q has %+v", bad, r)
		}
	}
	if r := ParseMountstats("device x mounted on /y with\nREAD: 1 x\n", "/y"); r.Transmission {
		t.Errorf("a word for a number is %+v", r)
	}
}

// plain is a layout of one part.
func plain(magic, size uint32, count uint16) []byte {
	b := make([]byte, 32)
	binary.LittleEndian.PutUint32(b, magic)
	binary.LittleEndian.PutUint32(b[24:], size)
	binary.LittleEndian.PutUint16(b[28:], count)
	return b
}

// composite is a layout of two parts, of which the first laid out.
func composite(second uint32) []byte {
	b := make([]byte, 32+2*48)
	binary.LittleEndian.PutUint32(b, lovComp)
	binary.LittleEndian.PutUint16(b[14:], 2)
	for i, flags := range []uint32{0x10, second} {
		at := 32 + i*48
		binary.LittleEndian.PutUint32(b[at+4:], flags)
		binary.LittleEndian.PutUint32(b[at+24:], uint32(len(b)+i*32))
	}
	return append(append(b, plain(lovV1, 1<<20, 1)...), plain(lovV3, 4<<20, 8)...)
}

func TestLustreLayouts(t *testing.T) {
	for what, c := range map[string]struct {
		b    []byte
		want Stripe
		ok   bool
	}{
		"version 1":           {plain(lovV1, 1<<20, 4), Stripe{4, 1 << 20}, true},
		"version 3":           {plain(lovV3, 16<<20, 1), Stripe{1, 16 << 20}, true},
		"both parts laid out": {composite(0x10), Stripe{8, 4 << 20}, true},
		"the first part":      {composite(0), Stripe{1, 1 << 20}, true},
		"another magic":       {plain(1, 1<<20, 4), Stripe{}, false},
		"every target":        {plain(lovV1, 1<<20, 0xffff), Stripe{}, false},
		"cut off":             {plain(lovV1, 1<<20, 4)[:20], Stripe{}, false},
		"nothing":             {nil, Stripe{}, false},
	} {
		if got, ok := parseLayout(c.b); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v %v, want %+v %v", what, got, ok, c.want, c.ok)
		}
	}
}

// TestLayoutOfRealFiles asks the file system that the tests run on; one that
// does not tell leaves nothing to compare.
func TestLayoutOfRealFiles(t *testing.T) {
	dir := t.TempDir()
	whole, holed := filepath.Join(dir, "whole"), filepath.Join(dir, "holed")
	if err := os.WriteFile(whole, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(holed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{0, 8 << 20} {
		if _, err := f.WriteAt([]byte(strings.Repeat("x", 1<<16)), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if l := layout(whole, 1<<20); l == nil || l.Hole != -1 {
		t.Errorf("a whole file is %+v", l)
	}
	l := layout(holed, 8<<20+1<<16)
	if l == nil || l.Hole < 1<<16 || l.Hole >= 8<<20 {
		t.Errorf("a file with a hole is %+v", l)
	}
	if l != nil && l.Extents >= 0 && l.Extents < 2 {
		t.Errorf("a file with a hole has %d extents", l.Extents)
	}
	if layout(filepath.Join(dir, "none"), 1) != nil {
		t.Error("a file that is not there has a layout")
	}
}

func TestExtentAnswers(t *testing.T) {
	b := make([]byte, fiemapHeader+2*fiemapExtent)
	binary.NativeEndian.PutUint32(b[20:], 1000) // more than there is room for
	for i, flags := range []uint32{fiemapInline, fiemapUnwrit | fiemapLast} {
		e := b[fiemapHeader+i*fiemapExtent:]
		binary.NativeEndian.PutUint64(e, uint64(i)*4096)
		binary.NativeEndian.PutUint64(e[16:], 4096)
		binary.NativeEndian.PutUint32(e[40:], flags)
	}
	var l Layout
	if n, next, last := l.take(b); n != 2 || next != 8192 || !last ||
		!reflect.DeepEqual(l.Odd, map[string]int{"inline": 1, "unwritten": 1}) {
		t.Errorf("%d extents up to %d, last %v, %v", n, next, last, l.Odd)
	}
	if got := flagNames(flagCompressed | flagVerity | 0x80000); !slices.Equal(got, []string{"compressed", "verity"}) {
		t.Errorf("flags %v", got)
	}
}

func TestCGroups(t *testing.T) {
	r := NewRecord()
	r.Files["/proc/self/cgroup"] = []byte("12:blkio:/a/b\n11:cpu,cpuacct:/a\n0::/x/y\n")
	f := Gather(r, Meta{}, -1)
	for what, c := range map[string]struct{ got, want []string }{
		"v2": {f.CGroups(), []string{"/sys/fs/cgroup/x/y", "/sys/fs/cgroup/x", "/sys/fs/cgroup"}},
		"blkio": {f.CGroups1("blkio"), []string{"/sys/fs/cgroup/blkio/a/b", "/sys/fs/cgroup/blkio/a",
			"/sys/fs/cgroup/blkio"}},
		"cpu":     {f.CGroups1("cpu"), []string{"/sys/fs/cgroup/cpu/a", "/sys/fs/cgroup/cpu"}},
		"another": {f.CGroups1("memory"), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	r.Files["/proc/self/cgroup"] = []byte("0::/" + strings.Repeat("a/", 10000))
	if n := len(Gather(r, Meta{}, -1).CGroups()); n > 64 {
		t.Errorf("%d directories", n)
	}
}

func TestEFS(t *testing.T) {
	for line, want := range map[string][2]bool{
		"nfs4 fs-1.efs.eu-west-1.amazonaws.com:/ rw,addr=10.0.0.1":        {true, false},
		"nfs4 127.0.0.1:/ rw,noresvport,port=20049,addr=127.0.0.1":        {true, true},
		"nfs4 127.0.0.1:/ rw,addr=127.0.0.1":                              {false, true},
		"nfs4 store:/efs rw,addr=10.0.0.1":                                {false, false},
		"ext4 /dev/fs-1.efs.x.amazonaws.com rw":                           {false, false},
		"nfs4 fs-1.efs.cn-north-1.amazonaws.com.cn:/sub rw,addr=10.0.0.1": {true, false},
	} {
		r := NewRecord()
		r.Files["/proc/self/mountinfo"] = []byte("30 22 0:60 / /data rw - " + line + "\n")
		f := Gather(r, Meta{Target: &Target{Path: "/data/x"}}, -1)
		if got := f.EFS(); got != want[0] || f.NFS() && f.Tunnelled() != want[1] {
			t.Errorf("%q is EFS: %v, tunnelled: %v", line, got, f.Tunnelled())
		}
	}
}

func TestSMARTLogs(t *testing.T) {
	b := make([]byte, 512)
	b[0], b[3], b[4], b[5], b[160], b[161], b[192] = 4, 99, 10, 7, 1, 1, 30
	if h, ok := parseSMART(b); !ok || h != (Health{Critical: 4, Spare: 99, SpareThreshold: 10, Used: 7, MediaErrors: 257,
		HotMinutes: 30}) {
		t.Errorf("got %+v", h)
	}
	if _, ok := parseSMART(b[:511]); ok {
		t.Error("a log that is cut off was read")
	}
	if health("no-such-controller") != nil {
		t.Error("a drive that is not there is healthy")
	}
}
