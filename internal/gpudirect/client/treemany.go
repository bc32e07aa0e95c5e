// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// openingHTTP is the number of objects that OpenMany opens at the same time over HTTP.
const openingHTTP = 16

// Walk calls each with all objects whose keys begin with prefix, in the order of the listing. An error of each ends the
// walk and is returned.
func (t *Tree) Walk(ctx context.Context, prefix string, each func(key string, size int64) error) error {
	for l := (List{Bucket: t.bucket, Prefix: prefix}); ; {
		p, err := t.c.List(ctx, l)
		if err != nil {
			return err
		}
		for _, o := range p.Objects {
			if err := each(o.Key, o.Size); err != nil {
				return err
			}
		}
		if l.After = p.Next; !p.Truncated || p.Next == "" {
			return nil
		}
	}
}

// Stat returns the metadata of an object of the tree.
func (t *Tree) Stat(ctx context.Context, key string) (Info, error) {
	return t.c.Stat(ctx, t.bucket, key, "")
}

// OpenedObject is an object of a Tree that OpenMany opened.
type OpenedObject struct {
	File *vfs.File
	Sums *checksum.Sums // of all blocks; nil over HTTP
	Err  error          // why the object is not open
}

// OpenMany opens objects as files: through the door, many objects in one round trip. The result has an entry for each
// key, in order. The caller closes the files.
func (t *Tree) OpenMany(ctx context.Context, keys []string) []OpenedObject {
	out := make([]OpenedObject, len(keys))
	size := windowSize
	if w, err := t.c.find(ctx); err == nil && w.door == nil {
		size = 1
	}
	turns := make(chan struct{}, windowsOpening)
	if size == 1 {
		turns = make(chan struct{}, openingHTTP)
	}
	var all sync.WaitGroup
	for first := 0; first < len(keys); first += size {
		end := min(first+size, len(keys))
		turns <- struct{}{}
		all.Go(func() {
			t.openWindow(ctx, keys[first:end], out[first:end])
			<-turns
		})
	}
	all.Wait()
	return out
}

// openWindow opens a few objects in one round trip. A round trip that fails is repeated object by object, so that each
// object has its own error and can turn to HTTP.
func (t *Tree) openWindow(ctx context.Context, keys []string, out []OpenedObject) {
	if len(keys) > 1 {
		if w, err := t.c.find(ctx); err == nil && w.door != nil && t.openAtDoor(ctx, w.door, keys, out) {
			return
		}
	}
	for i, key := range keys {
		out[i].File, out[i].Err = t.Open(ctx, key)
		if out[i].Err != nil {
			continue
		}
		t.mu.Lock()
		out[i].Sums = t.sums[out[i].File]
		delete(t.sums, out[i].File) // the caller has it, and asks no more
		t.mu.Unlock()
	}
}

// openAtDoor opens objects through the door. It returns false, and no file, if the round trip failed.
func (t *Tree) openAtDoor(ctx context.Context, d *door, keys []string, out []OpenedObject) bool {
	const op = "open"
	items := make([]wire.OpenItem, len(keys))
	for i, key := range keys {
		if err := checkName(op, t.bucket, key); err != nil {
			return false
		}
		items[i] = wire.OpenItem{Bucket: t.bucket, Key: key, N: -1}
	}
	dev, err := t.c.device(ctx, t.device)
	if err != nil {
		return false
	}
	leave, err := t.c.enter(op, urlOf(t.bucket, keys[0]))
	if err != nil {
		return false
	}
	defer leave()
	where := deviceOf(dev)
	opened, fails, err := d.open(ctx, want{op: op, bits: wire.WantBuffered | wire.WantDirect | wire.WantSums,
		device: where}, items)
	if err != nil {
		return false
	}
	t.mu.Lock()
	t.door = d
	t.mu.Unlock()
	for i, o := range opened {
		switch {
		case uncached(t.c, fails[i]):
			out[i].File, out[i].Err = t.c.network.open(ctx, t.bucket, keys[i])
		case fails[i] != nil:
			out[i].Err = fails[i]
		default:
			out[i].File, out[i].Sums, out[i].Err = o.wholeFile(ctx, op, where)
		}
	}
	return true
}

// Any reports whether the key of an object begins with prefix.
func (t *Tree) Any(ctx context.Context, prefix string) (bool, error) {
	p, err := t.c.List(ctx, List{Bucket: t.bucket, Prefix: prefix, Limit: 1})
	return len(p.Objects) > 0, err
}

// Delete removes an object of the tree over HTTP; the door removes nothing. A missing object is no error. In a bucket
// with versions, Delete hides the object and keeps its versions.
func (t *Tree) Delete(ctx context.Context, key string) error {
	const op = "delete"
	if err := checkName(op, t.bucket, key); err != nil {
		return err
	}
	leave, err := t.c.enter(op, urlOf(t.bucket, key))
	if err != nil {
		return err
	}
	defer leave()
	return t.c.network.s3.Delete(ctx, t.bucket, key)
}

// Entry is an object directly below a prefix, or a longer prefix that several objects share.
type Entry struct {
	Name     string // without the prefix
	Prefix   bool
	Size     int64
	Modified time.Time
}

// Entries lists the objects and the prefixes directly below dir. If there are more than `most`, Entries fails.
func (t *Tree) Entries(ctx context.Context, dir string, most int) ([]Entry, error) {
	var out []Entry
	for l := (List{Bucket: t.bucket, Prefix: dir, Delimiter: "/"}); ; {
		p, err := t.c.List(ctx, l)
		if err != nil {
			return nil, err
		}
		for _, o := range p.Objects {
			if name := strings.TrimPrefix(o.Key, dir); name != "" {
				out = append(out, Entry{Name: name, Size: o.Size, Modified: o.Modified})
			}
		}
		for _, sub := range p.Prefixes {
			if name := strings.TrimSuffix(strings.TrimPrefix(sub, dir), "/"); name != "" {
				out = append(out, Entry{Name: name, Prefix: true})
			}
		}
		if len(out) > most {
			return nil, errs.New(errs.Unsupported, "list", urlOf(t.bucket, dir),
				fmt.Sprintf("it holds more than %d names", most))
		}
		if l.After = p.Next; !p.Truncated || p.Next == "" {
			return out, nil
		}
	}
}
