// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Journal is a file that remembers how far a migration has come. A run that was killed goes on where the file says. All
// methods of Journal are safe for concurrent use.
type Journal struct {
	path string
	lock *os.File

	mu      sync.Mutex
	state   journalState
	written time.Time
}

// journalState is the content of the file.
type journalState struct {
	Format int    `json:"format"`
	Source string `json:"source"`
	Target string `json:"target"`
	Prefix string `json:"prefix,omitempty"`
	// Buckets has the last key up to which all keys of a bucket are copied.
	Buckets map[string]place `json:"buckets"`
	// Uploads are the multipart uploads at the target that were begun and have not ended.
	Uploads []Upload `json:"uploads"`
}

type place struct {
	After string `json:"after,omitempty"`
	Done  bool   `json:"done,omitempty"`
}

// Upload is a multipart upload at the target.
type Upload struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	ID     string `json:"id"`
}

const (
	journalFormat = 1
	// mostJournal limits how much of a journal is read.
	mostJournal = 64 << 20
	// writeEvery limits how often the place in a bucket is written.
	writeEvery = 500 * time.Millisecond
)

// OpenJournal opens the journal of a migration, or begins it. OpenJournal fails with kind Invalid if the file belongs
// to another migration, is no journal, or another process uses it. The caller closes the journal.
func OpenJournal(path, source, target, prefix string) (*Journal, error) {
	const op = "open journal"
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, errs.Wrap(op, path, errs.WithoutPath(err))
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errs.Wrap(op, path, errs.WithoutPath(err))
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errs.New(errs.Invalid, op, path, "another process migrates with this journal").
				WithFix("wait for it to end, or give another --journal")
		}
		return nil, errs.Wrap(op, path, err)
	}
	j := &Journal{path: path, lock: lock, state: journalState{Format: journalFormat, Source: source, Target: target,
		Prefix: prefix, Buckets: map[string]place{}}}
	if err := j.read(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return j, nil
}

// read reads the file, if there is one.
func (j *Journal) read() error {
	const op = "read journal"
	f, err := os.Open(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.Wrap(op, j.path, errs.WithoutPath(err))
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, mostJournal))
	if err != nil {
		return errs.Wrap(op, j.path, errs.WithoutPath(err))
	}
	var was journalState
	if err := json.Unmarshal(b, &was); err != nil || was.Format != journalFormat || was.Buckets == nil {
		return errs.New(errs.Invalid, op, j.path, "is no journal of a migration").WithFix(
			"give another --journal, or remove the file")
	}
	if was.Source != j.state.Source || was.Target != j.state.Target || was.Prefix != j.state.Prefix {
		return errs.New(errs.Invalid, op, j.path, fmt.Sprintf("belongs to the migration from %q to %q with the prefix %q",
			was.Source, was.Target, was.Prefix)).WithFix("give another --journal, or remove the file")
	}
	j.state = was
	return nil
}

// Close releases the journal.
func (j *Journal) Close() error { return j.lock.Close() }

// write replaces the file as a whole; the caller holds the mutex.
func (j *Journal) write() error {
	b, err := json.Marshal(&j.state)
	if err != nil {
		return errs.Wrap("write journal", j.path, err)
	}
	temporary := j.path + ".new"
	err = func() error {
		f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(b)
		if err == nil {
			err = f.Sync()
		}
		if e := f.Close(); err == nil {
			err = e
		}
		if err == nil {
			err = os.Rename(temporary, j.path)
		}
		return err
	}()
	j.written = time.Now()
	return errs.Wrap("write journal", j.path, errs.WithoutPath(err))
}

// after returns the key after which a run goes on in a bucket; empty means that it begins at the first key.
func (j *Journal) after(bucket string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.Buckets[bucket].After
}

// passed records that all keys of a bucket up to the key after are copied.
func (j *Journal) passed(bucket, after string, done bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if was := j.state.Buckets[bucket]; !done && was.After > after {
		return nil // a worker that was faster has told more
	}
	j.state.Buckets[bucket] = place{after, done}
	if !done && time.Since(j.written) < writeEvery {
		return nil
	}
	return j.write()
}

// uploads returns the uploads that have not ended.
func (j *Journal) uploads() []Upload {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.state.Uploads)
}

func (j *Journal) began(u Upload) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Uploads = append(j.state.Uploads, u)
	return j.write()
}

func (j *Journal) ended(u Upload) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Uploads = slices.DeleteFunc(j.state.Uploads, func(o Upload) bool { return o == u })
	return j.write()
}

// finish makes the next run begin at the first key again, because the source has gone on serving meanwhile.
func (j *Journal) finish() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.state.Buckets)
	return j.write()
}
