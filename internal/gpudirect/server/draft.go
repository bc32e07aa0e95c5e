// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

// draft is an object that a client is writing.
type draft struct {
	d           object.Drafting
	bucket, key string
	size        atomic.Int64 // the announced size, which the object must not exceed
	grows       bool         // a Move behind the end raises the announced size
	sums        []uint64
	// Bytes on disk when the draft was deleted because it grew too large; 0 if it was not.
	dead atomic.Int64
}

func (d *draft) blocks() int64 { return (d.size.Load() + object.SumBlock - 1) / object.SumBlock }

// create answers a Create: it begins a draft. The returned files are sent with the reply.
func (c *conn) create(ctx context.Context, m *wire.Create) (wire.Message, []*os.File) {
	if e := c.mayCreate(ctx, m); e != nil {
		return e, nil
	}
	var source object.Handle
	if m.Source != 0 {
		h, ok := c.held[m.Source]
		if !ok {
			return noHandle(m.Source), nil
		}
		source = h.Handle
	}
	attributes, e := attributesOf(ctx, c.s.opts.Authorizer, m, source)
	if e != nil {
		return e, nil
	}
	if e := c.reserve(m.Size); e != nil {
		return e, nil
	}
	d, err := c.s.opts.Store.NewDraft(ctx, object.Draft{Bucket: m.Bucket, Key: m.Key, Size: m.Size, Attributes: attributes,
		Condition: object.Condition{IfMatch: unquote(m.IfMatch), IfNoneMatch: unquote(m.IfNoneMatch)},
		Judge:     c.s.opts.Authorizer.JudgeWrite(), Grows: m.Grows, From: source})
	if err != nil {
		c.client.unreserve(m.Size)
		return failure(err), nil
	}
	out := &wire.Created{Path: cut(d.Path(), wire.MaxText), Copied: d.Copied()}
	var files []*os.File
	if files, out.Has, out.Refused, err = descriptions(d.Open, m.Want, nil); err != nil {
		closeAll(files)
		_ = d.Abort() // the reply has the failure itself
		c.client.unreserve(m.Size)
		return failure(err), nil
	}
	out.Handle = c.newHandle()
	made := &draft{d: d, bucket: m.Bucket, key: m.Key, grows: m.Grows}
	made.size.Store(m.Size)
	c.drafts[out.Handle] = made
	c.s.follow(made, c)
	c.s.count.created.Add(1)
	c.trace("draft begun", m.Bucket, m.Key, m.Size)
	c.s.count.drafting(1, m.Size)
	return out, files
}

// attributesOf returns the attributes of a new object: those of the request, or those that the source keeps.
func attributesOf(ctx context.Context, a object.Authorizer, m *wire.Create, source object.Handle) (map[string]string,
	*wire.Error) {
	if source != nil && m.ContentType == "" && len(m.Metadata) == 0 {
		return object.ChangedAttributes(source.Info().Attributes), nil
	}
	about := object.Description{ContentType: m.ContentType}
	if len(m.Metadata) > 0 {
		about.Metadata = make(map[string]string, len(m.Metadata))
		for _, p := range m.Metadata {
			if _, twice := about.Metadata[p.Name]; twice {
				return nil, invalid(wire.CodeInvalidArgument, "give each name once", "the metadata has %q twice", p.Name)
			}
			about.Metadata[p.Name] = p.Value
		}
	}
	attributes, err := a.Describe(ctx, m.Bucket, about)
	if err != nil {
		return nil, failure(err)
	}
	return attributes, nil
}

// mayCreate returns the reason why a Create is refused, or nil. It creates nothing.
func (c *conn) mayCreate(ctx context.Context, m *wire.Create) *wire.Error {
	switch {
	case c.s.draining.Load():
		return draining()
	case m.Want&^(wire.WantBuffered|wire.WantDirect) != 0 || m.Want == 0:
		return badMessage("Create wants %#x, expected a description through (1) or past (2) the page cache, or both", m.Want)
	case m.Size < 0:
		return badMessage("Create has size %d", m.Size)
	case m.Source != 0 && !m.Grows:
		return badMessage("Create has the source %d and does not grow, expected a draft that grows", m.Source)
	case m.IfMatch == `""`: // without its quotes it would be no condition at all
		return failure(object.Fail("create", m.Bucket+"/"+m.Key, object.ErrPrecondition,
			"if match is an empty ETag, which no object has"))
	case c.s.opts.Settings.NoWrites != "":
		return refusal(errs.Unsupported, wire.CodeUnsupported,
			"objects cannot be created through the door here: "+c.s.opts.Settings.NoWrites, "write over the S3 endpoint")
	}
	if e := c.s.device(m.Device); e != nil {
		return e
	}
	return c.mayPut(ctx, m.Bucket, m.Key)
}

// mayPut returns the reason why the client may not write an object, or nil.
func (c *conn) mayPut(ctx context.Context, bucket, key string) *wire.Error {
	err := c.s.opts.Authorizer.Authorize(ctx, object.Access{Account: c.account, Action: object.ActionPut, Bucket: bucket,
		Key: key})
	if err != nil {
		return denied(err)
	}
	return nil
}

// reserve counts a new draft against the limits of its access key.
func (c *conn) reserve(size int64) *wire.Error {
	l := &c.s.opts.Limits
	if size > l.DraftBytes {
		return c.draftTooLarge(size)
	}
	if e := c.takeHandle(); e != nil {
		return e
	}
	if c.client.drafts.Add(size) > l.DraftBytes {
		c.client.unreserve(size)
		return c.draftTooLarge(size)
	}
	return nil
}

func (c *conn) draftTooLarge(size int64) *wire.Error {
	return invalid(wire.CodeTooLarge, "commit or abort others first, or raise gpudirect.max_draft_bytes",
		"%d bytes more would make more than the %d that all drafts of an access key may have", size,
		c.s.opts.Limits.DraftBytes)
}

func (cl *client) unreserve(size int64) {
	cl.handles.Add(-1)
	cl.drafts.Add(-size)
}

// forget removes a draft that was committed or aborted from the connection's drafts and from the counters.
func (c *conn) forget(id uint64, d *draft) {
	delete(c.drafts, id)
	c.s.bury(d, c.client)
	c.s.count.drafting(-1, -d.size.Load())
}

// grow raises the announced size of a draft to hold a range, and counts the difference for the access key.
func (d *draft) grow(ctx context.Context, c *conn, r wire.Range) *wire.Error {
	if r.Off < 0 || r.N < 0 || r.Off > math.MaxInt64-r.N {
		return c.within(r, d.size.Load())
	}
	more := r.Off + r.N - d.size.Load()
	if more <= 0 || !d.grows {
		return nil
	}
	if c.client.drafts.Add(more) > c.s.opts.Limits.DraftBytes {
		c.client.drafts.Add(-more)
		return c.draftTooLarge(more)
	}
	if err := d.d.Grow(ctx, r.Off+r.N); err != nil {
		c.client.drafts.Add(-more)
		return failure(err)
	}
	d.size.Add(more)
	c.s.count.drafting(0, more)
	return nil
}

// addSums stores block checksums that a client sends before Commit.
func (c *conn) addSums(m *wire.AddSums) wire.Message {
	d, ok := c.drafts[m.Handle]
	if !ok {
		return noHandle(m.Handle)
	}
	if e := d.follows(m.First, m.Sums); e != nil {
		return e
	}
	d.sums = append(d.sums, m.Sums...)
	return &wire.Ack{}
}

// follows refuses checksums that do not continue the stored ones, or that exceed the draft's number of blocks.
func (d *draft) follows(first int64, sums []uint64) *wire.Error {
	have := int64(len(d.sums))
	switch {
	case first != have:
		return invalid(wire.CodeBadSums, "send the sums in order, each once", "sums come from block %d on, expected block %d",
			first, have)
	case have+int64(len(sums)) > d.blocks():
		return invalid(wire.CodeBadSums, "send one sum for each MiB", "%d sums are too many, the draft has %d blocks",
			have+int64(len(sums)), d.blocks())
	}
	return nil
}

// commit answers a Commit: it publishes a draft. If the client can try again, the draft stays as it was.
func (c *conn) commit(ctx context.Context, m *wire.Commit) wire.Message {
	d, ok := c.drafts[m.Handle]
	if !ok {
		return noHandle(m.Handle)
	}
	if d.dead.Load() != 0 {
		c.giveUp(m.Handle, d)
		return outgrown(d)
	}
	if most := d.size.Load(); m.Size < 0 || m.Size > most {
		c.giveUp(m.Handle, d)
		return invalid(wire.CodeInvalidRange, "commit at most what was asked for",
			"%d bytes are to be committed of a draft of %d", m.Size, most)
	}
	if e := d.follows(m.First, m.Sums); e != nil {
		return e
	}
	if e := believable(m.Reports); e != nil {
		c.giveUp(m.Handle, d)
		return e
	}
	// The client may have lost its permission since Create, because a draft may stay open for long.
	if e := c.mayPut(ctx, d.bucket, d.key); e != nil {
		c.giveUp(m.Handle, d)
		return e
	}
	sums := append(d.sums[:len(d.sums):len(d.sums)], m.Sums...)
	ctx = object.WithRequester(ctx, object.Requester{Principal: c.account, Agent: "gpudirect"})
	info, err := d.d.Commit(ctx, object.Sealed{Size: m.Size, CRC64: m.CRC64, Sums: sums})
	if errors.Is(err, object.ErrWriterLeft) || errors.Is(err, object.ErrInvalidSums) {
		return failure(err)
	}
	c.s.count.add(m.Reports) // once, even if the client tried several times
	if err != nil {
		c.giveUp(m.Handle, d) // the reply has the failure itself
		if d.dead.Load() != 0 {
			return outgrown(d)
		}
		return failure(err)
	}
	c.forget(m.Handle, d)
	c.s.count.committed.Add(1)
	observe(c, Event{Bucket: d.bucket, Key: d.key, Objects: 1, Committed: true}, m.Reports)
	c.trace("committed", d.bucket, d.key, m.Size)
	return &wire.Committed{ETag: info.ETag, Modified: info.Modified, Version: versionOf(&info)}
}

// dropDraft deletes a draft and removes it from the connection's drafts.
func (c *conn) dropDraft(id uint64, d *draft) error {
	c.s.count.aborted.Add(1)
	err := d.d.Abort()
	c.forget(id, d)
	return err
}

// giveUp deletes a draft that cannot be committed any more. It logs a failure to delete.
func (c *conn) giveUp(id uint64, d *draft) {
	if err := c.dropDraft(id, d); err != nil {
		c.s.opts.Log.Error("removing a draft failed", "bucket", d.bucket, "key", d.key, "file", d.d.Path(), "error", err)
	}
}

// abort answers an Abort.
func (c *conn) abort(m *wire.Abort) wire.Message {
	d, ok := c.drafts[m.Handle]
	if !ok {
		return noHandle(m.Handle)
	}
	if err := c.dropDraft(m.Handle, d); err != nil {
		return failure(fmt.Errorf("abort the draft of %s/%s: %w", d.bucket, d.key, err))
	}
	return &wire.Ack{}
}

// unquote removes the quotes that HTTP puts around an ETag.
func unquote(etag string) string {
	if len(etag) >= 2 && strings.HasPrefix(etag, `"`) && strings.HasSuffix(etag, `"`) {
		return etag[1 : len(etag)-1]
	}
	return etag
}
