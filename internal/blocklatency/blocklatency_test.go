// SPDX-License-Identifier: Apache-2.0

package blocklatency

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// tracefs returns a folder with the tracepoints of the kernel. It skips the test with the reason if there is none.
func tracefs(t *testing.T) string {
	t.Helper()
	for _, dir := range Places() {
		if _, err := os.Stat(filepath.Join(dir, "events/block")); err == nil {
			return dir
		}
	}
	dir := t.TempDir()
	if err := unix.Mount("nodev", dir, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		t.Skipf("tracefs is not mounted, and this test may not mount it: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// writeDirect writes blocks past the page cache, so that each write is one request to a block device. It returns false
// if the file system has none.
func writeDirect(t *testing.T, blocks int) bool {
	t.Helper()
	name := filepath.Join(t.TempDir(), "blocks")
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const size = 4096
	page, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(page) }()
	for i := range blocks {
		if n, err := unix.Pwrite(fd, page, int64(i)*size); err != nil || n != size {
			t.Fatal(n, err)
		}
	}
	if err := unix.Fsync(fd); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestLatenciesOfTheKernelAreCounted(t *testing.T) {
	dir := tracefs(t)
	r, err := Open(dir)
	if errs.Is(err, errs.Permission) || errs.Is(err, errs.Unsupported) {
		t.Skipf("the kernel counts nothing here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	const blocks = 64
	if !writeDirect(t, blocks) {
		t.Skip("the file system of the temporary folder does not write past the page cache")
	}
	all, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	writes := uint64(0)
	for _, h := range all {
		sum := uint64(0)
		for i, b := range h.Buckets {
			sum += b.Requests
			if i > 0 && b.Below <= h.Buckets[i-1].Below {
				t.Errorf("%s: bucket %d is not behind the one before", h.Disk, i)
			}
		}
		if sum != h.Requests || h.Disk == "" {
			t.Errorf("%+v: %d requests in buckets", h, sum)
		}
		if h.Operation == "write" || h.Operation == "flush" {
			writes += h.Requests
		}
		if q := h.Quantile(0.5); q <= 0 || q > 3600 || q > h.Quantile(0.99) {
			t.Errorf("%s %s: half of the requests take %g s, 99 %% %g s", h.Disk, h.Operation, q, h.Quantile(0.99))
		}
	}
	if writes < blocks {
		t.Errorf("%d writes were counted, expected at least %d: %+v", writes, blocks, all)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestAKernelThatCannotCountSaysWhy(t *testing.T) {
	_, err := Open(t.TempDir(), filepath.Join(t.TempDir(), "none"))
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(errs.FixOf(err), "mount -t tracefs") {
		t.Errorf("%v", err)
	}
	for cause, kind := range map[error]errs.Kind{unix.EPERM: errs.Permission, unix.EACCES: errs.Permission,
		unix.ENOSYS: errs.Unsupported} {
		if got := explained(fmt.Errorf("load program: %w", cause)); !errs.Is(got, kind) ||
			!strings.Contains(got.Error(), "eBPF") {
			t.Errorf("%v: %v", cause, got)
		}
	}
}

const format = `name: block_rq_issue
ID: 2104
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:dev_t dev;	offset:8;	size:4;	signed:0;
	field:sector_t sector;	offset:16;	size:8;	signed:0;
	field:char rwbs[10];	offset:34;	size:10;	signed:0;
`

func TestTracepointsAreRead(t *testing.T) {
	got, err := parseEvent("x", "2104\n", format)
	if err != nil || got != (event{id: 2104, dev: 8, sector: 16, flags: 34}) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, c := range map[string][2]string{
		"no number":       {"x", format},
		"no field":        {"1", strings.ReplaceAll(format, "sector_t sector", "sector_t other")},
		"other size":      {"1", strings.ReplaceAll(format, "offset:8;	size:4", "offset:8;	size:8")},
		"not aligned":     {"1", strings.ReplaceAll(format, "offset:16", "offset:17")},
		"in the header":   {"1", strings.ReplaceAll(format, "offset:8;", "offset:4;")},
		"huge offset":     {"1", strings.ReplaceAll(format, "offset:34", "offset:99999999999")},
		"negative offset": {"1", strings.ReplaceAll(format, "offset:34", "offset:-34")},
	} {
		if got, err := parseEvent("x", c[0], c[1]); !errs.Is(err, errs.Unsupported) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzTracepoint(f *testing.F) {
	f.Add("2104\n", format)
	f.Fuzz(func(t *testing.T, id, text string) {
		e, err := parseEvent("x", id, text)
		if err == nil && (e.dev < 8 || e.sector < 8 || e.flags < 8 || e.dev%4 != 0 || e.sector%8 != 0) {
			t.Errorf("%+v", e)
		}
	})
}

func TestBuckets(t *testing.T) {
	last := 0.0
	for s := range slots {
		if s/parts < partBits && s%parts != 0 {
			continue // no latency is so short
		}
		if b := below(s); b <= last {
			t.Fatalf("bucket %d ends at %g, the one before at %g", s, b, last)
		} else {
			last = b
		}
	}
	for _, ns := range []uint64{0, 1, 2, 3, 4, 5, 999, 1000, 123_456, 1e9, 1 << 40, 1 << 60} {
		if high := below(slot(ns)); float64(ns) >= high || ns > 8 && high > 1.26*float64(ns) {
			t.Errorf("%d ns is in a bucket that ends at %g", ns, high)
		}
	}
}

func TestHistogramsAreSorted(t *testing.T) {
	key := func(dev, letter, slot uint64) uint64 { return dev<<32 | letter<<16 | slot }
	all := histograms(map[uint64]uint64{
		key(2, 'W', 40): 1, key(1, 'R', 44): 3, key(1, 'R', 40): 7, key(1, 0, 9): 2, key(1, 'D', 80): 1, key(1, 'F', 80): 1,
	}, func(dev uint32) string { return fmt.Sprintf("disk%d", dev) })
	var names []string
	for _, h := range all {
		names = append(names, fmt.Sprintf("%s %s %d", h.Disk, h.Operation, h.Requests))
	}
	if got := strings.Join(names, ", "); got !=
		"disk1 discard 1, disk1 flush 1, disk1 other 2, disk1 read 10, disk2 write 1" {
		t.Error(got)
	}
	read := all[3]
	if read.Quantile(0.5) != below(40)/1e9 || read.Quantile(0.9) != below(44)/1e9 || (Histogram{}).Quantile(0.5) != 0 {
		t.Errorf("%+v", read)
	}
	if diskName(999<<20|7) != "999:7" {
		t.Error(diskName(999<<20 | 7))
	}
}

// The kernel's program and function slot agree on every bucket.
func TestTheProgramFindsTheSameBuckets(t *testing.T) {
	for _, ns := range []uint64{0, 1, 2, 3, 4, 7, 8, 9, 1000, 1_000_000, 123_456_789, 1<<32 - 1, 1 << 32, 1 << 62} {
		code := append(asm.Instructions{asm.LoadImm(asm.R7, int64(ns), asm.DWord)}, slotOf()...)
		code = append(code, asm.Mov.Reg(asm.R0, asm.R2), asm.Return())
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, Instructions: code, License: "Apache-2.0"})
		if err != nil && errs.Is(explained(err), errs.Permission) {
			t.Skipf("needs root: this user may not load eBPF programs: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := program.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
		if err != nil {
			t.Fatal(err)
		}
		if int(got) != slot(ns) {
			t.Errorf("%d ns: bucket %d in the kernel, %d here", ns, got, slot(ns))
		}
		if err := program.Close(); err != nil {
			t.Error(err)
		}
	}
}
