// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

const access, secret = "rootaccess", "rootsecretkey"

// serve starts our own front end over a store in memory, and returns its URL and the store.
func serve(t testing.TB) (string, object.Store) {
	t.Helper()
	store := model.New()
	accounts, err := iam.Open(t.Context(), store, iam.Account{AccessKey: access, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3api.New(s3api.Options{Store: store, Accounts: accounts, Listeners: []net.Listener{l}, Region: "us-east-1",
		Drain: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + l.Addr().String(), store
}

// through is a store whose buckets are settings in a model, and whose objects are on an upstream.
type through struct {
	object.Store // of the upstream: buckets and records
	endpoint     string
	prefix       string

	mu sync.Mutex
	of map[string]*upstream.Bucket
}

func newThrough(t testing.TB, prefix string) *through {
	endpoint, store := serve(t)
	return &through{Store: store, endpoint: endpoint, prefix: prefix, of: map[string]*upstream.Bucket{}}
}

// in returns the objects of a bucket.
func (s *through) in(name string) (*upstream.Through, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.of[name]
	if !ok {
		var err error
		b, err = upstream.New(upstream.Options{Endpoint: s.endpoint, Bucket: valid(name), Prefix: s.prefix,
			Credentials: s3.Static(s3.Credentials{AccessKey: access, SecretKey: secret})})
		if err != nil {
			return nil, object.Fail("open", name, object.ErrNoSuchBucket, err.Error())
		}
		s.of[name] = b
	}
	return b.Through(name, nil), nil
}

// valid turns the names of the suite into names of S3 buckets.
func valid(name string) string { return "bucket-" + name }

func (s *through) CreateBucket(ctx context.Context, b object.Bucket) error {
	b.Name = valid(b.Name)
	return s.Store.CreateBucket(ctx, b)
}

func (s *through) Bucket(ctx context.Context, name string) (*object.Bucket, error) {
	return s.Store.Bucket(ctx, valid(name))
}

func (s *through) UpdateBucket(ctx context.Context, name string, change func(*object.Bucket) error) error {
	return s.Store.UpdateBucket(ctx, valid(name), change)
}

func (s *through) DeleteBucket(ctx context.Context, name string) error {
	return s.Store.DeleteBucket(ctx, valid(name))
}

func (s *through) ListBuckets(ctx context.Context) ([]object.Bucket, error) {
	all, err := s.Store.ListBuckets(ctx)
	for i := range all {
		all[i].Name = strings.TrimPrefix(all[i].Name, "bucket-")
	}
	return all, err
}

// packed puts attributes that are no headers of S3 into one attribute that is.
func packed(attrs map[string]string) map[string]string {
	if attrs == nil {
		return nil
	}
	doc, err := json.Marshal(attrs)
	if err != nil {
		panic(err)
	}
	return map[string]string{object.AttrMeta + "all": base64.StdEncoding.EncodeToString(doc)}
}

func unpacked(i object.Info, err error) (object.Info, error) {
	if i.Attributes[object.AttrType] == "binary/octet-stream" {
		delete(i.Attributes, object.AttrType) // the default of the server
	}
	doc, ok := i.Attributes[object.AttrMeta+"all"]
	if !ok {
		return i, err
	}
	raw, derr := base64.StdEncoding.DecodeString(doc)
	if derr != nil {
		return i, derr
	}
	delete(i.Attributes, object.AttrMeta+"all")
	own := map[string]string{}
	if derr := json.Unmarshal(raw, &own); derr != nil {
		return i, derr
	}
	maps.Copy(i.Attributes, own)
	return i, err
}

// content is open content with its attributes unpacked.
type content struct{ object.Content }

func (c content) Info() object.Info {
	i, err := unpacked(c.Content.Info(), nil)
	if err != nil {
		panic(err)
	}
	return i
}

func (s *through) Put(ctx context.Context, p object.Put) (object.Info, error) {
	b, err := s.in(p.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	p.Attributes = packed(p.Attributes)
	return unpacked(b.Put(ctx, p))
}

func (s *through) Stat(ctx context.Context, ref object.Ref) (object.Info, error) {
	b, err := s.in(ref.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	return unpacked(b.Stat(ctx, ref))
}

func (s *through) Open(ctx context.Context, ref object.Ref) (object.Content, error) {
	b, err := s.in(ref.Bucket)
	if err != nil {
		return nil, err
	}
	c, err := b.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	return content{c}, nil
}

func (s *through) Delete(ctx context.Context, d object.Deletion) (object.Deleted, error) {
	b, err := s.in(d.Bucket)
	if err != nil {
		return object.Deleted{}, err
	}
	return b.Delete(ctx, d)
}

func (s *through) DeleteMany(ctx context.Context, bucket string, ds []object.Deletion) ([]object.Deleted, []error) {
	b, err := s.in(bucket)
	if err != nil {
		failures := make([]error, len(ds))
		for i := range failures {
			failures[i] = err
		}
		return make([]object.Deleted, len(ds)), failures
	}
	return b.DeleteMany(ctx, bucket, ds)
}

func (s *through) Copy(ctx context.Context, c object.Copy) (object.Info, error) {
	b, err := s.in(c.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	c.Attributes = packed(c.Attributes)
	return unpacked(b.Copy(ctx, c))
}

func (s *through) SetAttributes(ctx context.Context, ref object.Ref, change func(map[string]string) error) error {
	b, err := s.in(ref.Bucket)
	if err != nil {
		return err
	}
	return b.SetAttributes(ctx, ref, change)
}

func (s *through) List(ctx context.Context, l object.List) (object.Page, error) {
	b, err := s.in(l.Bucket)
	if err != nil {
		return object.Page{}, err
	}
	return b.List(ctx, l)
}

func (s *through) CreateUpload(ctx context.Context, bucket, key string, a map[string]string) (string, error) {
	b, err := s.in(bucket)
	if err != nil {
		return "", err
	}
	return b.CreateUpload(ctx, bucket, key, packed(a))
}

func (s *through) GetUpload(ctx context.Context, bucket, key, id string) (object.Upload, error) {
	b, err := s.in(bucket)
	if err != nil {
		return object.Upload{}, err
	}
	u, err := b.GetUpload(ctx, bucket, key, id)
	if err == nil {
		var i object.Info
		i, err = unpacked(object.Info{Attributes: u.Attributes}, nil)
		u.Attributes = i.Attributes
	}
	return u, err
}

func (s *through) PutPart(ctx context.Context, p object.PutPart) (object.PartInfo, error) {
	b, err := s.in(p.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	return b.PutPart(ctx, p)
}

func (s *through) CopyPart(ctx context.Context, c object.CopyPart) (object.PartInfo, error) {
	b, err := s.in(c.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	return b.CopyPart(ctx, c)
}

func (s *through) ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]object.PartInfo, bool,
	error) {
	b, err := s.in(bucket)
	if err != nil {
		return nil, false, err
	}
	return b.ListParts(ctx, bucket, key, id, after, limit)
}

func (s *through) CompleteUpload(ctx context.Context, c object.Complete) (object.Info, error) {
	b, err := s.in(c.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	return unpacked(b.CompleteUpload(ctx, c))
}

func (s *through) AbortUpload(ctx context.Context, bucket, key, id string) error {
	b, err := s.in(bucket)
	if err != nil {
		return err
	}
	return b.AbortUpload(ctx, bucket, key, id)
}

func (s *through) ListUploads(ctx context.Context, l object.UploadList) (object.UploadPage, error) {
	b, err := s.in(l.Bucket)
	if err != nil {
		return object.UploadPage{}, err
	}
	return b.ListUploads(ctx, l)
}
