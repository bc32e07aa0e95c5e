// SPDX-License-Identifier: Apache-2.0

// Package storetest is the conformance suite for implementations of object.Store. Every implementation of object.Store
// has to pass RunSequential, RunLists, RunConcurrent and Random.
//
// After each test, the suite closes the store and opens it again if Target.Reopen is set. Everything that was visible
// before the store was closed must be visible and unchanged after it is opened again.
package storetest

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
)

// patience ends a test that hangs, with an error of the call that hung.
const patience = 60 * time.Second

// Target creates the stores that the suite tests.
type Target struct {
	// Open returns a new, empty store, which the suite closes.
	Open func(t *testing.T) object.Store
	// Reopen closes a store and opens it again. Reopen is nil for a store that keeps nothing when it is closed.
	Reopen func(t *testing.T, s object.Store) object.Store
	// Sizes are content lengths at which the store changes how it stores content; the suite tests further lengths of
	// its own.
	Sizes []int
	// Skip, if not nil, returns why a test cannot hold for the store, or "" for a test that must pass. The parameter name
	// is "group/test".
	Skip func(name string) string
	// OneAtATime says that this process can have no second store of this kind, so that no tests run side by side.
	OneAtATime bool
}

// group is a number of tests with a name.
type group struct {
	name  string
	tests []test
}

// RunSequential tests everything that the contracts of package object promise to a caller whose calls follow each
// other, except for the pages of listings.
func RunSequential(t *testing.T, target Target) {
	runGroups(t, target, []group{
		{"records", recordTests}, {"objects", objectTests}, {"bodies", bodyTests}, {"conditions", conditionTests},
		{"versions", versionTests}, {"deletes", deleteTests}, {"copies", copyTests}, {"uploads", uploadTests},
		{"completions", completeTests}, {"directories", directoryTests}, {"origins", originTests},
	})
}

// RunLists compares tens of thousands of pages of listings of an idle store with the expected pages.
func RunLists(t *testing.T, target Target) {
	runGroups(t, target, []group{{"lists", listTests}})
}

// RunConcurrent tests everything that the contracts promise to concurrent callers. Run RunConcurrent under the race
// detector.
func RunConcurrent(t *testing.T, target Target) {
	runGroups(t, target, []group{
		{"buckets", bucketTests}, {"races", raceTests}, {"judges", judgeTests}, {"handles", handleTests},
		{"drafts", draftTests}, {"edits", editTests}, {"appenders", appenderTests},
	})
}

// runGroups runs every test of every group on a store of its own. Tests run side by side, because most of their time
// they wait for the disk.
func runGroups(t *testing.T, target Target, groups []group) {
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					if !target.OneAtATime {
						t.Parallel()
					}
					if target.Skip != nil {
						if why := target.Skip(group.name + "/" + test.name); why != "" {
							t.Skip(why)
						}
					}
					run(t, target, test.run)
				})
			}
		})
	}
}

// test is one test of the suite, on a store of its own.
type test struct {
	name string
	run  func(f *fixture)
}

// run runs one test, and looks whether what it left survives a restart.
func run(t *testing.T, target Target, body func(f *fixture)) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f := &fixture{T: t, ctx: ctx, target: target, s: target.Open(t)}
	defer func() {
		if f.s == nil {
			return
		}
		if err := f.s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	body(f)
	if !t.Failed() && f.s != nil {
		f.restart()
	}
}

// fixture is a store under test, with calls that end the test where they fail.
type fixture struct {
	*testing.T
	ctx    context.Context
	target Target
	s      object.Store
}

// restart opens the store again and compares everything that is visible.
func (f *fixture) restart() {
	f.Helper()
	if f.target.Reopen == nil {
		return
	}
	before := f.dump()
	f.s = f.target.Reopen(f.T, f.s)
	after := f.dump()
	if d := Diff(before, after); d != "" {
		f.Fatalf("after a restart (- before, + after):\n%s", d)
	}
}

func (f *fixture) dump() []string {
	f.Helper()
	lines, err := Dump(f.ctx, f.s, true)
	if err != nil {
		f.Fatalf("dump: %v", err)
	}
	return lines
}

// versions lists all versions of a bucket.
func (f *fixture) versions(bucket string) []object.Info {
	f.Helper()
	all, err := AllVersions(f.ctx, f.s, bucket)
	f.ok(err, "list")
	return all
}

// ok ends the test where err is an error.
func (f *fixture) ok(err error, what string, args ...any) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

// fails ends the test unless err wraps want.
func (f *fixture) fails(err, want error, what string, args ...any) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Fatalf("%s: error %v, expected one that is %q", fmt.Sprintf(what, args...), err, want)
	}
}

// same ends the test unless got is want.
func same[T comparable](f *fixture, got, want T, what string, args ...any) {
	f.Helper()
	if got != want {
		f.Fatalf("%s: %#v, expected %#v", fmt.Sprintf(what, args...), got, want)
	}
}

// bucket makes a bucket.
func (f *fixture) bucket(name string, v object.Versioning, kind object.ETagKind) {
	f.Helper()
	f.ok(f.s.CreateBucket(f.ctx, object.Bucket{Name: name, Versioning: v, ETag: kind}), "create bucket %s", name)
}

// versioning changes a bucket's versioning.
func (f *fixture) versioning(name string, v object.Versioning) {
	f.Helper()
	f.ok(f.s.UpdateBucket(f.ctx, name, func(b *object.Bucket) error { b.Versioning = v; return nil }), "versioning %q", v)
}

// put writes an object and looks at what is returned.
func (f *fixture) put(bucket, key string, data []byte, more ...func(*object.Put)) object.Info {
	f.Helper()
	p := object.Put{Bucket: bucket, Key: key, Size: int64(len(data)), Body: bytes.NewReader(data)}
	for _, m := range more {
		m(&p)
	}
	i, err := f.s.Put(f.ctx, p)
	f.ok(err, "put %q of %d bytes", key, len(data))
	f.describes(i, bucket, key, data)
	same(f, i.Latest, true, "Latest of %q just written", key)
	return i
}

// describes ends the test unless i describes data.
func (f *fixture) describes(i object.Info, bucket, key string, data []byte) {
	f.Helper()
	same(f, i.Bucket, bucket, "Bucket")
	same(f, i.Key, key, "Key")
	same(f, i.Size, int64(len(data)), "Size of %q", key)
	same(f, i.CRC64, checksum.Of(data), "CRC64 of %q", key)
	same(f, i.Marker, false, "Marker of %q", key)
	if i.Version == "" || i.ETag == "" || i.Modified.IsZero() {
		f.Fatalf("%q lacks a version, an ETag or a time: %+v", key, i)
	}
	if !i.Modified.Equal(i.Modified.Truncate(time.Millisecond)) {
		f.Fatalf("%q was modified at %v, expected whole milliseconds", key, i.Modified)
	}
}

// holds ends the test unless ref has exactly that content.
func (f *fixture) holds(ref object.Ref, data []byte) object.Info {
	f.Helper()
	i, got, err := Read(f.ctx, f.s, ref)
	f.ok(err, "read %q version %q", ref.Key, ref.Version)
	if !bytes.Equal(got, data) {
		f.Fatalf("%q version %q has %s, expected %s", ref.Key, ref.Version, brief(got), brief(data))
	}
	f.describes(i, ref.Bucket, ref.Key, data)
	st, err := f.s.Stat(f.ctx, ref)
	f.ok(err, "stat %q version %q", ref.Key, ref.Version)
	if a, b := show(st, true), show(i, true); a != b {
		f.Fatalf("Stat says %s, Open says %s", a, b)
	}
	return i
}

// gone ends the test unless the key has no current object.
func (f *fixture) gone(bucket, key string) object.Info {
	f.Helper()
	i, err := f.s.Stat(f.ctx, object.Ref{Bucket: bucket, Key: key})
	f.fails(err, object.ErrNoSuchKey, "stat %q", key)
	_, err = f.s.Open(f.ctx, object.Ref{Bucket: bucket, Key: key})
	f.fails(err, object.ErrNoSuchKey, "open %q", key)
	return i
}

// keys lists the current keys of a bucket.
func (f *fixture) keys(bucket string) []string {
	f.Helper()
	p, err := f.s.List(f.ctx, object.List{Bucket: bucket})
	f.ok(err, "list")
	out := []string{}
	for _, o := range p.Objects {
		out = append(out, o.Key)
	}
	return out
}

// Read reads the whole content of one version.
func Read(ctx context.Context, s object.Objects, ref object.Ref) (object.Info, []byte, error) {
	c, err := s.Open(ctx, ref)
	if err != nil {
		return object.Info{}, nil, err
	}
	defer c.Close()
	i := c.Info()
	data, err := section(c, 0, i.Size)
	return i, data, err
}

// section reads a range of an open content.
func section(c object.Content, off, n int64) ([]byte, error) {
	b, err := c.Section(object.Range{Off: off, N: n})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if b.Len() != n {
		return nil, fmt.Errorf("a section of %d bytes has length %d", n, b.Len())
	}
	data, err := readAll(b, n)
	if err == nil && int64(len(data)) != n {
		err = fmt.Errorf("a section of %d bytes gave %d", n, len(data))
	}
	if err == nil && b.Len() != 0 {
		err = fmt.Errorf("a section that was read whole has length %d", b.Len())
	}
	return data, err
}

// readAll reads r to its end as io.ReadAll does, in pieces that grow from 512 bytes. The buffer has room for n bytes
// from the beginning. Growing the buffer of io.ReadAll is slow under the race detector.
func readAll(r io.Reader, n int64) ([]byte, error) {
	data := make([]byte, 0, n+512)
	for piece := 512; ; piece = min(2*piece, 1<<20) {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		m, err := r.Read(data[len(data):min(cap(data), len(data)+piece)])
		data = data[:len(data)+m]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return data, err
		}
	}
}

// Bytes returns n pseudo-random bytes, always the same for one seed.
func Bytes(seed uint64, n int) []byte {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	data := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(data)
	return data
}

// MD5 returns the ETag of an object that was written in one request to a bucket with ETags of kind ETagMD5.
func MD5(data []byte) string { return fmt.Sprintf("%x", md5.Sum(data)) }

// CRC returns the ETag of content in a bucket with ETags of kind ETagCRC64.
func CRC(data []byte, parts int) string {
	return fmt.Sprintf("%016x%016x-%d", checksum.Of(data), len(data), parts)
}

// brief describes bytes in a message.
func brief(b []byte) string {
	if len(b) <= 32 {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%d bytes with CRC %016x (%x…)", len(b), checksum.Of(b), b[:8])
}

// Diff returns the differences of two sorted lists of lines; the result is empty if they are equal.
func Diff(a, b []string) string {
	var out strings.Builder
	for _, l := range a {
		if !slices.Contains(b, l) {
			fmt.Fprintf(&out, "- %s\n", l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			fmt.Fprintf(&out, "+ %s\n", l)
		}
	}
	if out.Len() == 0 && !slices.Equal(a, b) {
		fmt.Fprintf(&out, "the same lines in another order or number: %d and %d\n", len(a), len(b))
	}
	return out.String()
}
