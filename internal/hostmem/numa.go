// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Node is a part of the machine whose processors and memory are near each other.
type Node struct {
	ID   int
	CPUs []int
}

// mostCPUs bounds what a list of processors can make us allocate.
const mostCPUs = 1 << 14

// NodeNear is the node of that number as sysfs, mounted at sys, describes it. It is nil where
// nearness makes no difference or is not known: the number is negative, there
// is one node, or the node has no processor.
func NodeNear(sys string, id int) *Node {
	if id < 0 {
		return nil
	}
	root := filepath.Join(sys, "devices/system/node")
	online, err := os.ReadFile(filepath.Join(root, "online"))
	if err != nil {
		return nil
	}
	if all, err := ParseList(string(online)); err != nil || len(all) < 2 {
		return nil
	}
	list, err := os.ReadFile(filepath.Join(root, fmt.Sprintf("node%d/cpulist", id)))
	if err != nil {
		return nil
	}
	cpus, err := ParseList(string(list))
	if err != nil || len(cpus) == 0 {
		return nil
	}
	return &Node{ID: id, CPUs: cpus}
}

// ParseList reads the kernel's way of writing a set of numbers, "0-3,8,10-11".
func ParseList(s string) ([]int, error) {
	var out []int
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b >= mostCPUs || len(out)+b-a >= mostCPUs {
			return nil, errs.New(errs.Invalid, "read list", strconv.Quote(part),
				fmt.Sprintf("is no number or range below %d", mostCPUs))
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out, nil
}

// Stay keeps the calling thread, which the goroutine is locked to, on those of
// the node's processors that it may run on. It returns kind Unsupported if that is none:
// it then stays where it is.
func (n *Node) Stay() error {
	name := fmt.Sprintf("NUMA node %d", n.ID)
	var may, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return errs.Wrap("stay near", name, err)
	}
	for _, c := range n.CPUs {
		if may.IsSet(c) {
			set.Set(c)
		}
	}
	if set.Count() == 0 {
		return errs.New(errs.Unsupported, "stay near", name,
			"this process may run on none of its processors").WithFix("let it: see taskset and the cpuset of its container")
	}
	return errs.Wrap("stay near", name, unix.SchedSetaffinity(0, &set))
}

// preferred is MPOL_PREFERRED: memory comes from the node while it has some.
const preferred = 1

// Prefer makes pages of the region that are touched from now on come from the
// node of that number while it has free ones.
func (r *Region) Prefer(node int) error {
	var mask [mostCPUs / 64]uint64
	if node < 0 || node >= mostCPUs {
		return errs.New(errs.Invalid, "take memory from", fmt.Sprintf("NUMA node %d", node),
			fmt.Sprintf("expected 0 to %d", mostCPUs-1))
	}
	mask[node/64] = 1 << (node % 64)
	_, _, no := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&r.mem[0])), uintptr(len(r.mem)), preferred,
		uintptr(unsafe.Pointer(&mask[0])), uintptr(node+2), 0)
	if no != 0 {
		return errs.Wrap("take memory from", fmt.Sprintf("NUMA node %d", node), no)
	}
	return nil
}
