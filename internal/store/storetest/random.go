// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

// sentinels are the errors that callers tell apart.
var sentinels = []error{
	object.ErrNoSuchBucket, object.ErrNoSuchKey, object.ErrNoSuchVersion, object.ErrNoSuchUpload, object.ErrNoSuchRecord,
	object.ErrBucketExists,
	object.ErrBucketNotEmpty, object.ErrPrecondition, object.ErrIsMarker, object.ErrInvalidName, object.ErrTooLarge,
	object.ErrInvalidPart,
	object.ErrPartOrder, object.ErrPartTooSmall, object.ErrInvalidRange, object.ErrIncompleteBody, object.ErrDamaged,
	object.ErrNoSpace,
	object.ErrReadOnly, object.ErrBusy, object.ErrWriteOffset, object.ErrTokenUsed, object.ErrClosed, errMine,
	context.Canceled, context.DeadlineExceeded,
}

// Sentinel returns the first sentinel error that err wraps, or err itself if it wraps none.
func Sentinel(err error) error {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

// Random makes random operations on a new store and on a model, and compares the results of each operation. From time
// to time Random also compares everything visible, and restarts the store. Two runs of Random with the same seed make
// the same operations.
func Random(t *testing.T, seed uint64, steps int, target Target) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	w := newWalk(ctx, seed, "a", "a", "b", "b", "c", randomDirectory, randomDirectory)
	w.T, w.target, w.s = t, target, target.Open(t)
	defer func() {
		if err := w.s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Logf("seed %d, step %d; the last operations:\n  %s", seed, w.step, strings.Join(w.log, "\n  "))
		}
	}()
	for w.step = range steps {
		if err := w.one(); err != nil {
			t.Errorf("seed %d, step %d: %v", seed, w.step, err)
			return
		}
	}
	if err := w.compare(); err != nil {
		t.Errorf("seed %d, at the end: %v", seed, err)
	}
}

// newWalk begins a walk over buckets of these names; those named often are used often.
func newWalk(ctx context.Context, seed uint64, buckets ...string) *walk {
	return &walk{ctx: ctx, r: rand.New(rand.NewPCG(seed, 0)), m: model.New(), buckets: buckets,
		versions: map[string]string{}, uploads: map[string]string{}}
}

// walk is a store and its model on their way through random operations.
type walk struct {
	*testing.T
	buckets  []string
	ctx      context.Context
	target   Target
	r        *rand.Rand
	m        *model.Store
	s        object.Store
	most     int  // bytes of an object or a part; 0 for what shows most
	distinct bool // no key twice in one call of DeleteMany, which may then be one step
	step     int
	log      []string
	versions map[string]string // the store's identifier of a version by the model's
	uploads  map[string]string // the same of uploads
}

// choice is an operation and how often it is done.
type choice struct {
	weight int
	do     func() error
}

// changes are the operations that change a bucket.
func (w *walk) changes() []choice {
	if slices.ContainsFunc(w.buckets, object.IsDirectory) {
		return append(w.ordinary(), choice{20, w.append}, choice{8, w.rename})
	}
	return w.ordinary()
}

func (w *walk) ordinary() []choice {
	return []choice{
		{20, w.put}, {10, w.remove}, {3, w.removeMany}, {8, w.copy}, {4, w.attributes}, {4, w.createUpload}, {14, w.putPart},
		{4, w.copyPart},
		{6, w.complete}, {2, w.abort}, {2, w.settings}, {2, w.makeBucket}, {1, w.dropBucket},
	}
}

// one does one operation.
func (w *walk) one() error {
	return w.do(append(w.changes(), choice{10, w.read}, choice{8, w.list}, choice{3, w.listParts}, choice{3, w.record},
		choice{1, w.compare}, choice{1, w.reopen}))
}

// do does one of several operations.
func (w *walk) do(ops []choice) error {
	total := 0
	for _, o := range ops {
		total += o.weight
	}
	n := w.r.IntN(total)
	for _, o := range ops {
		if n -= o.weight; n < 0 {
			return o.do()
		}
	}
	return nil
}

// note writes down an operation, for the message when one goes wrong.
func (w *walk) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", w.step)+fmt.Sprintf(format, args...))
	if len(w.log) > 25 {
		w.log = w.log[1:]
	}
}

// differ compares two errors, and where both are nil two descriptions.
func differ(em, es error, m, s string) error {
	if a, b := Sentinel(em), Sentinel(es); a != b && (em == nil || es == nil || a != em ||
		b != es) { //nolint:errorlint // sentinels
		return fmt.Errorf("the model's error is %v, the store's %v", em, es)
	}
	if m != s {
		return fmt.Errorf("\n  model %s\n  store %s", m, s)
	}
	return nil
}

// oneOf picks one of several values.
func oneOf[T any](w *walk, of ...T) T { return of[w.r.IntN(len(of))] }

func (w *walk) bucketName() string { return oneOf(w, w.buckets...) }

func (w *walk) key() string {
	return oneOf(w, "a", "a/", "a/b", "a//b", "\x00", "\xff\xff", "../x", "a\x00", "😀", strings.Repeat("k", object.MaxKey),
		"b", "b/1", "b/2")
}

// data makes content: mostly little, now and then beyond a block.
func (w *walk) data() []byte {
	n := 0
	if w.most > 0 {
		return Bytes(w.r.Uint64N(50), w.r.IntN(oneOf(w, w.most, 100, 1)+1))
	}
	switch w.r.IntN(20) {
	case 0:
		n = 1<<20 + w.r.IntN(3) - 1
	case 1, 2, 3:
		n = w.r.IntN(200_000)
	case 4, 5:
		n = 16384 + w.r.IntN(3) - 1
	case 6, 7:
		if len(w.target.Sizes) > 0 {
			n = max(0, oneOf(w, w.target.Sizes...)+w.r.IntN(3)-1)
		}
	case 8:
	default:
		n = w.r.IntN(100)
	}
	return Bytes(w.r.Uint64N(50), n)
}

// attributesOf makes a few attributes, or none.
func (w *walk) attributesOf() map[string]string {
	out := map[string]string{}
	for range w.r.IntN(3) {
		out[oneOf(w, "x", "y", "\x00")] = fmt.Sprint(w.r.IntN(5))
	}
	return out
}

// condition makes a condition that often holds, and more often there is none.
func (w *walk) condition(bucket, key string) object.Condition {
	if w.r.IntN(4) > 0 {
		return object.Condition{}
	}
	i, _ := w.m.Stat(w.ctx, object.Ref{Bucket: bucket, Key: key})
	size := i.Size + w.r.Int64N(2)
	etag := i.ETag
	if etag == "" {
		etag = "0123"
	}
	return oneOf(w, object.Condition{IfMatch: "*"}, object.Condition{IfMatch: etag}, object.Condition{IfMatch: "0123"},
		object.Condition{IfNoneMatch: "*"}, object.Condition{IfNoneMatch: etag}, object.Condition{IfNoneMatch: "0123"},
		object.Condition{IfSize: &size})
}

// version picks a version of a key: none, one that exists, or one that does not. It returns the model's identifier and
// the store's.
func (w *walk) version(bucket, key string) (m, s string) {
	switch w.r.IntN(6) {
	case 0, 1:
		p, err := w.m.List(w.ctx, object.List{Bucket: bucket, Prefix: key, Versions: true})
		if err != nil || len(p.Objects) == 0 {
			return "", ""
		}
		v := oneOf(w, p.Objects...).Version // of this key, or of one that it is a prefix of
		return v, w.storeVersion(v)
	case 2:
		v := oneOf(w, object.NullVersion, object.NullVersion, "no-such-version")
		return v, v
	}
	return "", ""
}

func (w *walk) storeVersion(v string) string {
	if s, ok := w.versions[v]; ok {
		return s
	}
	return v
}

// made compares what a write returned, and remembers the identifiers.
func (w *walk) made(im, is object.Info, em, es error) error {
	if em == nil && es == nil && im.Versioned() && is.Versioned() {
		w.versions[im.Version] = is.Version
	}
	return differ(em, es, show(im, false), show(is, false))
}

// body makes the body of a write: mostly right, or cut off, going on, failing. It is the same each time it is called.
func (w *walk) body(data []byte) (size int64, body func() io.Reader, finish func() error) {
	size = oneOf(w, int64(len(data)), int64(len(data)), -1)
	body = func() io.Reader { return bytes.NewReader(data) }
	finish = func() error { return nil }
	switch w.r.IntN(20) {
	case 0:
		size = int64(len(data)) + 1
	case 1:
		size = int64(len(data)) / 2
	case 2:
		body = func() io.Reader { return thenFails(data, errMine) }
	case 3:
		finish = func() error { return errMine }
	}
	return size, body, finish
}

func (w *walk) put() error {
	p := object.Put{Bucket: w.bucketName(), Key: w.key(), Attributes: w.attributesOf(), MD5: w.r.IntN(2) == 0}
	p.Condition = w.condition(p.Bucket, p.Key)
	data := w.data()
	size, body, finish := w.body(data)
	p.Size = size
	p.Finish = func(wr object.Written) (map[string]string, error) {
		return map[string]string{"crc": fmt.Sprint(wr.CRC64)}, finish()
	}
	w.note("put %q %q, %d bytes announced as %d, %+v", p.Bucket, p.Key, len(data), size, p.Condition)
	p.Body = body()
	im, em := w.m.Put(w.ctx, p)
	p.Body = body()
	is, es := w.s.Put(w.ctx, p)
	return w.made(im, is, em, es)
}

func (w *walk) read() error {
	b, k := w.bucketName(), w.key()
	vm, vs := w.version(b, k)
	w.note("read %q %q %q", b, k, vm)
	im, em := w.m.Stat(w.ctx, object.Ref{Bucket: b, Key: k, Version: vm})
	is, es := w.s.Stat(w.ctx, object.Ref{Bucket: b, Key: k, Version: vs})
	if err := differ(em, es, show(im, false), show(is, false)); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	cm, em := w.m.Open(w.ctx, object.Ref{Bucket: b, Key: k, Version: vm})
	cs, es := w.s.Open(w.ctx, object.Ref{Bucket: b, Key: k, Version: vs})
	if em != nil || es != nil {
		return differ(em, es, "", "")
	}
	defer cs.Close()
	off := w.r.Int64N(im.Size + 1)
	n := w.r.Int64N(im.Size - off + 1)
	for _, r := range []object.Range{{Off: 0, N: im.Size}, {Off: off, N: n}} {
		dm, em := section(cm, r.Off, r.N)
		ds, es := section(cs, r.Off, r.N)
		if err := differ(em, es, brief(dm), brief(ds)); err != nil {
			return fmt.Errorf("section %+v: %w", r, err)
		}
	}
	return nil
}

// deletion makes a deletion for the model and one for the store.
func (w *walk) deletion(bucket string) (m, s object.Deletion) {
	k := w.key()
	vm, vs := w.version(bucket, k)
	c := w.condition(bucket, k)
	return object.Deletion{Ref: object.Ref{Bucket: bucket, Key: k, Version: vm}, Condition: c},
		object.Deletion{Ref: object.Ref{Bucket: bucket, Key: k, Version: vs}, Condition: c}
}

// deleted compares what a deletion did. Of one that did nothing only that counts.
func (w *walk) deleted(dm, ds object.Deleted, em, es error) error {
	if em != nil || es != nil {
		return differ(em, es, "", "")
	}
	if dm.Existed != ds.Existed || dm.Marker != ds.Marker {
		return fmt.Errorf("deleted by the model %+v, by the store %+v", dm, ds)
	}
	if !dm.Existed && !dm.Marker || w.storeVersion(dm.Version) == ds.Version {
		return nil
	}
	if !dm.Marker || dm.Version == object.NullVersion || dm.Version == "" || ds.Version == "" ||
		ds.Version == object.NullVersion {
		return fmt.Errorf("deleted by the model %+v (in the store %q), by the store %+v", dm, w.storeVersion(dm.Version), ds)
	}
	w.versions[dm.Version] = ds.Version // a delete marker that was added
	return nil
}

func (w *walk) remove() error {
	dm, ds := w.deletion(w.bucketName())
	w.note("delete %q %q %q %+v", dm.Bucket, dm.Key, dm.Version, dm.Condition)
	om, em := w.m.Delete(w.ctx, dm)
	os, es := w.s.Delete(w.ctx, ds)
	return w.deleted(om, os, em, es)
}

func (w *walk) removeMany() error {
	b := w.bucketName()
	var ms, ss []object.Deletion
	for range w.r.IntN(6) {
		m, s := w.deletion(b)
		if w.distinct && slices.ContainsFunc(ms, func(d object.Deletion) bool { return d.Key == m.Key }) {
			continue
		}
		ms, ss = append(ms, m), append(ss, s)
	}
	w.note("delete many in %q: %+v", b, ms)
	om, em := w.m.DeleteMany(w.ctx, b, ms)
	os, es := w.s.DeleteMany(w.ctx, b, ss)
	if len(om) != len(os) || len(em) != len(es) {
		return fmt.Errorf("%d results and %d errors, expected %d and %d", len(os), len(es), len(om), len(em))
	}
	for i := range om {
		if err := w.deleted(om[i], os[i], em[i], es[i]); err != nil {
			return fmt.Errorf("deletion %d: %w", i, err)
		}
	}
	return nil
}

func (w *walk) copy() error {
	c := object.Copy{From: object.Ref{Bucket: w.bucketName(), Key: w.key()}, Bucket: w.bucketName(), Key: w.key()}
	if w.r.IntN(4) == 0 {
		c.Bucket, c.Key = c.From.Bucket, c.From.Key
	}
	if w.r.IntN(2) == 0 {
		c.Attributes = w.attributesOf()
	}
	c.Condition, c.FromCondition = w.condition(c.Bucket, c.Key), w.condition(c.From.Bucket, c.From.Key)
	vm, vs := w.version(c.From.Bucket, c.From.Key)
	c.From.Version = vm
	w.note("copy %+v", c)
	im, em := w.m.Copy(w.ctx, c)
	c.From.Version = vs
	is, es := w.s.Copy(w.ctx, c)
	return w.made(im, is, em, es)
}

func (w *walk) attributes() error {
	b, k := w.bucketName(), w.key()
	vm, vs := w.version(b, k)
	as := w.attributesOf()
	w.note("attributes %q %q %q %v", b, k, vm, as)
	set := func(m map[string]string) error {
		delete(m, "x")
		for k, v := range as {
			m[k] = v
		}
		if len(as) == 2 {
			return errMine
		}
		return nil
	}
	em := w.m.SetAttributes(w.ctx, object.Ref{Bucket: b, Key: k, Version: vm}, set)
	es := w.s.SetAttributes(w.ctx, object.Ref{Bucket: b, Key: k, Version: vs}, set)
	if err := differ(em, es, "", ""); err != nil {
		return err
	}
	im, em := w.m.Stat(w.ctx, object.Ref{Bucket: b, Key: k, Version: vm})
	is, es := w.s.Stat(w.ctx, object.Ref{Bucket: b, Key: k, Version: vs})
	return differ(em, es, show(im, false), show(is, false))
}

func (w *walk) list() error {
	l := object.List{Bucket: w.bucketName(), Prefix: oneOf(w, "", "", "a", "a/", "b/", "\xff"),
		Delimiter: oneOf(w, "", "/", "a", "//"),
		Limit:     oneOf(w, 0, 1, 2, 5), Versions: w.r.IntN(2) == 0, Attributes: true}
	if w.r.IntN(3) == 0 {
		l.After = oneOf(w, w.key(), "a", "b/", "a0")
	}
	ls := l
	w.note("list %+v and on", l)
	for range 200 {
		pm, em := w.m.List(w.ctx, l)
		ps, es := w.s.List(w.ctx, ls)
		if err := differ(em, es, showPage(pm), showPage(ps)); err != nil || em != nil {
			return err
		}
		if !pm.Truncated {
			return nil
		}
		l.After, l.AfterVersion = pm.Next, pm.NextVersion
		ls.After, ls.AfterVersion = ps.Next, ps.NextVersion
		if w.storeVersion(pm.NextVersion) != ps.NextVersion {
			return fmt.Errorf("the next page of the model begins after version %q (in the store %q), that of the store after %q",
				pm.NextVersion, w.storeVersion(pm.NextVersion), ps.NextVersion)
		}
	}
	return fmt.Errorf("more than 200 pages of %+v", l)
}

// showPage writes down a page without what only one store knows.
func showPage(p object.Page) string {
	out := fmt.Sprintf("prefixes %q truncated %v next %q", p.Prefixes, p.Truncated, p.Next)
	for _, o := range p.Objects {
		out += "\n    " + show(o, false)
	}
	return out
}
