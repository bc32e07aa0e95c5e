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

// Node is a NUMA node and its CPUs.
type Node struct {
	ID   int
	CPUs []int
}

// mostCPUs limits the memory that a list of processors can make us allocate.
const mostCPUs = 1 << 14

// NodeNear returns the NUMA node with the number id. The parameter `sys` is the directory where sysfs is mounted.
// NodeNear returns nil if id is negative, the machine has only one node, or the node has no CPU.
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

// ParseList parses a list of numbers in the kernel's format, such as "0-3,8,10-11".
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

// Stay binds the calling thread to those CPUs of the node that the process may use. The calling goroutine must be
// locked to its thread. If the process may use no CPU of the node, Stay fails with kind Unsupported and changes
// nothing.
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

// preferred is MPOL_PREFERRED: memory comes from the node while the node has free memory.
const preferred = 1

// Prefer asks the kernel to take new pages of the region from the given NUMA node while the node has free memory.
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
