// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func mapped(t *testing.T, n int64) *Region {
	t.Helper()
	r, err := Map(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Unmap() })
	return r
}

func TestMapIsAlignedAndWritable(t *testing.T) {
	for _, n := range []int64{1, HugePage, HugePage + 1, 5 * HugePage} {
		b := mapped(t, n).Bytes()
		if int64(len(b)) < n || len(b)%HugePage != 0 || uintptr(unsafe.Pointer(&b[0]))%HugePage != 0 {
			t.Errorf("%d bytes: %d at %p", n, len(b), &b[0])
		}
		Touch(b, 3)
		b[0], b[len(b)-1] = 1, 2
	}
}

func TestMapRefusesNothingAndTooMuch(t *testing.T) {
	for _, n := range []int64{0, -1} {
		if _, err := Map(n); !errs.Is(err, errs.Invalid) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := Map(1 << 60); !errs.Is(err, errs.NoMemory) || errs.FixOf(err) == "" {
		t.Errorf("more than an address space: %v", err)
	}
}

// Touch changes no byte, whether or not the kernel can allocate pages without a write to them.
func TestTouchChangesNothing(t *testing.T) {
	b := mapped(t, HugePage).Bytes()
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	Touch(b, 2)
	touchEach(b)
	for i := range b {
		if b[i] != byte(i*7+1) {
			t.Fatalf("byte %d is %d, expected %d", i, b[i], byte(i*7+1))
		}
	}
}

func TestUnmapTwice(t *testing.T) {
	r, err := Map(1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Unmap(); err != nil {
			t.Error(err)
		}
	}
}

func TestTouchMakesPagesResident(t *testing.T) {
	r := mapped(t, 4*HugePage)
	before, err := r.Stats()
	if err != nil {
		t.Skipf("the kernel does not account for mappings here: %v", err)
	}
	if before.Resident != 0 {
		t.Errorf("%d bytes are resident before they are touched", before.Resident)
	}
	for _, workers := range []int{0, 1, 7} {
		Touch(r.Bytes(), workers)
	}
	Touch(nil, 1)
	after, err := r.Stats()
	if err != nil || after.Resident != 4*HugePage || after.HugePages > after.Resident {
		t.Errorf("touched %d bytes: %+v %v", 4*HugePage, after, err)
	}
}

// A child that wrote to pinned pages would split them from the device's view,
// so the pages stay out of forked children: the kernel shows that as "dc".
func TestMappingsStayOutOfForkedChildren(t *testing.T) {
	r := mapped(t, HugePage)
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skipf("no account of mappings: %v", err)
	}
	lo := uint64(uintptr(unsafe.Pointer(&r.Bytes()[0])))
	inside, found := false, false
	for line := range strings.Lines(string(text)) {
		if a, b, ok := mapRange(line); ok {
			inside = a <= lo && lo < b
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			found = true
			if !strings.Contains(flags, " dc ") {
				t.Errorf("flags of the mapping: %s", flags)
			}
		}
	}
	if !found {
		t.Skip("the kernel shows no flags of mappings")
	}
}

const smaps = `55d0c8a00000-55d0c8a21000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                 100 kB
AnonHugePages:         8 kB
VmFlags: rd wr mr mw me ac
7f1000000000-7f1000400000 rw-p 00000000 00:00 0
Size:               4096 kB
KernelPageSize:        4 kB
Rss:                4096 kB
Pss:                4096 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        0 kB
VmFlags: rd wr mr mw me dc ac hg
7f1000400000-7f1000600000 rw-p 00000000 00:00 0
Size:               2048 kB
Rss:                  12 kB
AnonHugePages:         0 kB
7f1000600000-7f1000800000 r--p 00000000 fd:00 1234                       /lib/a-b.so
Rss:                 999 kB
AnonHugePages:       999 kB
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
Rss:                   0 kB
`

func TestStatsAddUpTheMappingsOfARegion(t *testing.T) {
	for _, c := range []struct {
		lo, hi uint64
		want   Stats
	}{
		{0x7f1000000000, 0x7f1000400000, Stats{4096 << 10, 2048 << 10}},
		{0x7f1000000000, 0x7f1000600000, Stats{4108 << 10, 2048 << 10}}, // split by advice
		{0x7f1000400000, 0x7f1000600000, Stats{12 << 10, 0}},
		{0x100000, 0x200000, Stats{}},
	} {
		got, err := scanSmaps(strings.NewReader(smaps), c.lo, c.hi)
		if err != nil || got != c.want {
			t.Errorf("[%x, %x): %+v %v, expected %+v", c.lo, c.hi, got, err, c.want)
		}
	}
}

func TestStatsOfStrangeText(t *testing.T) {
	for _, text := range []string{"", "no-map here\nRss: 12 kB\n",
		"7f1000000000-7f1000400000 rw-p\nRss: many kB\nAnonHugePages:\n", "7f1000000000-zz rw-p\nRss: 1 kB\n"} {
		if got, err := scanSmaps(strings.NewReader(text), 0x7f1000000000, 0x7f1000400000); err != nil || got != (Stats{}) {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
}
