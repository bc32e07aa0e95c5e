// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// inCgroup names the directory of the cgroup that the child process joins.
const inCgroup = "NEBULAIO_TEST_CGROUP"

// A process in a real cgroup is refused what the cgroup does not have, and gets
// what it has. Without the refusal the kernel kills the child.
func TestInARealCgroup(t *testing.T) {
	if dir := os.Getenv(inCgroup); dir != "" {
		insideCgroup(t, dir)
		return
	}
	groups := memoryGroups("/")
	if os.Geteuid() != 0 || len(groups) == 0 {
		t.Skip("needs root and a mounted memory cgroup")
	}
	own := groups[0]
	for _, g := range groups {
		if _, err := os.Stat(filepath.Join(g.dir, g.used)); err == nil {
			own = g
			break
		}
	}
	dir := filepath.Join(own.dir, fmt.Sprintf("nebulaio-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	defer os.Remove(dir)
	if err := os.WriteFile(filepath.Join(dir, own.limits[0]), []byte(strconv.Itoa(128<<20)), 0o644); err != nil {
		t.Skipf("the memory controller is not on below %s: %v", own.dir, err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestInARealCgroup$", "-test.v")
	cmd.Env = append(os.Environ(), inCgroup+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in a cgroup of 128 MiB: %v\n%s", err, out)
	}
}

func insideCgroup(t *testing.T, dir string) {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	have := FindAvailable("/")
	if have.Bytes <= 0 || have.Bytes > 128<<20 || !strings.Contains(have.Limit, filepath.Base(dir)) {
		t.Fatalf("%+v, expected what the cgroup allows", have)
	}
	if r, err := Map(256 << 20); !errs.Is(err, errs.NoMemory) {
		if err == nil {
			Touch(r.Bytes(), 1) // the kernel ends the process here
		}
		t.Errorf("256 MiB in 128 MiB: %v", err)
	}
	var held []*Region
	for range 16 { // each of them fits, all together do not
		r, err := Map(16 << 20)
		if err != nil {
			if !errs.Is(err, errs.NoMemory) {
				t.Error(err)
			}
			break
		}
		held = append(held, r)
	}
	if len(held) < 4 || len(held) > 7 {
		t.Errorf("%d times 16 MiB were given of 128 MiB", len(held))
	}
	for _, r := range held {
		Touch(r.Bytes(), 1) // what was promised is there
		if err := r.Unmap(); err != nil {
			t.Error(err)
		}
	}
}
