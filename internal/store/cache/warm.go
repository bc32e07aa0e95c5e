// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
)

// mostWarming is the largest number of objects that are fetched at the same time because somebody asked for it.
const mostWarming = 8

// Warmed tells how much of an object is in the cache.
type Warmed struct {
	Bucket   string `json:"bucket"`
	Key      string `json:"key"`
	Version  string `json:"version,omitempty"`
	ETag     string `json:"etag"`
	Size     int64  `json:"size"`
	Cached   int64  `json:"cached"`             // bytes on the disk
	Whole    bool   `json:"whole"`              // all bytes are on the disk, and no comparison is in progress
	Verified string `json:"verified,omitempty"` // how the whole was compared
	Pinned   bool   `json:"pinned"`
	Running  bool   `json:"running"` // a fetch is in progress or waits for its turn
	Error    string `json:"error,omitempty"`
	Fix      string `json:"fix,omitempty"`
}

// Warm fetches an object to the cache in the background and returns how far the fetch is. Further calls for the same
// object do not start another fetch. If pin is not nil, Warm pins the key until that time; the zero time means for
// ever. Warm fails with kind Invalid if the bucket is no upstream bucket, and with the errors of Stat.
func (s *Store) Warm(ctx context.Context, ref object.Ref, pin *time.Time) (Warmed, error) {
	b, err := s.upstreamOf("warm", ref.Bucket)
	if err != nil {
		return Warmed{}, err
	}
	if b == nil {
		return Warmed{}, errs.New(errs.Invalid, "warm", "s3://"+ref.Bucket+"/"+ref.Key,
			"the bucket is kept by this server, so that its objects are on its disk").WithFix("name an upstream bucket")
	}
	f, err := b.find(ctx, &wanted{ref: ref})
	if err != nil {
		return Warmed{}, err
	}
	if f.about.Marker {
		return Warmed{}, object.Fail("warm", b.name(ref.Key), object.ErrIsMarker, ref.Version)
	}
	id := f.about.Identity
	if pin != nil {
		if err := s.files.Pin(ctx, cachefile.Pin{Origin: id.Origin, Key: id.Key, Expires: *pin}); err != nil {
			return Warmed{}, err
		}
	}
	out := Warmed{Bucket: b.Name, Key: id.Key, Version: id.Version, ETag: id.ETag, Size: id.Size}
	failed, running := s.warming.state(id)
	info, there := s.files.Stat(id)
	if !(there && info.Whole) && !running && !f.stale && (failed == nil || s.now().Sub(failed.at) > warmRetry) {
		s.warming.start(s, b, f)
		failed, running = nil, true
	}
	if there {
		out.Cached, out.Verified, out.Pinned = info.Bytes, info.Proof, info.Pinned
		out.Whole = info.Whole && (info.Proof != "" || !running) // a fetch ends when the content has been compared
	}
	out.Running = running
	if failed != nil && !out.Whole {
		out.Error, out.Fix = errs.MessageOf(failed.err), errs.FixOf(failed.err)
	}
	return out, nil
}

// warmRetry is the time after which a failed fetch is tried again.
const warmRetry = 5 * time.Second

// fetchAll reads the whole content, which puts it into the cache.
func (s *Store) fetchAll(b *bucket, f found) error {
	id := f.about.Identity
	v, kept, err := s.shelf.take(s.fetches, b, id, &f.about, 0, true)
	if err != nil {
		return err
	}
	if !kept {
		return errs.New(errs.IO, "warm", b.name(id.Key), "the cache has no room for the object").
			WithFix("raise cache.capacity, evict something (nebulaio cache evict), or pin the object")
	}
	defer v.release()
	if err := v.fetchGaps(object.Range{N: id.Size}); err != nil {
		return err
	}
	if v.arrive(s.fetches) {
		if err := v.settle(s.fetches); err != nil {
			return err
		}
	}
	return v.entry.Flush(s.fetches)
}
