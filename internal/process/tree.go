// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostProcesses limits how many processes of a tree are believed.
const mostProcesses = 1 << 20

// treeOf returns a process and its descendants, the root first.
func treeOf(root int) []int {
	all := []int{root}
	seen := map[int]bool{root: true}
	for i := 0; i < len(all) && len(all) < mostProcesses; i++ {
		lists, _ := filepath.Glob("/proc/" + strconv.Itoa(all[i]) + "/task/*/children") // the pattern is valid
		for _, list := range lists {
			text, err := os.ReadFile(list)
			if err != nil {
				continue // a thread that has ended
			}
			for word := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(word); err == nil && !seen[pid] {
					seen[pid] = true
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// signalTree sends a signal to a process and its descendants.
func signalTree(root int, s unix.Signal) error {
	var first error
	for _, pid := range treeOf(root) {
		if err := unix.Kill(pid, s); err != nil && !errors.Is(err, unix.ESRCH) && first == nil {
			first = errs.Wrap("signal process", strconv.Itoa(pid), err)
		}
	}
	return first
}

// endTime is how long a killed process may take to end.
const endTime = 30 * time.Second

// endTree kills a process and its descendants, and waits until the root has ended. left is true if the root is still in
// the table of processes, because its parent has not waited for it.
func endTree(root int) (left bool, err error) {
	fd, err := unix.PidfdOpen(root, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err == nil {
		defer unix.Close(fd)
	}
	if err := signalTree(root, unix.SIGKILL); err != nil {
		return false, err
	}
	if err != nil {
		return false, nil // no pidfd: the kernel is too old to wait
	}
	end := time.Now().Add(endTime)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, time.Until(end)).Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return false, errs.New(errs.Other, "end process", strconv.Itoa(root), "it did not end within "+endTime.String())
		}
		break
	}
	return unix.Kill(root, 0) == nil, nil
}

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool {
	f := statOf(pid)
	return len(f) > 0 && f[0] == "T"
}

// parentOf returns the parent of a process, or 0 if there is no such process.
func parentOf(pid int) int {
	f := statOf(pid)
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1]) // 0 if it is no number
	return parent
}

// statOf returns the fields of /proc/PID/stat after the name, or nil if there is no such process.
func statOf(pid int) []string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	s := string(text)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}
