// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseList(t *testing.T) {
	for in, want := range map[string][]int{"": nil, "0\n": {0}, "0-2,8,10-11": {0, 1, 2, 8, 10, 11}} {
		if got, err := ParseList(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v", in, got, err)
		}
	}
	for _, in := range []string{"x", "3-1", "-1", "0-", "0-99999999", "0-16000,0-16000", "1,,2"} {
		if got, err := ParseList(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseList(s)
		if err == nil && len(got) > mostCPUs {
			t.Errorf("%d numbers", len(got))
		}
	})
}

func sysfs(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, "devices/system/node", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestNodeNear(t *testing.T) {
	two := sysfs(t, map[string]string{"online": "0-1\n", "node0/cpulist": "0-3\n", "node1/cpulist": "4-5,7\n"})
	if n := NodeNear(two, 1); n == nil || n.ID != 1 || !slices.Equal(n.CPUs, []int{4, 5, 7}) {
		t.Errorf("%+v", n)
	}
	bare := sysfs(t, map[string]string{"online": "0-1\n", "node1/cpulist": "\n"})
	one := sysfs(t, map[string]string{"online": "0\n", "node0/cpulist": "0-3\n"})
	for i, n := range []*Node{NodeNear(two, -1), NodeNear(two, 2), NodeNear(one, 0), NodeNear(bare, 1),
		NodeNear(t.TempDir(), 0)} {
		if n != nil {
			t.Errorf("%d: %+v, expected none", i, n)
		}
	}
}

func TestStayKeepsOneThread(t *testing.T) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Skip(err)
	}
	first := 0
	for !before.IsSet(first) {
		first++
	}
	done := make(chan unix.CPUSet)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with it
		var now unix.CPUSet
		if err := errors.Join((&Node{CPUs: []int{first}}).Stay(), unix.SchedGetaffinity(0, &now)); err != nil {
			t.Error(err)
		}
		done <- now
	}()
	if now := <-done; now.Count() != 1 || !now.IsSet(first) {
		t.Errorf("the thread stays on %d processors", now.Count())
	}
	if !before.IsSet(1023) {
		if err := (&Node{CPUs: []int{1023}}).Stay(); err == nil {
			t.Error("a processor that is not there was accepted")
		}
	}
}

func TestPrefer(t *testing.T) {
	r := mapped(t, HugePage)
	if err := r.Prefer(0); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	Touch(r.Bytes(), 1)
	for _, n := range []int{-1, mostCPUs, mostCPUs - 1} {
		if err := r.Prefer(n); err == nil {
			t.Errorf("node %d was accepted", n)
		}
	}
}
