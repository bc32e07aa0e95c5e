// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// state is what a later copy needs to go on with an upload. It is a file in a directory of the user's cache, since a
// file beside the source could surprise its owner.
type state struct {
	ID   string `json:"id"` // upload ID; empty: no upload was begun
	Sums bool   `json:"sums"`
	Part int64  `json:"part"`
	// Source and Destination are for people who look at the file.
	Source      string `json:"source"`
	Destination string `json:"destination"`

	path string
	f    *os.File // locked; nil: nothing is kept
}

// mostState limits how much of a state is read.
const mostState = 64 << 10

// openState reads the state of an upload of a source to a destination. If dir is empty, or another copy uses the same
// state, nothing is kept and the upload begins anew.
func openState(dir string, id object.Identity, dst Remote) (*state, error) {
	const op = "keep the state of an upload in"
	s := &state{Source: id.Key, Destination: dst.Name()}
	if dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: dir, Err: errs.WithoutPath(err),
			Fix: "set XDG_CACHE_HOME to a directory that you can write"}
	}
	source := id.Hash()
	both := object.Identity{Origin: dst.origin(), Key: dst.Key, ETag: hex.EncodeToString(source[:])}.Hash()
	s.path = filepath.Join(dir, hex.EncodeToString(both[:16])+".json")
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errs.Wrap(op, s.path, errs.WithoutPath(err))
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return s, nil
		}
		return nil, errs.Wrap(op, s.path, err)
	}
	s.f = f
	b, err := io.ReadAll(io.LimitReader(f, mostState))
	if err != nil {
		f.Close()
		return nil, errs.Wrap(op, s.path, errs.WithoutPath(err))
	}
	was := state{}
	if json.Unmarshal(b, &was) == nil && len(was.ID) <= 4096 && was.Part >= leastPart && was.Part%block == 0 {
		s.ID, s.Sums, s.Part = was.ID, was.Sums, was.Part
	}
	return s, nil
}

// kept reports whether a later copy can go on with the upload.
func (s *state) kept() bool { return s.f != nil }

// write records that an upload was begun.
func (s *state) write(id string, sums bool, part int64) error {
	s.ID, s.Sums, s.Part = id, sums, part
	if s.f == nil {
		return nil
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = s.f.Truncate(0)
	}
	if err == nil {
		_, err = s.f.WriteAt(append(b, '\n'), 0)
	}
	if err == nil {
		err = s.f.Sync()
	}
	return errs.Wrap("keep the state of an upload in", s.path, errs.WithoutPath(err))
}

// forget removes the state of an upload that has ended.
func (s *state) forget() {
	if s.f != nil {
		_ = os.Remove(s.path) // an old state is recognised: its upload is gone
	}
}

// close releases the lock. A state without an upload is removed.
func (s *state) close() {
	if s.f == nil {
		return
	}
	if s.ID == "" {
		s.forget()
	}
	s.f.Close()
	s.f = nil
}
