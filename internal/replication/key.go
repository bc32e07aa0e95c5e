// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/replication/rules"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// attrSealed marks a version that is encrypted at rest. Its stored bytes must not be copied as its content.
const attrSealed = "sealed"

// key copies the changes of one key. before is the newest version of the key at the target before the batch.
func (l *link) key(ctx context.Context, name, before string, changes []object.JournalEntry) error {
	at, err := l.server.Of(ctx, l.To, name)
	if err != nil {
		return err
	}
	arrived := after(at.Entries, before)
	copies, last := align(changes, arrived)
	newest := at.Newest()
	for i := range changes {
		e := &changes[i]
		switch {
		case e.Kind == object.ChangeTags || e.Kind == object.ChangeUntag:
			if err := l.tags(ctx, e); err != nil && !l.settled(ctx, e, err) {
				return err
			}
		case copies[i] != "":
			if err := l.record(ctx, e, rules.State{Status: rules.Completed, Version: copies[i]}); err != nil {
				return err
			}
		case i < last:
			// A later change has arrived: this one was left out for good, and would now come too late.
		default:
			added, sent, err := l.send(ctx, e, newest)
			if err != nil {
				if l.settled(ctx, e, err) {
					continue
				}
				return err
			}
			if !sent {
				continue
			}
			if newest = added.Version; newest == "" {
				newest = object.NullVersion
			}
			if err := l.record(ctx, e, rules.State{Status: rules.Completed, Version: added.Version}); err != nil {
				return err
			}
			l.done(e.Size, false)
		}
	}
	return nil
}

func (l *link) done(bytes int64, failed bool) {
	l.mu.Lock()
	if failed {
		l.st.Failed++
	} else {
		l.st.Replicated++
	}
	l.mu.Unlock()
	if l.w.o.Done != nil {
		l.w.o.Done(l.Link, bytes, failed)
	}
}

// after returns the versions that came after the version before, oldest first. If the target has deleted that version
// meanwhile, all versions are returned.
func after(all []versions.Entry, before string) []versions.Entry {
	if before == "" {
		return all
	}
	at := slices.IndexFunc(all, func(e versions.Entry) bool { return e.Version == before })
	return all[at+1:]
}

// align finds the changes whose versions have arrived at the target. The result has the identifier of the copy of each
// change, empty if there is none, and the number of changes up to the last one that has arrived.
func align(changes []object.JournalEntry, arrived []versions.Entry) (copies []string, last int) {
	copies = make([]string, len(changes))
	p := 0
	for i := range changes {
		e := &changes[i]
		if !e.Kind.Creates() && e.Kind != object.ChangeMarker {
			continue
		}
		for j := p; j < len(arrived); j++ {
			if isCopy(e, &arrived[j]) {
				copies[i], p, last = arrived[j].Version, j+1, i+1
				break
			}
		}
	}
	return copies, last
}

// isCopy reports whether a version of the target may be the copy of a change. ETags that are no MD5s differ between
// servers.
func isCopy(e *object.JournalEntry, at *versions.Entry) bool {
	if e.Marker || at.Marker {
		return e.Marker == at.Marker
	}
	if e.Size != at.Size {
		return false
	}
	return e.ETag == at.ETag || !isMD5(e.ETag) || !isMD5(at.ETag)
}

func isMD5(etag string) bool {
	b, err := hex.DecodeString(etag)
	return err == nil && len(b) == 16
}

// settled reports whether an error is about the version itself, so that no retry helps. It records that the version has
// failed. Errors of the connection, of the target as a whole and of its permissions are not settled: they may go away.
func (l *link) settled(ctx context.Context, e *object.JournalEntry, err error) bool {
	var f *s3.Fault
	about := errs.KindOf(err) == errs.Corrupt || errs.KindOf(err) == errs.Unsupported || errors.Is(err, object.ErrDamaged)
	if errors.As(err, &f) {
		switch f.Status {
		case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge,
			http.StatusNotImplemented, http.StatusLengthRequired:
			about = f.Code != "RequestTimeTooSkewed" && f.Code != "IncompleteBody" && f.Code != "RequestTimeout"
		default:
			about = false
		}
	}
	if !about || ctx.Err() != nil {
		return false
	}
	l.w.o.Log.Error("a version was not replicated", "bucket", e.Bucket, "key", e.Key, "version", e.Version,
		"target", l.Target, "error", err)
	l.refused(err)
	l.done(0, true)
	return l.record(ctx, e, rules.State{Status: rules.Failed}) == nil
}

// record writes the state of a version into its attributes. A version that was deleted meanwhile needs none, and a
// delete marker cannot have one.
func (l *link) record(ctx context.Context, e *object.JournalEntry, s rules.State) error {
	if e.Marker {
		return nil
	}
	ctx = object.WithRequester(ctx, object.Requester{Principal: rules.Principal})
	err := l.w.o.Store.SetAttributes(ctx, object.Ref{Bucket: e.Bucket, Key: e.Key, Version: e.Version},
		func(attrs map[string]string) error {
			if rules.StateOf(attrs, l.Link) == s {
				return errSame
			}
			return rules.SetState(attrs, l.Link, s)
		})
	if isGone(err) || errors.Is(err, errSame) {
		return nil
	}
	return err
}

// errSame says that a version has its state already.
var errSame = errors.New("the version has this state already")

func isGone(err error) bool {
	return errors.Is(err, object.ErrNoSuchKey) || errors.Is(err, object.ErrNoSuchVersion) ||
		errors.Is(err, object.ErrNoSuchBucket) || errors.Is(err, object.ErrIsMarker)
}

// wanted returns the version of a change if it goes over the link. The result is false if the version was deleted
// meanwhile, is a copy itself, or if no rule matches it.
func (l *link) wanted(ctx context.Context, e *object.JournalEntry) (object.Info, bool, error) {
	if e.By.Principal == rules.Principal {
		return object.Info{}, false, nil
	}
	info, err := l.w.o.Store.Stat(ctx, object.Ref{Bucket: e.Bucket, Key: e.Key, Version: e.Version})
	if isGone(err) {
		return info, false, nil
	}
	if err != nil {
		return info, false, err
	}
	bk, err := l.w.o.Store.Bucket(ctx, e.Bucket)
	if err != nil {
		return info, false, err
	}
	c, _, err := rules.Read(bk)
	if err != nil || c == nil {
		return info, false, err
	}
	return info, info.Attributes[rules.AttrStatus] != rules.Replica && c.Wants(l.Link, &info), nil
}

// send copies the version of one change. The result is false if there is nothing to copy.
func (l *link) send(ctx context.Context, e *object.JournalEntry, newest string) (versions.Added, bool, error) {
	info, wanted, err := l.wanted(ctx, e)
	if err != nil || !wanted {
		return versions.Added{}, false, err
	}
	more := http.Header{"X-Amz-Replication-Status": {rules.Replica}}
	if l.ours {
		more.Set(object.HeaderOriginModified, info.Modified.UTC().Format("2006-01-02T15:04:05.000Z"))
		more.Set(object.HeaderOriginVersion, info.Version)
		more.Set(object.HeaderOriginNewest, newest)
		more.Set(object.HeaderOriginETag, info.ETag)
	}
	if info.Marker {
		a, err := l.server.AddMarker(ctx, l.To, e.Key, more)
		return a, err == nil, err
	}
	if info.Attributes[attrSealed] != "" {
		return versions.Added{}, false, errs.New(errs.Unsupported, "replicate", s3.URL(e.Bucket, e.Key),
			"the version is encrypted at rest").WithFix("copy it with an S3 client that may read it")
	}
	v := &versions.Version{Entry: versions.Entry{Key: e.Key, Version: info.Version, Size: info.Size, ETag: info.ETag,
		Modified: info.Modified}, Summed: true}
	if v.Header, err = upstream.HeadersOf(s3.URL(e.Bucket, e.Key), info.Attributes); err != nil {
		return versions.Added{}, false, err
	}
	for _, p := range info.Parts {
		v.Parts = append(v.Parts, p.Size)
	}
	a, err := l.server.Add(ctx, l.To, v, &stored{l.w.o.Store,
		object.Ref{Bucket: e.Bucket, Key: e.Key, Version: info.Version}}, more, nil)
	return a, err == nil, err
}

// stored is the content of a version of the store.
type stored struct {
	store object.Objects
	ref   object.Ref
}

func (s *stored) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	c, err := s.store.Open(ctx, s.ref)
	if err != nil {
		return nil, err
	}
	r := object.Range{Off: off, N: n}
	var body object.Body
	if strict, ok := c.(object.Stricter); ok {
		body, err = strict.Strict(r)
	} else {
		body, err = c.Section(r)
	}
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	return body, nil
}

// tags gives the copy of a version the tags that the version has now.
func (l *link) tags(ctx context.Context, e *object.JournalEntry) error {
	info, wanted, err := l.wanted(ctx, e)
	state := rules.StateOf(info.Attributes, l.Link)
	if err != nil || !wanted || state.Version == "" {
		return err // the copy gets the tags with the version itself
	}
	h, err := upstream.HeadersOf(s3.URL(e.Bucket, e.Key), info.Attributes)
	if err != nil {
		return err
	}
	r := s3.Request{Method: http.MethodDelete, Bucket: l.To, Key: e.Key,
		Query: url.Values{"tagging": {""}, "versionId": {state.Version}}}
	if text := h.Get("X-Amz-Tagging"); text != "" {
		r.Method = http.MethodPut
		if r.Text, err = versions.TagsDocument(text); err != nil {
			return err
		}
	}
	_, _, err = l.server.Admin().Ask(ctx, "set tags of", r, s3.MostSetting)
	if errs.KindOf(err) == errs.NotFound {
		return nil // the target has deleted its copy
	}
	return err
}
