// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Load makes random changes to one bucket that nobody else changes, and tracks which states of the bucket a crash may
// leave. A crash may leave the state after the last acknowledged change, or after any change that was started later.
type Load struct {
	// Started is called before each change with its number and the state that it leads to; nil means no calls.
	Started func(n int, state string)
	// Acked is called with the number of each acknowledged change; nil means no calls.
	Acked func(n int)

	w *walk

	mu     sync.Mutex
	first  int      // the number of states[0]
	states []string // what is visible after each change, in order
	acked  int      // the number of the state that is acknowledged
}

// NewLoad returns a Load for a bucket, with contents and parts of at most `most` bytes. The bucket must not exist
// yet.
func NewLoad(ctx context.Context, seed uint64, s object.Store, bucket string, most int) *Load {
	l := &Load{w: newWalk(ctx, seed, bucket), states: []string{""}}
	l.w.most, l.w.distinct = most, true
	l.w.s = &journal{Store: s, load: l}
	return l
}

// Step makes one change. Step returns an error that describes a failure or a wrong result of the store.
func (l *Load) Step() error {
	l.w.step++
	if l.w.step == 1 {
		return l.w.makeBucket()
	}
	return l.w.do(l.w.changes())
}

// Log returns the last operations as text for failure messages.
func (l *Load) Log() string { return strings.Join(l.w.log, "\n  ") }

// Mark returns the number of the last acknowledged state. A crash after the call of Mark leaves the marked state or a
// later one.
func (l *Load) Mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// Allowed returns the states that a crash may leave if it happens between the call of Mark that returned mark and the
// call of Allowed. A call of Allowed must not pass a lower mark than the call before, because earlier states are
// forgotten.
func (l *Load) Allowed(mark int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states = slices.Clone(l.states[mark-l.first:])
	l.first = mark
	return slices.Clone(l.states)
}

// begun notes that a change is about to be made, whose result is what the model shows.
func (l *Load) begun() int {
	state, err := State(l.w.ctx, l.w.m, l.w.buckets[0])
	if err != nil {
		state = err.Error() // a state that no store has
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states = append(l.states, state)
	n := l.first + len(l.states) - 1
	if l.Started != nil {
		l.Started(n, state)
	}
	return n
}

// ended notes that a change was acknowledged, or refused as the model refused it.
func (l *Load) ended(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = n
	if l.Acked != nil {
		l.Acked(n)
	}
}

// State describes one bucket with everything visible in it, or returns "" if the bucket does not exist.
func State(ctx context.Context, s object.Store, bucket string) (string, error) {
	b, err := s.Bucket(ctx, bucket)
	if Sentinel(err) == object.ErrNoSuchBucket { //nolint:errorlint // Sentinel unwraps
		return "", nil
	}
	if err != nil {
		return "", err
	}
	out := []string{fmt.Sprintf("bucket %q versioning %q etag %q doc %q", b.Name, b.Versioning, b.ETag, b.Settings["doc"])}
	if out, err = dumpObjects(ctx, s, bucket, false, out); err != nil {
		return "", err
	}
	if out, err = dumpUploads(ctx, s, bucket, false, out); err != nil {
		return "", err
	}
	return strings.Join(out, "\n"), nil
}

// journal is a store that tells its load when a change begins and ends. The
// model has made the change before, so that its state is the one to come.
type journal struct {
	object.Store
	load *Load
}

func (j *journal) during(change func()) {
	n := j.load.begun()
	change()
	j.load.ended(n)
}

// CreateBucket implements object.Store.
func (j *journal) CreateBucket(ctx context.Context, b object.Bucket) (err error) {
	j.during(func() { err = j.Store.CreateBucket(ctx, b) })
	return err
}

// UpdateBucket implements object.Store.
func (j *journal) UpdateBucket(ctx context.Context, name string, change func(*object.Bucket) error) (err error) {
	j.during(func() { err = j.Store.UpdateBucket(ctx, name, change) })
	return err
}

// DeleteBucket implements object.Store.
func (j *journal) DeleteBucket(ctx context.Context, name string) (err error) {
	j.during(func() { err = j.Store.DeleteBucket(ctx, name) })
	return err
}

// Put implements object.Store.
func (j *journal) Put(ctx context.Context, p object.Put) (i object.Info, err error) {
	j.during(func() { i, err = j.Store.Put(ctx, p) })
	return i, err
}

// Append implements object.Directories.
func (j *journal) Append(ctx context.Context, a object.Append) (i object.Info, err error) {
	j.during(func() { i, err = j.Store.(object.Directories).Append(ctx, a) })
	return i, err
}

// Rename implements object.Directories.
func (j *journal) Rename(ctx context.Context, r object.Rename) (err error) {
	j.during(func() { err = j.Store.(object.Directories).Rename(ctx, r) })
	return err
}

// Delete implements object.Store.
func (j *journal) Delete(ctx context.Context, d object.Deletion) (out object.Deleted, err error) {
	j.during(func() { out, err = j.Store.Delete(ctx, d) })
	return out, err
}

// DeleteMany implements object.Store.
func (j *journal) DeleteMany(ctx context.Context, bucket string, ds []object.Deletion) (out []object.Deleted,
	errs []error) {
	j.during(func() { out, errs = j.Store.DeleteMany(ctx, bucket, ds) })
	return out, errs
}

// Copy implements object.Store.
func (j *journal) Copy(ctx context.Context, c object.Copy) (i object.Info, err error) {
	j.during(func() { i, err = j.Store.Copy(ctx, c) })
	return i, err
}

// SetAttributes implements object.Store.
func (j *journal) SetAttributes(ctx context.Context, ref object.Ref, change func(map[string]string) error) (err error) {
	j.during(func() { err = j.Store.SetAttributes(ctx, ref, change) })
	return err
}

// CreateUpload implements object.Store.
func (j *journal) CreateUpload(ctx context.Context, bucket, key string, as map[string]string) (id string, err error) {
	j.during(func() { id, err = j.Store.CreateUpload(ctx, bucket, key, as) })
	return id, err
}

// PutPart implements object.Store.
func (j *journal) PutPart(ctx context.Context, p object.PutPart) (i object.PartInfo, err error) {
	j.during(func() { i, err = j.Store.PutPart(ctx, p) })
	return i, err
}

// CopyPart implements object.Store.
func (j *journal) CopyPart(ctx context.Context, c object.CopyPart) (i object.PartInfo, err error) {
	j.during(func() { i, err = j.Store.CopyPart(ctx, c) })
	return i, err
}

// CompleteUpload implements object.Store.
func (j *journal) CompleteUpload(ctx context.Context, c object.Complete) (i object.Info, err error) {
	j.during(func() { i, err = j.Store.CompleteUpload(ctx, c) })
	return i, err
}

// AbortUpload implements object.Store.
func (j *journal) AbortUpload(ctx context.Context, bucket, key, id string) (err error) {
	j.during(func() { err = j.Store.AbortUpload(ctx, bucket, key, id) })
	return err
}
