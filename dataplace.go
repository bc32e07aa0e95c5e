// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/open"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/report"
)

// dataPlace finds files of this machine and objects of one server by their names.
type dataPlace struct {
	local  open.Local
	client *Client // nil if no source is in a bucket
	base   string  // what comes before the bucket in URLs, such as "s3://"

	mu    sync.Mutex
	trees map[bucketFor]*client.Tree
}

var _ open.Place = (*dataPlace)(nil)

// newDataPlace returns the place of sources, with a client if one of them is in a bucket.
func newDataPlace(s *System, sources []string, o ClientOptions) (*dataPlace, error) {
	p := &dataPlace{trees: map[bucketFor]*client.Tree{}}
	for _, source := range sources {
		at, err := parseURL(source)
		if err != nil {
			return nil, err
		}
		if at.path != "" {
			continue
		}
		base := baseOf(source)
		if p.base != "" && p.base != base {
			return nil, errs.New(errs.Invalid, "open data set", source,
				fmt.Sprintf("is on another server than %s", p.base)).WithFix("open the data of each server by itself")
		}
		p.base = base
		if at.endpoint != "" {
			o.Endpoint = at.endpoint
		}
	}
	if p.base == "" {
		return p, nil
	}
	var err error
	p.client, err = s.NewClient(o)
	return p, err
}

// baseOf returns what comes before the bucket in the URL of an object.
func baseOf(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	if scheme == "s3" {
		return "s3://"
	}
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host + "/"
}

// Close closes the client.
func (p *dataPlace) Close() error {
	if p.client == nil {
		return nil
	}
	return p.client.Close()
}

// bucketFor is a bucket whose objects are read to a device.
type bucketFor struct{ bucket, device string }

// tree returns the bucket of an object and the object's key. The object will be read to the device.
func (p *dataPlace) tree(name, device string) (*client.Tree, string) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(name, p.base), "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	at := bucketFor{bucket, device}
	t := p.trees[at]
	if t == nil {
		t = p.client.c.Tree(bucket, device)
		p.trees[at] = t
	}
	return t, key
}

// isObject reports whether a name is that of an object.
func (p *dataPlace) isObject(name string) bool {
	return p.base != "" && strings.HasPrefix(name, p.base)
}

// Stat describes a file or an object. A name is a folder if objects begin with it and a slash.
func (p *dataPlace) Stat(ctx context.Context, name string) (open.Entry, bool, error) {
	if !p.isObject(name) {
		return p.local.Stat(ctx, name)
	}
	t, key := p.tree(name, "host")
	if key != "" && !strings.HasSuffix(key, "/") {
		info, err := t.Stat(ctx, key)
		if err == nil {
			return open.Entry{Name: name, Size: info.Size}, false, nil
		}
		if !errs.Is(err, errs.NotFound) {
			return open.Entry{}, false, err
		}
		key += "/"
	}
	if any, err := t.Any(ctx, key); err != nil || any {
		return open.Entry{Name: name}, any, err
	}
	return open.Entry{}, false, errs.New(errs.NotFound, "open data set", name,
		"there is no such object, and no object below this prefix").WithFix("list the bucket to see its keys")
}

// List calls each with the files or objects of a folder.
func (p *dataPlace) List(ctx context.Context, folder string, o open.Within, each func(open.Entry) error) error {
	if !p.isObject(folder) {
		return p.local.List(ctx, folder, o, each)
	}
	t, key := p.tree(folder, "host")
	if key != "" && !strings.HasSuffix(key, "/") {
		key += "/"
	}
	root := strings.TrimSuffix(strings.TrimSuffix(folder, "/"), strings.TrimSuffix(key, "/"))
	if key == "" {
		root = strings.TrimSuffix(folder, "/") + "/"
	}
	return t.Walk(ctx, key+o.Prefix, func(key string, size int64) error {
		if strings.HasSuffix(key, "/") {
			return nil // the mark of a folder
		}
		return each(open.Entry{Name: root + key, Size: size})
	})
}

// Open opens files and objects to read them to host memory.
func (p *dataPlace) Open(ctx context.Context, names []string) ([]dataset.Opened, []error) {
	return p.openFor(ctx, "host", names)
}

// openFor opens files and objects, those of each bucket together, to read them to a device.
func (p *dataPlace) openFor(ctx context.Context, device string, names []string) ([]dataset.Opened, []error) {
	out, fails := make([]dataset.Opened, len(names)), make([]error, len(names))
	byTree := map[*client.Tree][]int{} // positions in names; those of files are at nil
	keys := make([]string, len(names))
	for i, name := range names {
		var t *client.Tree
		if keys[i] = name; p.isObject(name) {
			t, keys[i] = p.tree(name, device)
		}
		byTree[t] = append(byTree[t], i)
	}
	for t, at := range byTree {
		want := make([]string, len(at))
		for k, i := range at {
			want[k] = keys[i]
		}
		if t == nil {
			files, errs := p.local.Open(ctx, want)
			for k, i := range at {
				out[i], fails[i] = files[k], errs[k]
			}
			continue
		}
		for k, o := range t.OpenMany(ctx, want) {
			out[at[k]], fails[at[k]] = dataset.Opened{File: o.File, Sums: o.Sums}, o.Err
		}
	}
	return out, fails
}

// read returns the bytes of one part of a sample.
func (p *dataPlace) read(ctx context.Context, part DataPart) ([]byte, error) {
	got, fails := p.Open(ctx, []string{part.File})
	if fails[0] != nil {
		return nil, fails[0]
	}
	defer got[0].File.Close()
	if size := got[0].File.Size(); part.Size > size-part.Offset {
		return nil, errs.New(errs.Corrupt, "read sample", part.File, fmt.Sprintf(
			"%d bytes at offset %d end after the file, which has %d bytes", part.Size, part.Offset, size))
	}
	b := make([]byte, part.Size)
	return b, sample.ReadFull(got[0].File, b, part.Offset, "read sample", part.File)
}

// refusals returns why objects are not read through the door.
func (p *dataPlace) refusals(ctx context.Context) []report.Refusal {
	p.mu.Lock()
	var t *client.Tree
	for _, t = range p.trees {
		break
	}
	p.mu.Unlock()
	if t == nil {
		return nil
	}
	out, err := t.Refusals(ctx)
	if err != nil {
		return nil
	}
	return out
}

// count tells the server of the objects which routes the bytes of a read took. All trees have one client, so one of
// them tells it.
func (p *dataPlace) count(r *report.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.trees {
		if t.Count(r) {
			return
		}
	}
}
