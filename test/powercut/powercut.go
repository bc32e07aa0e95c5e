// SPDX-License-Identifier: Apache-2.0

// Package powercut records the changes that a program makes to files, and rebuilds what a loss of power may leave of
// them. The program is not changed for this: the package reads its system calls.
//
// The rules are those that POSIX promises and no more. What was written to a file may be lost until the file is synced.
// A name that was made, changed or removed may be as before until its directory is synced. Changes that are not synced
// may reach the disk in any order.
package powercut

import (
	"errors"
	"maps"
	"math/rand/v2"
	"path"
)

// ErrRefused means that the kernel does not let this process trace a program.
var ErrRefused = errors.New("the kernel allows no ptrace here")

// Kinds of changes.
const (
	Create   = "create"   // a new file or directory
	Remove   = "remove"   // of a name
	Rename   = "rename"   // within one directory, or to another
	Write    = "write"    // of bytes
	Truncate = "truncate" // to a size
	Extend   = "extend"   // to a size at least
	Times    = "times"    // Off is the time in nanoseconds
	Sync     = "sync"     // of a file or a directory; Off is the number of changes before the sync began
	SyncAll  = "sync all" // of the file system; Off as for Sync
	Mark     = "mark"     // a line that the program printed
)

// Op is one change.
type Op struct {
	Kind string
	Path string // relative to the root; the text of a mark
	To   string // of a rename
	Node int    // of a file or directory
	Off  int64
	Data []byte
}

// Trace is what a program did.
type Trace struct {
	Ops   []Op
	nodes []nodeInfo
}

// nodeInfo describes a file or a directory for as long as it exists.
type nodeInfo struct {
	inode uint64
	dir   bool
}

// add makes a node.
func (t *Trace) add(inode uint64, dir bool) int {
	t.nodes = append(t.nodes, nodeInfo{inode, dir})
	return len(t.nodes) - 1
}

// Loss says what happens to changes that were not synced.
type Loss int

// Kinds of losses.
const (
	LoseAll    Loss = iota // nothing that was not synced is on the disk
	LoseNone               // everything is on the disk
	LoseSome               // each change is on the disk or not, by chance
	LoseRecent             // in each file and directory, changes up to one of them are on the disk
)

// Losses lists all kinds of losses.
func Losses() []Loss { return []Loss{LoseAll, LoseNone, LoseSome, LoseRecent} }

// file is a node while a trace is replayed.
type file struct {
	nodeInfo
	data    []byte
	mtime   int64
	entries map[string]int // of a directory
	pending []change
}

// change is a change that is not synced.
type change struct {
	number int // of the Op
	do     func(f *file)
}

// disk is what is on the disk for sure, and what may be.
type disk struct {
	nodes []*file
	names map[string]int // files and directories by path, as the program sees them
	at    int            // number of the change
}

// replay returns the disk after the first n changes.
func (t *Trace) replay(n int) *disk {
	d := &disk{names: map[string]int{}}
	for _, i := range t.nodes {
		d.nodes = append(d.nodes, &file{nodeInfo: i, entries: map[string]int{}})
	}
	d.names["."] = 0
	for i, op := range t.Ops[:n] {
		d.at = i
		d.apply(op)
	}
	return d
}

// dirOf returns the directory of a path, and the name in it.
func (d *disk) dirOf(p string) (*file, string) {
	n, ok := d.names[path.Dir(p)]
	if !ok {
		n = d.names["."]
	}
	return d.nodes[n], path.Base(p)
}

func (d *disk) apply(op Op) {
	switch op.Kind {
	case Create:
		dir, name := d.dirOf(op.Path)
		d.change(dir, func(f *file) { f.entries[name] = op.Node })
		d.names[op.Path] = op.Node
	case Remove:
		dir, name := d.dirOf(op.Path)
		d.change(dir, func(f *file) { delete(f.entries, name) })
		delete(d.names, op.Path)
	case Rename:
		d.rename(op)
	case Write:
		d.change(d.nodes[op.Node], func(f *file) {
			f.grow(op.Off + int64(len(op.Data)))
			copy(f.data[op.Off:], op.Data)
		})
	case Truncate:
		d.change(d.nodes[op.Node], func(f *file) {
			f.grow(op.Off)
			f.data = f.data[:op.Off]
		})
	case Extend:
		d.change(d.nodes[op.Node], func(f *file) { f.grow(op.Off) })
	case Times:
		d.change(d.nodes[op.Node], func(f *file) { f.mtime = op.Off })
	case Sync:
		d.nodes[op.Node].settle(op.Off)
	case SyncAll:
		for _, f := range d.nodes {
			f.settle(op.Off)
		}
	}
}

// rename moves a name. The directories of the two names know of the move together if they are the same.
func (d *disk) rename(op Op) {
	from, old := d.dirOf(op.Path)
	to, name := d.dirOf(op.To)
	node, ok := d.names[op.Path]
	if !ok {
		return
	}
	delete(d.names, op.Path)
	d.names[op.To] = node
	for p, n := range maps.Clone(d.names) { // what is below a directory that moves
		if len(p) > len(op.Path) && p[:len(op.Path)+1] == op.Path+"/" {
			delete(d.names, p)
			d.names[op.To+p[len(op.Path):]] = n
		}
	}
	if from == to {
		d.change(from, func(f *file) {
			delete(f.entries, old)
			f.entries[name] = node
		})
		return
	}
	d.change(to, func(f *file) { f.entries[name] = node })
	d.change(from, func(f *file) { delete(f.entries, old) })
}

func (d *disk) change(f *file, do func(*file)) { f.pending = append(f.pending, change{d.at, do}) }

func (f *file) grow(n int64) {
	if n > int64(len(f.data)) {
		f.data = append(f.data, make([]byte, n-int64(len(f.data)))...)
	}
}

// settle makes the changes of a file or directory durable that were made before change number n.
func (f *file) settle(n int64) {
	for len(f.pending) > 0 && int64(f.pending[0].number) < n {
		f.pending[0].do(f)
		f.pending = f.pending[1:]
	}
}

// lose applies what reaches the disk of the changes that were not synced.
func (d *disk) lose(l Loss, r *rand.Rand) {
	for _, f := range d.nodes {
		keep := len(f.pending)
		if l == LoseRecent {
			keep = r.IntN(keep + 1)
		}
		for i, c := range f.pending {
			if l == LoseNone || l == LoseSome && r.IntN(2) == 0 || l == LoseRecent && i < keep {
				c.do(f)
			}
		}
		f.pending = nil
	}
}
