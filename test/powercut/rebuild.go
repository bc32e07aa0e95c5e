// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Rebuild writes to an empty directory what a loss of power after the first n changes may leave of the trace. Marks
// returns what the program had printed by then.
func (t *Trace) Rebuild(dir string, n int, l Loss, r *rand.Rand) error {
	d := t.replay(n)
	d.lose(l, r)
	b := &builder{disk: d, inodes: map[uint64]uint64{}}
	if err := b.build(dir, d.nodes[0], 0); err != nil {
		return err
	}
	return b.pendingNames()
}

// Marks returns the lines that the program had printed before change n.
func (t *Trace) Marks(n int) []string {
	var out []string
	for _, op := range t.Ops[:n] {
		if op.Kind == Mark {
			out = append(out, strings.Split(op.Path, "\n")...)
		}
	}
	return out
}

// builder writes files.
type builder struct {
	disk   *disk
	inodes map[uint64]uint64 // new inode by the old one
	names  []string          // of files
}

// mostDeep bounds the recursion; a trace has no cycles of directories.
const mostDeep = 100

func (b *builder) build(path string, dir *file, depth int) error {
	if depth > mostDeep {
		return fmt.Errorf("%s: too many directories in each other", path)
	}
	for name, n := range dir.entries {
		f, at := b.disk.nodes[n], filepath.Join(path, name)
		if f.dir {
			if err := os.Mkdir(at, 0o755); err != nil {
				return err
			}
			if err := b.build(at, f, depth+1); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(at, f.data, 0o644); err != nil {
			return err
		}
		if f.mtime != 0 {
			when := time.Unix(0, f.mtime)
			if err := os.Chtimes(at, when, when); err != nil {
				return err
			}
		}
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			return err
		}
		b.inodes[f.inode] = st.Ino
		b.names = append(b.names, at)
	}
	return nil
}

// pendingNames renames checksums that have the inode of their file in their name: FILE.crc64nvme.<inode>-<mtime>. After
// a loss of power the files have the inodes that they had before, but the rebuilt files have others.
func (b *builder) pendingNames() error {
	for _, name := range b.names {
		head, tail, ok := strings.Cut(name, ".crc64nvme.")
		if !ok || len(tail) != 33 {
			continue
		}
		var old, mtime uint64
		if _, err := fmt.Sscanf(tail, "%016x-%016x", &old, &mtime); err != nil {
			continue
		}
		if now, ok := b.inodes[old]; ok {
			if err := os.Rename(name, fmt.Sprintf("%s.crc64nvme.%016x-%016x", head, now, mtime)); err != nil {
				return err
			}
		}
	}
	return nil
}
