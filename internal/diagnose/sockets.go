// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// enoughReceived is the number of bytes between two looks from which on a command receives data.
const enoughReceived = 64 << 10

// network is a network namespace in which processes of the command are.
type network struct {
	pid    int             // one of the processes
	inodes map[uint64]bool // sockets of all its processes at this look
	fresh  bool            // a process has opened or closed files since the last look
	tables []string        // the lists of TCP sockets that have one of the sockets
	came   uint64          // bytes received so far
	seen   int             // the last look at which a process was in it
}

// openFiles are the open files of a process.
type openFiles struct {
	seen    int
	numbers []int
	sockets []uint64 // inodes
}

// networks are the network namespaces of the command by the name that the kernel gives them, and the open files of its
// processes.
type networks struct {
	proc  procfs
	all   map[string]*network
	files map[int]*openFiles
}

func newNetworks(proc procfs) networks {
	return networks{proc: proc, all: map[string]*network{}, files: map[int]*openFiles{}}
}

// tables returns the lists of TCP sockets of a namespace. Reading one walks through the table of all connections, which
// takes about a millisecond.
func tables() []string { return []string{"net/tcp", "net/tcp6"} }

// visit notes the sockets of a process at a look.
func (n *networks) visit(pid, look int) {
	id := strconv.Itoa(pid)
	name, _ := os.Readlink(filepath.Join(n.proc.root, id, "ns/net")) // "" if it may not be read
	space := n.all[name]
	if space == nil {
		space = &network{came: received(n.proc.read(id, "net/dev")), seen: -1}
		n.all[name] = space
	}
	if space.seen != look {
		space.seen, space.inodes, space.fresh = look, map[uint64]bool{}, false
	}
	space.pid = pid
	if n.list(pid, look) {
		space.fresh = true
	}
	for _, inode := range n.files[pid].sockets {
		space.inodes[inode] = true
	}
}

// list lists the sockets of a process, and reports whether its open files have changed since the last look. Only then
// are they read one by one. A file that took the number of another between two looks is found with the next change.
func (n *networks) list(pid, look int) (changed bool) {
	id := strconv.Itoa(pid)
	now := n.proc.numbers(mostSockets, id, "fd")
	slices.Sort(now)
	files := n.files[pid]
	if files != nil && slices.Equal(files.numbers, now) {
		files.seen = look
		return false
	}
	files = &openFiles{seen: look, numbers: now}
	for _, fd := range now {
		to, err := os.Readlink(filepath.Join(n.proc.root, id, "fd", strconv.Itoa(fd)))
		if err != nil {
			continue
		}
		text, found := strings.CutPrefix(to, "socket:[")
		if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); found && err == nil {
			files.sockets = append(files.sockets, inode)
		}
	}
	n.files[pid] = files
	return true
}

// finish returns, after all processes were visited, whether a socket of the command has bytes that the network has not
// delivered, and how many bytes came in since the last look.
func (n *networks) finish(look int) (sending bool, came uint64) {
	for pid, files := range n.files {
		if files.seen != look {
			delete(n.files, pid)
		}
	}
	for name, space := range n.all {
		if space.seen != look {
			delete(n.all, name)
			continue
		}
		id := strconv.Itoa(space.pid)
		now := received(n.proc.read(id, "net/dev"))
		came += now - min(space.came, now)
		space.came = now
		asked := space.tables
		if space.fresh {
			asked, space.tables = tables(), nil
		}
		for _, table := range asked {
			if len(space.inodes) == 0 {
				break
			}
			mine, waits := space.find(n.proc.read(id, table))
			sending = sending || waits
			if mine && space.fresh {
				space.tables = append(space.tables, table)
			}
		}
	}
	return sending, came
}

// find looks for sockets of the command in a list such as /proc/net/tcp. mine reports whether there is any, and waits
// whether one of them has bytes that the other end has not confirmed.
func (n *network) find(list []byte) (mine, waits bool) {
	for line := range bytes.Lines(list) {
		f := bytes.Fields(line)
		if len(f) < 10 {
			continue
		}
		inode, err := strconv.ParseUint(string(f[9]), 10, 64)
		if err != nil || !n.inodes[inode] {
			continue
		}
		mine = true
		text, _, _ := bytes.Cut(f[4], []byte(":"))
		queued, err := strconv.ParseUint(string(text), 16, 64)
		// A listening socket counts waiting connections there.
		waits = waits || err == nil && queued > 0 && string(f[3]) != "0A"
	}
	return mine, waits
}
