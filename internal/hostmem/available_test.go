// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const gib = int64(1) << 30

// tree writes files below a directory of the test's.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	meminfo = "MemTotal:       67108864 kB\nMemFree:         1048576 kB\nMemAvailable:   33554432 kB\nCached: " +
		"30000000 kB\nSwapFree:              0 kB\n"
	mountsTwo = "24 1 0:22 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 " +
		"rw,nsdelegate\n"
	mountsOne = "33 32 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n34 32 0:30 / /sys/fs/cgroup/cpu rw - " +
		"cgroup cgroup rw,cpu\n"
)

func TestAvailableIsTheLeastBound(t *testing.T) {
	two := func(files map[string]string) map[string]string {
		all := map[string]string{"proc/meminfo": meminfo, "proc/self/mountinfo": mountsTwo,
			"proc/self/cgroup": "0::/pod/app\n"}
		for k, v := range files {
			all[k] = v
		}
		return all
	}
	const app, pod, top = "sys/fs/cgroup/pod/app/", "sys/fs/cgroup/pod/", "sys/fs/cgroup/"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
		limit string
		not   bool
	}{
		"the machine alone": {map[string]string{"proc/meminfo": meminfo}, 32 * gib, "this machine", false},
		"swap counts": {map[string]string{"proc/meminfo": strings.Replace(meminfo, "SwapFree:              0",
			"SwapFree:  4194304", 1)}, 36 * gib, "this machine", false},
		"nothing is known":          {map[string]string{}, 0, "", true},
		"a meminfo without a value": {map[string]string{"proc/meminfo": "MemAvailable: lots kB\n"}, 0, "", true},
		"no limit": {two(map[string]string{app + "memory.max": "max\n", app + "memory.current": "1\n"}),
			32 * gib, "this machine", false},
		"own limit": {two(map[string]string{app + "memory.max": "8589934592\n",
			app + "memory.current": "1073741824\n"}), 7 * gib, "cgroup /pod/app", false},
		"page cache is reclaimed": {two(map[string]string{app + "memory.max": "8589934592\n",
			app + "memory.current": "8589934592\n",
			app + "memory.stat": "anon 2147483648\nfile 6442450944\nshmem 0\ninactive_file 4294967296\nactive_file " +
				"2147483648\n"}), 6 * gib, "cgroup /pod/app", false},
		"high binds before max": {two(map[string]string{app + "memory.max": "8589934592\n",
			app + "memory.high": "4294967296\n", app + "memory.current": "0\n"}), 4 * gib, "cgroup /pod/app", false},
		"a parent is tighter": {two(map[string]string{app + "memory.max": "8589934592\n", app + "memory.current": "0\n",
			pod + "memory.max": "10737418240\n", pod + "memory.current": "8589934592\n"}), 2 * gib, "cgroup /pod ", false},
		"the root of a container": {map[string]string{"proc/meminfo": meminfo, "proc/self/mountinfo": mountsTwo,
			"proc/self/cgroup": "0::/\n",
			top + "memory.max": "2147483648\n", top + "memory.current": "0\n"}, 2 * gib, "cgroup /", false},
		"a mount that shows a part": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/docker/abc/in\n",
			"proc/self/mountinfo": "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			top + "in/memory.max": "1073741824\n", top + "in/memory.current": "0\n"}, gib, "cgroup /in", false},
		"used above the limit": {two(map[string]string{app + "memory.max": "1073741824\n",
			app + "memory.current": "2147483648\n"}), 0, "cgroup /pod/app", false},
		"swap of the group": {two(map[string]string{"proc/meminfo": strings.Replace(meminfo, "SwapFree:              0",
			"SwapFree:  4194304", 1),
			app + "memory.max": "1073741824\n", app + "memory.current": "0\n", app + "memory.swap.max": "1073741824\n", app +
				"memory.swap.current": "0\n"}), 2 * gib, "cgroup /pod/app", false},
		"version 1": {map[string]string{"proc/meminfo": meminfo, "proc/self/mountinfo": mountsOne,
			"proc/self/cgroup": "4:memory:/job\n1:cpu:/\n0::/\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4294967296\n",
			"sys/fs/cgroup/memory/job/memory.usage_in_bytes": "3221225472\n",
			"sys/fs/cgroup/memory/job/memory.stat":           "cache 1\ntotal_inactive_file 1073741824\ntotal_active_file 0\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":     "1\n"}, 2 * gib, "cgroup /job", false},
		"strange numbers": {two(map[string]string{app + "memory.max": "9223372036854775807\n", app + "memory.current": "-1\n",
			pod + "memory.max": "a\n"}), 32 * gib, "this machine", false},
	} {
		got := FindAvailable(tree(t, c.files))
		if got.Known == c.not || !c.not && (got.Bytes != c.want || !strings.HasPrefix(got.Limit, c.limit)) {
			t.Errorf("%s: %+v, expected %d by %s", name, got, c.want, c.limit)
		}
	}
}

func FuzzAvailable(f *testing.F) {
	f.Add(meminfo, "0::/a\n", mountsTwo, "max\n", "1\n", "inactive_file 5\n")
	f.Add("MemAvailable: 9223372036854775807 kB", "4:memory:/../..\n", mountsOne, "9223372036854775807", "0", "")
	f.Fuzz(func(t *testing.T, info, own, mounts, limit, used, stat string) {
		files := map[string]string{"proc/meminfo": info, "proc/self/cgroup": own, "proc/self/mountinfo": mounts}
		for _, dir := range []string{"sys/fs/cgroup/", "sys/fs/cgroup/a/", "sys/fs/cgroup/memory/"} {
			files[dir+"memory.max"], files[dir+"memory.current"], files[dir+"memory.stat"] = limit, used, stat
			files[dir+"memory.limit_in_bytes"], files[dir+"memory.usage_in_bytes"] = limit, used
		}
		if a := FindAvailable(tree(t, files)); a.Bytes < 0 {
			t.Errorf("%+v", a)
		}
	})
}

func ledgerOf(bytes int64) *ledger {
	return &ledger{promises: map[*promise]struct{}{},
		find: func() Available { return Available{Bytes: bytes, Limit: "this machine", Known: true} }}
}

func whole(n int64) *promise { return &promise{size: n, open: func() int64 { return n }} }

func TestPromisesThatFitOneByOneAreRefusedTogether(t *testing.T) {
	l := ledgerOf(32 * gib)
	var last *promise
	for i := range 40 {
		p := whole(gib)
		err := l.promise("load", p)
		if i < 31 && err != nil {
			t.Fatalf("%d GiB of 32: %v", i+1, err)
		}
		if i >= 32 && !errs.Is(err, errs.NoMemory) {
			t.Fatalf("%d GiB of 32 were promised: %v", i+1, err)
		}
		if err == nil {
			last = p
		}
	}
	l.release(last)
	l.release(last) // twice does nothing
	if err := l.promise("load", whole(gib/2)); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
}

func TestManySmallPromisesAreRefusedTogether(t *testing.T) {
	l, sum := ledgerOf(gib), int64(0)
	for range 4096 {
		if err := l.promise("tensor", whole(1<<20)); err != nil {
			break
		}
		sum += 1 << 20
	}
	// The share that is granted without asking again bounds what may be too much.
	if sum < gib/2 || sum > gib {
		t.Errorf("%d bytes of %d were promised", sum, gib)
	}
}

func TestMemoryThatIsTakenIsNotCountedTwice(t *testing.T) {
	l := ledgerOf(4 * gib)
	if err := l.promise("a", &promise{size: 100 * gib, open: func() int64 { return 0 }}); !errs.Is(err, errs.NoMemory) {
		t.Fatalf("100 GiB of 4: %v", err)
	}
	l.promises[&promise{size: 100 * gib, open: func() int64 { return 0 }}] = struct{}{} // taken long ago
	l.mapped = 100 * gib
	if err := l.promise("b", whole(3*gib)); err != nil {
		t.Errorf("3 GiB of 4, beside memory that has its pages: %v", err)
	}
}

func TestARefusalSaysBothSizesAndAFix(t *testing.T) {
	l := ledgerOf(32 * gib)
	err := l.promise("load", whole(64*gib))
	for _, want := range []string{"64.00 GiB are needed", "31.75 GiB are available", "this machine has 32.00 GiB"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: expected %q", err, want)
		}
	}
	if errs.FixOf(err) == "" || errs.KindOf(err) != errs.NoMemory {
		t.Errorf("%v: kind %v, fix %q", err, errs.KindOf(err), errs.FixOf(err))
	}
}

func TestUnknownMemoryRefusesNothing(t *testing.T) {
	l := &ledger{promises: map[*promise]struct{}{}, find: func() Available { return Available{} }}
	if err := l.promise("load", whole(1<<50)); err != nil {
		t.Error(err)
	}
}

// The grant without asking ends soon, so that memory others take is seen.
func TestCreditExpires(t *testing.T) {
	l := ledgerOf(32 * gib)
	if err := l.promise("load", whole(1)); err != nil || l.credit == 0 {
		t.Fatal(err, l.credit)
	}
	l.find = func() Available { return Available{Limit: "this machine", Known: true} }
	l.expires = time.Now().Add(-time.Second)
	if err := l.promise("load", whole(1)); !errs.Is(err, errs.NoMemory) {
		t.Errorf("with no memory left: %v", err)
	}
}

func TestMapRefusesWhatCannotBeThere(t *testing.T) {
	for _, n := range []int64{32 << 40, 1 << 62, 1<<63 - 1} {
		r, err := Map(n)
		if !errs.Is(err, errs.NoMemory) || !strings.Contains(err.Error(), "available") {
			t.Errorf("%d bytes: %v", n, err)
		}
		if err == nil {
			r.Unmap()
		}
	}
}

func TestPromiseKnowsMemoryThatHasItsPages(t *testing.T) {
	have := FindAvailable("/")
	if !have.Known {
		t.Skip("the kernel does not tell what is available")
	}
	r := mapped(t, 64<<20)
	spans := func(yield func(Span) bool) { yield(Span{At: addressOf(r.Bytes()), Len: 64 << 20}) }
	// A load that says more than there is, into memory that Map gave: no new memory is needed.
	done, err := Promise("load", have.Bytes*2, spans, func() int64 { return 64 << 20 })
	if err != nil {
		t.Errorf("into memory that is counted already: %v", err)
	} else {
		done()
		done()
	}
	b := make([]byte, 8<<20)
	for i := range b {
		b[i] = 1
	}
	if n := (Span{At: addressOf(b), Len: int64(len(b))}).absent(); n != 0 {
		t.Errorf("%d bytes of written memory have no page", n)
	}
	if n := (Span{At: addressOf(r.Bytes()), Len: 64 << 20}).absent(); n != 64<<20 {
		t.Errorf("%d bytes of untouched memory have no page", n)
	}
	page := uint64(os.Getpagesize())
	if n := presentPages(uint64(addressOf(b))&^(page-1), (uint64(addressOf(b))+uint64(len(b)))&^(page-1),
		page); n < int64(len(b))-int64(2*page) {
		t.Errorf("mincore sees %d bytes", n)
	}
}
