// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
)

// killedFS ends all changes of names after a number of them, as a kill of the process would.
type killedFS struct {
	vfs.FS
	left int
}

var errKilled = errors.New("killed")

func (k *killedFS) step() error {
	if k.left--; k.left < 0 {
		return errKilled
	}
	return nil
}

func (k *killedFS) MkdirAll(dir string, perm os.FileMode) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.FS.MkdirAll(dir, perm)
}

func (k *killedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := k.step(); err != nil {
		return nil, err
	}
	return k.FS.Create(name, c)
}

func (k *killedFS) Rename(old, name string) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.FS.Rename(old, name)
}

func (k *killedFS) RemoveAll(name string) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.FS.RemoveAll(name)
}

// No server starts on what a salvage left that was killed in its first steps, and the next one begins anew.
func TestSalvageKilledAtItsBeginningLeavesNoStore(t *testing.T) {
	for _, there := range []bool{false, true} {
		for steps := range 8 {
			mem := vfs.NewMem()
			s := openMem(t, mem)
			dir := s.opts.Dir
			closed(t, s)
			to := mem.PathJoin(mem.PathDir(dir), "new")
			if there {
				must(t, mem.MkdirAll(to, 0o700))
			}
			_, err := salvage.Run(context.Background(), salvage.Options{FS: &killedFS{mem, steps}, From: dir, To: to})
			if err == nil {
				t.Fatalf("a salvage took %d steps", steps)
			}
			names, err := mem.List(to)
			if err == nil && (len(names) > 0 || !there) { // an empty directory that was there is as it was
				if err := layout.CheckMade(mem, to); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.FixOf(err), "again") {
					t.Errorf("there %t, after %d steps a server would start on %q: %v", there, steps, names, err)
				}
			}
			if r, err := salvage.Run(context.Background(), salvage.Options{FS: mem, From: dir, To: to}); err != nil ||
				r.UUID != s.uuid {
				t.Errorf("there %t, after %d steps, again: %v", there, steps, err)
			}
		}
	}
}
