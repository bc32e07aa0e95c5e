// SPDX-License-Identifier: Apache-2.0

// Package versions lists, describes and adds single versions of objects on S3 servers, for copies that keep versions in
// order.
package versions

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Server lists, reads and adds versions on one S3 server. A Server is safe for concurrent use.
type Server struct {
	client *s3.Client
	sender *s3.Sender
	// Stall is the longest time without a byte of content; 0 means one minute.
	Stall time.Duration
}

// NewServer returns a server, which is first asked by the first request. NewServer fails with kind Invalid for invalid
// options. The caller closes the server.
func NewServer(o s3.Options) (*Server, error) {
	c, err := s3.New(o)
	if err != nil {
		return nil, err
	}
	keys := o.Credentials
	if keys == nil && o.AccessKey != "" {
		keys = s3.Static(s3.Credentials{AccessKey: o.AccessKey, SecretKey: o.SecretKey, SessionToken: o.SessionToken})
	}
	send, err := s3.NewSender(s3.SenderOptions{Endpoint: o.Endpoint, Region: o.Region, Credentials: keys,
		VirtualHost: o.VirtualHost, CAFile: o.CAFile, InsecureTLS: o.InsecureTLS})
	if err != nil {
		return nil, err
	}
	return &Server{client: c, sender: send}, nil
}

// Close closes idle connections.
func (s *Server) Close() {
	_ = s.client.Close() // which cannot fail
	s.sender.Close()
}

// Admin returns the requests about whole buckets.
func (s *Server) Admin() s3.Admin { return s.client.Admin() }

// Endpoint returns the URL of the server.
func (s *Server) Endpoint() string { return s.sender.Endpoint() }

// Entry is one version or delete marker of a listing.
type Entry = s3.VersionEntry

// Same reports whether two entries of different servers are the same version: kind, time, content and whether they are
// the null version. Identifiers of versions differ between servers. Times are compared in milliseconds.
func Same(a, b *Entry) bool {
	return a.Marker == b.Marker && a.Modified.UnixMilli() == b.Modified.UnixMilli() && IsNull(a) == IsNull(b) &&
		(a.Marker || a.ETag == b.ETag && a.Size == b.Size)
}

// IsNull reports whether an entry is the null version of its key.
func IsNull(e *Entry) bool { return e.Version == object.NullVersion || e.Version == "" }

// Key is one key of a listing with all its versions and delete markers, oldest first.
type Key struct {
	Name    string
	Entries []Entry
}

// Newest returns the identifier of the newest version, or "" if the key has none.
func (k *Key) Newest() string {
	if len(k.Entries) == 0 {
		return ""
	}
	if e := &k.Entries[len(k.Entries)-1]; e.Version != "" {
		return e.Version
	}
	return object.NullVersion
}

// mostVersions limits the versions of one key.
const mostVersions = 1_000_000

// mostEmpty limits the pages without an entry that follow each other.
const mostEmpty = 1000

// Keys reads a listing of versions key by key. Only one goroutine at a time may use Keys.
type Keys struct {
	s              *Server
	bucket, prefix string
	after, version string // of the next page
	page           []Entry
	last           bool // page is the last one
	began          bool
	empty          int
}

// Keys returns the keys of a bucket that begin with prefix and come after the key after, in the order of their bytes.
// An empty key after means the first key.
func (s *Server) Keys(bucket, prefix, after string) *Keys {
	return &Keys{s: s, bucket: bucket, prefix: prefix, after: after}
}

// Next returns the next key. At the end, the name of the key is empty. If the listing of the
// server is not in order, Next returns an error of kind Corrupt.
func (k *Keys) Next(ctx context.Context) (Key, error) {
	var out Key
	for {
		for len(k.page) > 0 {
			e := k.page[0]
			switch {
			case out.Name == "":
				out.Name = e.Key
			case e.Key < out.Name || !strings.HasPrefix(e.Key, k.prefix):
				return Key{}, k.bad(fmt.Sprintf("it lists %s after %s", strconv.Quote(e.Key), strconv.Quote(out.Name)))
			case e.Key != out.Name:
				slices.Reverse(out.Entries)
				return out, nil
			case len(out.Entries) >= mostVersions:
				return Key{}, k.bad(fmt.Sprintf("the key %s has more than %d versions", strconv.Quote(e.Key), mostVersions))
			}
			out.Entries = append(out.Entries, e)
			k.page = k.page[1:]
		}
		if k.last {
			slices.Reverse(out.Entries)
			return out, nil
		}
		if err := k.read(ctx); err != nil {
			return Key{}, err
		}
	}
}

func (k *Keys) bad(msg string) error {
	return errs.New(errs.Corrupt, "list versions of", s3.URL(k.bucket, k.prefix), msg).
		WithFix("this server's listings cannot be trusted: try its newest release, or another server")
}

// read reads the next page.
func (k *Keys) read(ctx context.Context) error {
	p, err := k.s.Admin().ListVersions(ctx, k.bucket, k.prefix, k.after, k.version)
	if err != nil {
		return err
	}
	if k.empty++; len(p.Entries) > 0 {
		k.empty = 0
	}
	if p.NextKey != "" && k.began && (p.NextKey < k.after || p.NextKey == k.after && p.NextVersion == k.version) ||
		k.empty > mostEmpty {
		return k.bad("a page leads back to one before it")
	}
	k.page, k.last, k.began = p.Entries, p.NextKey == "", true
	k.after, k.version = p.NextKey, p.NextVersion
	return nil
}

// Of returns the versions of one key. If the key has none, the result has no entries.
func (s *Server) Of(ctx context.Context, bucket, name string) (Key, error) {
	keys := s.Keys(bucket, name, "")
	k, err := keys.Next(ctx) // the key itself sorts before all others that begin with it
	if err != nil {
		return Key{}, err
	}
	if k.Name != name {
		k = Key{Name: name}
	}
	return k, nil
}
