// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
)

// mostCached is the largest number of entries that one listing of the cache returns.
const mostCached = 100_000

// CacheMatch selects entries of the cache. The zero CacheMatch selects all entries.
type CacheMatch struct {
	Bucket string `json:"bucket,omitempty"` // name of an upstream bucket; empty means all
	Key    string `json:"key,omitempty"`    // prefix of the keys; if Exact is true, the whole key
	Exact  bool   `json:"exact,omitempty"`
}

// Cached describes an entry of the cache.
type Cached struct {
	Bucket   string    `json:"bucket,omitempty"` // empty if no upstream bucket of the configuration has the origin
	Origin   string    `json:"origin"`
	Key      string    `json:"key"`
	Version  string    `json:"version,omitempty"`
	ETag     string    `json:"etag"`
	Size     int64     `json:"size"`
	Bytes    int64     `json:"cached"` // bytes on the disk
	Whole    bool      `json:"whole"`
	Verified string    `json:"verified,omitempty"` // how the whole content was compared
	Pinned   bool      `json:"pinned"`
	Current  bool      `json:"current"` // false if the upstream has another content for the key
	Read     time.Time `json:"read"`    // time of the last read
}

// CachePin pins objects in the cache or removes a pin.
type CachePin struct {
	Bucket  string     `json:"bucket"`
	Key     string     `json:"key"`
	Prefix  bool       `json:"prefix,omitempty"`  // Key is the first bytes of keys
	Expires *time.Time `json:"expires,omitempty"` // end of the pin; nil means never
}

// CacheAdmin administers the cache of upstream buckets, through the running server or by opening the cache itself.
type CacheAdmin struct {
	files   *cachefile.Store
	origins map[string]string // of upstream buckets by name
	cache   *cache.Store      // nil without a server
	remote  *remote           // nil if this process has the cache open
}

// AdministerCache returns a CacheAdmin for the cache of a configuration. If a server runs on the data directory, the
// CacheAdmin asks the server. If no server runs, AdministerCache opens the cache. The caller closes the CacheAdmin.
func AdministerCache(ctx context.Context, c *config.Config) (*CacheAdmin, error) {
	if conn, err := dialAdmin(ctx, c.Data); err == nil {
		_ = conn.Close()
		return &CacheAdmin{remote: newRemote(c.Data)}, nil
	}
	if len(c.Upstream) == 0 {
		return nil, errs.New(errs.NotFound, "open the cache of", c.Data, "no server runs on it, and the configuration "+
			"names no upstream bucket").WithFix("give --config FILE with the settings of the server")
	}
	files, err := openCache(ctx, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	a := &CacheAdmin{files: files, origins: map[string]string{}}
	for _, name := range c.Upstreams() {
		b, err := newUpstreamOf(c, name, nil)
		if err != nil {
			_ = files.Close() // the error is the reason
			return nil, err
		}
		a.origins[name] = b.Origin()
	}
	return a, nil
}

// Close closes the cache or the connection to the server.
func (a *CacheAdmin) Close() error {
	if a.remote != nil {
		return a.remote.Close()
	}
	return a.files.Close()
}

// match returns the selection of entries with the origin of the bucket.
func (a *CacheAdmin) match(op string, m CacheMatch) (cachefile.Match, error) {
	out := cachefile.Match{Key: m.Key, Exact: m.Exact}
	if m.Bucket == "" {
		if m.Key != "" {
			return out, errs.New(errs.Invalid, op, m.Key, "a key is named without a bucket").WithFix("name BUCKET/KEY")
		}
		return out, nil
	}
	var ok bool
	if out.Origin, ok = a.origins[m.Bucket]; !ok {
		return out, errs.New(errs.NotFound, op, m.Bucket, "no upstream bucket of the server has this name").
			WithFix("see the settings upstream.* of nebulaio config")
	}
	return out, nil
}

func (a *CacheAdmin) bucketOf(origin string) string {
	for name, o := range a.origins {
		if o == origin {
			return name
		}
	}
	return ""
}

// List returns the selected entries in the order of origin and key, at most 100,000.
func (a *CacheAdmin) List(ctx context.Context, m CacheMatch) ([]Cached, error) {
	const op = "list the cache"
	if a.remote != nil {
		var all []Cached
		return all, a.remote.call(ctx, http.MethodPost, "/v1/cache/ls", m, &all)
	}
	k, err := a.match(op, m)
	if err != nil {
		return nil, err
	}
	all := []Cached{}
	for i, err := range a.files.List(ctx, k) {
		if err != nil {
			return nil, errs.Wrap(op, m.Bucket, err)
		}
		if len(all) == mostCached {
			return nil, errs.New(errs.Unsupported, op, m.Bucket+"/"+m.Key,
				fmt.Sprintf("it has more than %d entries", mostCached)).WithFix("name a longer prefix")
		}
		all = append(all, Cached{Bucket: a.bucketOf(i.Origin), Origin: i.Origin, Key: i.Key, Version: i.Version, ETag: i.ETag,
			Size: i.Size, Bytes: i.Bytes, Whole: i.Whole, Verified: i.Proof, Pinned: i.Pinned, Current: !i.Superseded,
			Read: i.Read})
	}
	return all, nil
}

// CacheStats holds the statistics of the cache, and of the upstream buckets if a server runs.
type CacheStats struct {
	Running bool `json:"running"` // whether a server runs on the cache
	cache.Stats
}

// Stats returns the statistics of the cache.
func (a *CacheAdmin) Stats(ctx context.Context) (CacheStats, error) {
	if a.remote != nil {
		var s CacheStats
		return s, a.remote.call(ctx, http.MethodGet, "/v1/cache/stats", nil, &s)
	}
	if a.cache != nil {
		return CacheStats{Running: true, Stats: a.cache.Stats()}, nil
	}
	return CacheStats{Stats: cache.Stats{Files: a.files.Stats(), Buckets: []cache.BucketStats{}}}, nil
}

// Verify compares every present block of the selected entries with its checksum, and drops damaged blocks. If progress
// is not nil, Verify calls it from time to time.
func (a *CacheAdmin) Verify(ctx context.Context, m CacheMatch, progress func(cachefile.Progress)) (cachefile.Report,
	error) {
	if a.remote != nil {
		return follow[cachefile.Progress, cachefile.Report](ctx, a.remote, "verify the cache", "/v1/cache/verify", m,
			progress)
	}
	k, err := a.match("verify the cache", m)
	if err != nil {
		return cachefile.Report{}, err
	}
	return a.files.Verify(ctx, k, progress)
}

// Pin pins objects, which are then not evicted.
func (a *CacheAdmin) Pin(ctx context.Context, p CachePin) error {
	if a.remote != nil {
		return a.remote.call(ctx, http.MethodPost, "/v1/cache/pin", p, nil)
	}
	k, err := a.match("pin", CacheMatch{Bucket: p.Bucket, Key: p.Key})
	if err != nil {
		return err
	}
	pin := cachefile.Pin{Origin: k.Origin, Key: p.Key, Prefix: p.Prefix}
	if p.Expires != nil {
		pin.Expires = *p.Expires
	}
	return a.files.Pin(ctx, pin)
}

// Unpin removes a pin. Unpin fails with kind NotFound if there is none.
func (a *CacheAdmin) Unpin(ctx context.Context, p CachePin) error {
	if a.remote != nil {
		return a.remote.call(ctx, http.MethodPost, "/v1/cache/unpin", p, nil)
	}
	k, err := a.match("unpin", CacheMatch{Bucket: p.Bucket, Key: p.Key})
	if err != nil {
		return err
	}
	was, err := a.files.Unpin(ctx, k.Origin, p.Key, p.Prefix)
	if err == nil && !was {
		err = errs.New(errs.NotFound, "unpin", p.Bucket+"/"+p.Key, "there is no such pin").
			WithFix("give the name that was pinned, and * at its end if it was a prefix")
	}
	return err
}

// Evict removes the selected entries from the cache, except pinned ones.
func (a *CacheAdmin) Evict(ctx context.Context, m CacheMatch) (cachefile.Evicted, error) {
	if a.remote != nil {
		var e cachefile.Evicted
		return e, a.remote.call(ctx, http.MethodPost, "/v1/cache/evict", m, &e)
	}
	k, err := a.match("evict", m)
	if err != nil {
		return cachefile.Evicted{}, err
	}
	return a.files.Evict(ctx, k)
}

// ParseCacheName splits BUCKET/KEY or s3://BUCKET/KEY. A * at the end of the key makes it a prefix.
func ParseCacheName(s string) CacheMatch {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(s, "s3://"), "/")
	prefix, star := strings.CutSuffix(key, "*")
	return CacheMatch{Bucket: bucket, Key: prefix, Exact: key != "" && !star}
}

// cacheAdmin returns the CacheAdmin of a running server, or nil if the server has no upstream bucket.
func cacheAdmin(st store) *CacheAdmin {
	u, ok := st.(*withUpstreams)
	if !ok {
		return nil
	}
	a := &CacheAdmin{files: u.files, cache: u.Store, origins: map[string]string{}}
	for name, b := range u.origins {
		a.origins[name] = b.Origin()
	}
	return a
}

// addCache serves the requests about the cache over the administration socket.
func addCache(mux *http.ServeMux, a *CacheAdmin) {
	if a == nil {
		mux.HandleFunc("/v1/cache/", func(w http.ResponseWriter, _ *http.Request) {
			answer(w, nil, errs.New(errs.NotFound, "look at the cache", "", "the server has no upstream bucket").
				WithFix("add upstream.BUCKET to the configuration"))
		})
		return
	}
	mux.HandleFunc("GET /v1/cache/stats", func(w http.ResponseWriter, r *http.Request) {
		s, err := a.Stats(r.Context())
		answer(w, s, err)
	})
	mux.HandleFunc("POST /v1/cache/ls", answering(a.List))
	mux.HandleFunc("POST /v1/cache/evict", answering(a.Evict))
	nothing := func(do func(context.Context, CachePin) error) func(context.Context, CachePin) (struct{}, error) {
		return func(ctx context.Context, p CachePin) (struct{}, error) { return struct{}{}, do(ctx, p) }
	}
	mux.HandleFunc("POST /v1/cache/pin", answering(nothing(a.Pin)))
	mux.HandleFunc("POST /v1/cache/unpin", answering(nothing(a.Unpin)))
	mux.HandleFunc("POST /v1/cache/verify", func(w http.ResponseWriter, r *http.Request) {
		var m CacheMatch
		if err := decodeBody(w, r, &m); err != nil {
			answer(w, nil, err)
			return
		}
		stream(w, func(progress func(cachefile.Progress)) (cachefile.Report, error) {
			return a.Verify(r.Context(), m, progress)
		})
	})
}

// answering returns a handler that reads a request, calls do with it and answers with the result.
func answering[Q, R any](do func(context.Context, Q) (R, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if err := decodeBody(w, r, &q); err != nil {
			answer(w, nil, err)
			return
		}
		v, err := do(r.Context(), q)
		answer(w, v, err)
	}
}
