// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checkpoint"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
)

const (
	// mostCheckpointNames is the largest number of names below a prefix of checkpoints.
	mostCheckpointNames = 1 << 20
	// mostSidecar is the largest size of an object KEY.crc64nvme, in bytes.
	mostSidecar = 64<<20 + 64
	// removingObjects is the number of objects that are removed at the same time.
	removingObjects = 16
)

// checkpointPrefix is a prefix of a bucket with checkpoints.
type checkpointPrefix struct {
	sys    *System
	client *Client
	tree   *client.Tree
	bucket string
	prefix string // empty, or ends with a slash
}

var _ checkpoint.Folder = (*checkpointPrefix)(nil)

// checkpointFolder returns the directory or the prefix at a path or URL. The caller calls the result `done` after the
// last use.
func checkpointFolder(s *System, op, url string, o ClientOptions) (f checkpoint.Folder, done func() error, err error) {
	at, err := parseURL(url)
	if err != nil {
		return nil, nil, errs.Wrap(op, url, err)
	}
	if at.path != "" {
		return checkpoint.NewLocal(at.path), func() error { return nil }, nil
	}
	if at.endpoint != "" {
		o.Endpoint = at.endpoint
	}
	c, err := s.NewClient(o)
	if err != nil {
		return nil, nil, err
	}
	prefix := strings.TrimSuffix(at.key, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &checkpointPrefix{sys: s, client: c, tree: c.c.Tree(at.bucket, "host"), bucket: at.bucket, prefix: prefix},
		c.Close, nil
}

func (p *checkpointPrefix) Shown(name string) string {
	return "s3://" + p.bucket + "/" + strings.TrimSuffix(p.prefix+name, "/")
}

func (p *checkpointPrefix) Folder(name string) checkpoint.Folder {
	sub := *p
	sub.prefix += name + "/"
	return &sub
}

func (p *checkpointPrefix) Entries(ctx context.Context) ([]checkpoint.Entry, error) {
	all, err := p.tree.Entries(ctx, p.prefix, mostCheckpointNames)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errs.New(errs.NotFound, "list", p.Shown(""), "there are no objects with this prefix").
			WithFix("list the bucket to see its keys")
	}
	out := make([]checkpoint.Entry, 0, len(all))
	for _, e := range all {
		kind := checkpoint.KindFile
		if e.Prefix {
			kind = checkpoint.KindFolder
		}
		out = append(out, checkpoint.Entry{Name: e.Name, Kind: kind, Size: e.Size, Time: e.Modified})
	}
	slices.SortFunc(out, func(a, b checkpoint.Entry) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (p *checkpointPrefix) ReadAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	return p.tree.ReadAll(ctx, p.prefix+name, limit)
}

// Open opens an object with the checksums in KEY.crc64nvme. If there is no such object, the checksums are the server's:
// those of blocks through the door, and that of the whole object over HTTP.
func (p *checkpointPrefix) Open(ctx context.Context, name string) (checkpoint.Opened, error) {
	f, err := p.tree.Open(ctx, p.prefix+name)
	if err != nil {
		return checkpoint.Opened{}, err
	}
	out := checkpoint.Opened{File: f}
	if out.Sums, out.SumsErr = p.sidecar(ctx, name, f.Size()); out.Sums != nil || out.SumsErr != nil {
		return out, nil
	}
	if o, ok := f.Remote().(interface{ Sums() *checksum.Sums }); ok {
		out.Sums = o.Sums()
	} else if f.Remote() == nil {
		out.Sums, out.SumsErr = p.tree.Sums(ctx, p.prefix+name, f)
	}
	return out, nil
}

// sidecar returns the checksums in KEY.crc64nvme, or nil if there is no such object.
func (p *checkpointPrefix) sidecar(ctx context.Context, name string, size int64) (*checksum.Sums, error) {
	path := checksum.Path(name)
	b, err := p.tree.ReadAll(ctx, p.prefix+path, mostSidecar)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := checksum.Parse(p.Shown(path), b)
	if err == nil {
		err = s.CheckSize(p.Shown(name), size)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (p *checkpointPrefix) Put(ctx context.Context, name string, content []byte) error {
	return p.client.putBytes(ctx, p.bucket, p.prefix+name, content)
}

func (p *checkpointPrefix) Remove(ctx context.Context, names []string) error {
	var all sync.WaitGroup
	turns := make(chan struct{}, removingObjects)
	fails := make([]error, len(names))
	for i, name := range names {
		turns <- struct{}{}
		all.Go(func() {
			fails[i] = p.tree.Delete(ctx, p.prefix+name)
			<-turns
		})
	}
	all.Wait()
	return errors.Join(fails...)
}

func (p *checkpointPrefix) Discard(ctx context.Context, name string) error {
	// Pages of a listing may move while objects are removed, so that all keys are read first.
	var keys []string
	err := p.tree.Walk(ctx, p.prefix+name+"/", func(key string, _ int64) error {
		if keys = append(keys, strings.TrimPrefix(key, p.prefix)); len(keys) > mostCheckpointNames {
			return errs.New(errs.Unsupported, "remove", p.Shown(name), "it holds too many objects")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.Remove(ctx, keys)
}

func (p *checkpointPrefix) Atomic() bool { return true }

// Hide does nothing: a prefix cannot be renamed.
func (p *checkpointPrefix) Hide(_ context.Context, name string) (string, error) { return name, nil }

// Sync does nothing: an object is durable when the server has acknowledged it.
func (p *checkpointPrefix) Sync(context.Context) error { return nil }

func (p *checkpointPrefix) Lock(context.Context) (func(), error) { return func() {}, nil }

// Writing returns false: an object appears when it is complete, and nobody sees an upload before.
func (p *checkpointPrefix) Writing(context.Context) (bool, error) { return false, nil }
