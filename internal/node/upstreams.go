// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/keyring"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

const (
	// cacheDirectory is the default name of the cache in the data directory.
	cacheDirectory = "cache"
	// kindCapabilities is the kind of records that hold the proven abilities of upstreams.
	kindCapabilities = "upstream-capabilities"
)

// withUpstreams is a store with upstream buckets. Everything but objects is that of the store on disk.
type withUpstreams struct {
	*cache.Store
	on      sealedDisk
	files   *cachefile.Store
	origins map[string]*upstream.Bucket
}

// keysOf returns the encryption keys of the store.
func (s *withUpstreams) keysOf() *keyring.Ring { return s.on.keysOf() }

// CheckEncryption implements object.Encrypter. Objects of upstream buckets are never encrypted here.
func (s *withUpstreams) CheckEncryption(ctx context.Context, bucket string, e object.Encryption) error {
	return s.on.CheckEncryption(ctx, bucket, e)
}

// Unlock implements object.Encrypter.
func (s *withUpstreams) Unlock(ctx context.Context, info *object.Info) error {
	return s.on.Unlock(ctx, info)
}

// UnlockUpload implements object.Encrypter.
func (s *withUpstreams) UnlockUpload(ctx context.Context, u *object.Upload) error {
	return s.on.UnlockUpload(ctx, u)
}

func (s *withUpstreams) id() string { return s.on.id() }

func (s *withUpstreams) journal() object.Journal { return s.on.journal() }

func (s *withUpstreams) reopenable() error {
	if err := s.on.reopenable(); err != nil {
		return err
	}
	return s.files.Reopenable()
}

func (s *withUpstreams) canDraft(ctx context.Context) error { return s.on.canDraft(ctx) }

func (s *withUpstreams) writable(ctx context.Context) error { return s.on.writable(ctx) }

func (s *withUpstreams) stats(ctx context.Context) (Stats, error) { return s.on.stats(ctx) }

func (s *withUpstreams) scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error) {
	return s.on.scrub(ctx, rate, progress)
}

func (s *withUpstreams) expireUploads(ctx context.Context, before time.Time, told func(disk.Expired)) error {
	return s.on.expireUploads(ctx, before, told)
}

func (s *withUpstreams) backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport,
	error) {
	return s.on.backup(ctx, to, verify, progress)
}

// Close closes the cache, the connections to upstreams and the store on disk.
func (s *withUpstreams) Close() error {
	err := s.Store.Close()
	for _, b := range s.origins {
		if e := b.Close(); err == nil {
			err = e
		}
	}
	return err
}

// addUpstreams returns the store with the upstream buckets of the configuration. If the configuration has no upstream
// bucket and never had one, addUpstreams returns the store itself.
func addUpstreams(ctx context.Context, c *config.Config, st sealedDisk, log *slog.Logger) (store, error) {
	detached, err := prepareBuckets(ctx, c, st.on)
	if err != nil {
		return nil, err
	}
	if len(c.Upstream) == 0 && len(detached) == 0 {
		return st, nil
	}
	for name, origin := range detached {
		log.Warn("a bucket is kept by another server that the configuration does not name any more", "bucket", name,
			"upstream", origin, "fix", "add upstream."+name+" to the configuration again, or delete the bucket")
	}
	files, err := openCache(ctx, c, log)
	if err != nil {
		return nil, err
	}
	out := &withUpstreams{on: st, files: files, origins: map[string]*upstream.Bucket{}}
	o := cache.Options{Local: st, Files: files, Detached: detached, Memory: shares(c.MemoryLimit).runtime / 4, Log: log}
	for _, name := range c.Upstreams() {
		b, err := newUpstream(ctx, c, st.on, name, log)
		if err != nil {
			_ = files.Close() // nothing was written
			return nil, err
		}
		out.origins[name] = b
		settings := func(ctx context.Context) (*object.Bucket, error) { return st.Bucket(ctx, name) }
		o.Buckets = append(o.Buckets, cache.Bucket{Name: name, From: b, Pass: b.Through(name, settings),
			Rules: rulesOf(c.Upstream[name]), Settings: upstream.SettingsOf(b)})
	}
	if err := pinPrefixes(ctx, c, files, out.origins); err != nil {
		_ = files.Close() // the error of the pins is the reason
		return nil, err
	}
	out.Store = cache.New(o)
	return out, nil
}

// rulesOf returns the rules of an upstream bucket.
func rulesOf(u *config.Upstream) cache.Rules {
	r := cache.Rules{NeverChanges: u.NeverChanges, Pinned: u.Pinned, StaleIfError: u.StaleIfError,
		StaleAfter: u.FirstByte / 5, ReadOnly: u.Write == "none"}
	if u.Validate == "ttl" {
		r.Validate = u.TTL
	}
	return r
}

// prepareBuckets makes a local record for each upstream bucket, which holds its owner, its policy and its other
// settings. It returns the buckets that were upstream buckets and are not in the configuration any more.
func prepareBuckets(ctx context.Context, c *config.Config, st onDisk) (detached map[string]string, err error) {
	const op = "add upstream bucket"
	all, err := st.ListBuckets(ctx)
	if err != nil {
		return nil, err
	}
	there := map[string]string{}
	detached = map[string]string{}
	for i := range all {
		origin, marked := all[i].Settings[object.SettingUpstream]
		there[all[i].Name] = string(origin)
		if _, named := c.Upstream[all[i].Name]; marked && !named {
			detached[all[i].Name] = string(origin)
		}
	}
	for _, name := range c.Upstreams() {
		origin := describeUpstream(name, c.Upstream[name])
		old, exists := there[name]
		switch {
		case !exists:
			root, _ := rootCredentials(c)
			err = st.CreateBucket(ctx, object.Bucket{Name: name, Owner: root.access, ETag: object.ETagMD5,
				Settings: map[string][]byte{object.SettingUpstream: []byte(origin)}})
		case old == "":
			page, e := st.List(ctx, object.List{Bucket: name, Limit: 1, Versions: true})
			if e == nil && len(page.Objects) > 0 {
				e = errs.New(errs.Invalid, op, name, "the bucket exists and has objects of its own").
					WithFix("give the upstream bucket another name, or delete the objects")
			}
			if e != nil {
				return nil, e
			}
			fallthrough
		case old != origin:
			err = st.UpdateBucket(ctx, name, func(b *object.Bucket) error {
				if b.Settings == nil {
					b.Settings = map[string][]byte{}
				}
				b.Settings[object.SettingUpstream] = []byte(origin)
				return nil
			})
		}
		if err != nil {
			return nil, errs.Wrap(op, name, err)
		}
	}
	return detached, nil
}

// describeUpstream returns the address of an upstream bucket, without credentials.
func describeUpstream(name string, u *config.Upstream) string {
	return strings.TrimSuffix(u.Endpoint, "/") + "/" + u.BucketAt(name) + "/" + u.Prefix
}

// openCache opens the directory of the cache.
func openCache(ctx context.Context, c *config.Config, log *slog.Logger) (*cachefile.Store, error) {
	dir := c.Cache.Directory
	if dir == "" {
		dir = filepath.Join(c.Data, cacheDirectory)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &errs.Error{Kind: errs.KindOf(err), Op: "open the cache", Name: dir, Err: errs.WithoutPath(err),
			Fix: "set cache.directory to a directory that the server may create"}
	}
	capacity := c.Cache.Capacity
	if capacity == 0 {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return nil, errs.Wrap("open the cache", dir, err)
		}
		capacity = int64(min(fs.Blocks/5*4, math.MaxInt64/uint64(fs.Bsize))) * fs.Bsize
	}
	return cachefile.Open(ctx, cachefile.Options{Dir: dir, Capacity: capacity, High: float64(c.Cache.HighMark) / 100,
		Low: float64(c.Cache.LowMark) / 100, Memory: max(shares(c.MemoryLimit).store/4, 8<<20),
		ReadOnlyMount: c.GPUDirect.Enabled && c.GPUDirect.ReadOnlyMount,
		Failed:        func(err error) { log.Warn("background work of the cache failed", "error", err) }})
}

// pinPrefixes pins the patterns of the configuration that end in * and have no other wildcard. Other patterns are
// pinned key by key when the objects are cached.
func pinPrefixes(ctx context.Context, c *config.Config, files *cachefile.Store,
	origins map[string]*upstream.Bucket) error {
	for _, name := range c.Upstreams() {
		for _, p := range c.Upstream[name].Pin {
			prefix, ok := strings.CutSuffix(p, "*")
			if !ok || strings.ContainsAny(prefix, "*?") {
				continue
			}
			if err := files.Pin(ctx, cachefile.Pin{Origin: origins[name].Origin(), Key: prefix, Prefix: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// newUpstream returns the connection to an upstream bucket. Its proven abilities are kept as a record of the store.
func newUpstream(ctx context.Context, c *config.Config, st onDisk, name string, log *slog.Logger) (*upstream.Bucket,
	error) {
	u := c.Upstream[name]
	creds, err := upstreamCredentials(ctx, name, u)
	if err != nil {
		return nil, err
	}
	o := upstream.Options{Credentials: creds}
	origin := describeUpstream(name, u)
	doc, err := st.Record(ctx, kindCapabilities, origin)
	switch {
	case err == nil:
		if err := json.Unmarshal(doc, &o.Capabilities); err != nil {
			o.Capabilities = upstream.Capabilities{}
			log.Warn("the record of an upstream's abilities cannot be read and is made anew", "bucket", name, "error", err)
		}
	case !errors.Is(err, object.ErrNoSuchRecord):
		return nil, errs.Wrap("read the abilities of", origin, err)
	}
	o.Learned = func(now upstream.Capabilities) {
		go func() { // Learned must not block
			doc, err := json.Marshal(now)
			if err == nil {
				err = st.PutRecord(context.Background(), kindCapabilities, origin, doc)
			}
			if err != nil && !errors.Is(err, object.ErrClosed) {
				log.Warn("the abilities of an upstream cannot be recorded", "bucket", name, "error", err)
			}
		}()
	}
	return newUpstreamOf(c, name, &o)
}

// newUpstreamOf returns the connection to an upstream bucket. The parameter o has the credentials and the abilities;
// nil means that nothing is going to be asked.
func newUpstreamOf(c *config.Config, name string, o *upstream.Options) (*upstream.Bucket, error) {
	u := c.Upstream[name]
	if o == nil {
		o = &upstream.Options{}
	}
	o.Endpoint, o.Bucket, o.Prefix, o.Region = u.Endpoint, u.BucketAt(name), u.Prefix, u.Region
	o.CAFile, o.InsecureTLS, o.FirstByte, o.Stall = u.CAFile, u.InsecureTLS, u.FirstByte, u.Stall
	o.VirtualHost = u.AddressingStyle == "virtual"
	b, err := upstream.New(*o)
	if err != nil {
		return nil, errs.Wrap("add upstream bucket", name, err)
	}
	return b, nil
}

// readVariable returns the value of an environment variable that a setting names.
func readVariable(bucket, setting, variable string) (string, error) {
	value := os.Getenv(variable)
	if value == "" {
		return "", errs.New(errs.Invalid, "add upstream bucket", bucket,
			fmt.Sprintf("the environment variable %s, which %s names, is not set", variable, setting)).
			WithFix("set " + variable + " in the environment of the server")
	}
	return value, nil
}

// warmOf returns the function with which the S3 front end fetches objects of upstream buckets, or nil if the store has
// none.
func warmOf(st store) s3api.Warm {
	u, ok := st.(*withUpstreams)
	if !ok {
		return nil
	}
	return func(ctx context.Context, ref object.Ref, pin *time.Time) ([]byte, error) {
		w, err := u.Warm(ctx, ref, pin)
		if err != nil {
			return nil, err
		}
		return json.Marshal(w)
	}
}
