// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

// draft is an object that a client writes.
type draft struct {
	d           object.Drafting
	bucket, key string
	size        int64 // at most
	sums        []uint64
	dead        atomic.Int64 // how many bytes it took when it was ended for that; 0: it was not
}

func (d *draft) blocks() int64 { return (d.size + object.SumBlock - 1) / object.SumBlock }

// create begins an object. The files come with the answer.
func (c *conn) create(ctx context.Context, m *wire.Create) (wire.Message, []*os.File) {
	if e := c.mayCreate(ctx, m); e != nil {
		return e, nil
	}
	about := object.Description{ContentType: m.ContentType}
	if len(m.Metadata) > 0 {
		about.Metadata = make(map[string]string, len(m.Metadata))
		for _, p := range m.Metadata {
			if _, twice := about.Metadata[p.Name]; twice {
				return invalid(wire.CodeInvalidArgument, "give each name once", "the metadata has %q twice", p.Name), nil
			}
			about.Metadata[p.Name] = p.Value
		}
	}
	attributes, err := c.s.opts.Authorizer.Describe(ctx, m.Bucket, about)
	if err != nil {
		return failure(err), nil
	}
	if e := c.reserve(m.Size); e != nil {
		return e, nil
	}
	d, err := c.s.opts.Store.NewDraft(ctx, object.Draft{Bucket: m.Bucket, Key: m.Key, Size: m.Size, Attributes: attributes,
		Condition: object.Condition{IfMatch: unquote(m.IfMatch), IfNoneMatch: unquote(m.IfNoneMatch)},
		Judge:     c.s.opts.Authorizer.JudgeWrite()})
	if err != nil {
		c.client.unreserve(m.Size)
		return failure(err), nil
	}
	out := &wire.Created{Handle: c.next, Path: cut(d.Path(), wire.MaxText)}
	var files []*os.File
	if files, out.Has, out.Refused, err = descriptions(d.Open, m.Want, nil); err != nil {
		closeAll(files)
		_ = d.Abort() // the failure itself is told
		c.client.unreserve(m.Size)
		return failure(err), nil
	}
	c.next++
	made := &draft{d: d, bucket: m.Bucket, key: m.Key, size: m.Size}
	c.drafts[out.Handle] = made
	c.s.follow(made, c)
	c.s.count.created.Add(1)
	c.trace("draft begun", m.Bucket, m.Key, m.Size)
	c.s.count.drafting(1, m.Size)
	return out, files
}

// mayCreate judges a Create before anything is made for it.
func (c *conn) mayCreate(ctx context.Context, m *wire.Create) *wire.Error {
	switch {
	case c.s.draining.Load():
		return draining()
	case m.Want&^(wire.WantBuffered|wire.WantDirect) != 0 || m.Want == 0:
		return badMessage("Create wants %#x, expected a description through (1) or past (2) the page cache, or both", m.Want)
	case m.Size < 0:
		return badMessage("Create has size %d", m.Size)
	case m.IfMatch == `""`: // which without its quotes would be no condition at all
		return failure(object.Fail("create", m.Bucket+"/"+m.Key, object.ErrPrecondition, "if match is an empty ETag, which no object has"))
	case c.s.opts.Settings.NoWrites != "":
		return refusal(errs.Unsupported, wire.CodeUnsupported,
			"objects cannot be created through the door here: "+c.s.opts.Settings.NoWrites, "write over the S3 endpoint")
	}
	if e := c.s.device(m.Device); e != nil {
		return e
	}
	if err := c.s.opts.Authorizer.Authorize(ctx,
		object.Access{Account: c.account, Action: object.ActionPut, Bucket: m.Bucket, Key: m.Key}); err != nil {
		return denied(err)
	}
	return nil
}

// reserve counts a new draft against the bounds of its access key.
func (c *conn) reserve(size int64) *wire.Error {
	l := &c.s.opts.Limits
	if size > l.DraftBytes {
		return c.draftTooLarge(size)
	}
	if c.client.handles.Add(1) > int64(l.Handles) {
		c.client.handles.Add(-1)
		return c.tooMany()
	}
	if c.client.drafts.Add(size) > l.DraftBytes {
		c.client.unreserve(size)
		return c.draftTooLarge(size)
	}
	return nil
}

func (c *conn) draftTooLarge(size int64) *wire.Error {
	return invalid(wire.CodeTooLarge, "commit or abort others first, or raise gpudirect.max_draft_bytes",
		"%d bytes more would make more than the %d that all drafts of an access key may have", size, c.s.opts.Limits.DraftBytes)
}

func (cl *client) unreserve(size int64) {
	cl.handles.Add(-1)
	cl.drafts.Add(-size)
}

// forget takes a draft that was committed or aborted off the books.
func (c *conn) forget(id uint64, d *draft) {
	delete(c.drafts, id)
	c.s.bury(d, c.client)
	c.s.count.drafting(-1, -d.size)
}

// addSums takes sums ahead of Commit.
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

// follows says whether sums continue those that are there, and are not more than the draft has blocks.
func (d *draft) follows(first int64, sums []uint64) *wire.Error {
	have := int64(len(d.sums))
	switch {
	case first != have:
		return invalid(wire.CodeBadSums, "send the sums in order, each once", "sums come from block %d on, expected block %d", first, have)
	case have+int64(len(sums)) > d.blocks():
		return invalid(wire.CodeBadSums, "send one sum for each MiB", "%d sums are too many, the draft has %d blocks",
			have+int64(len(sums)), d.blocks())
	}
	return nil
}

// commit publishes a draft. Where it can be tried again, the draft stays as it was.
func (c *conn) commit(ctx context.Context, m *wire.Commit) wire.Message {
	d, ok := c.drafts[m.Handle]
	if !ok {
		return noHandle(m.Handle)
	}
	if d.dead.Load() != 0 {
		c.giveUp(m.Handle, d)
		return outgrown(d)
	}
	if m.Size < 0 || m.Size > d.size {
		c.giveUp(m.Handle, d)
		return invalid(wire.CodeInvalidRange, "commit at most what was asked for",
			"%d bytes are to be committed of a draft of %d", m.Size, d.size)
	}
	if e := d.follows(m.First, m.Sums); e != nil {
		return e
	}
	if e := believable(m.Reports); e != nil {
		c.giveUp(m.Handle, d)
		return e
	}
	// What was allowed when it began may be so no more: a draft lives for as long as its client wants.
	if err := c.s.opts.Authorizer.Authorize(ctx,
		object.Access{Account: c.account, Action: object.ActionPut, Bucket: d.bucket, Key: d.key}); err != nil {
		c.giveUp(m.Handle, d)
		return denied(err)
	}
	sums := append(d.sums[:len(d.sums):len(d.sums)], m.Sums...)
	info, err := d.d.Commit(ctx, object.Sealed{Size: m.Size, CRC64: m.CRC64, Sums: sums})
	if errors.Is(err, object.ErrWriterLeft) || errors.Is(err, object.ErrInvalidSums) {
		return failure(err)
	}
	c.s.count.add(m.Reports) // once, however often it was tried
	if err != nil {
		c.giveUp(m.Handle, d) // the failure itself is told
		if d.dead.Load() != 0 {
			return outgrown(d)
		}
		return failure(err)
	}
	c.forget(m.Handle, d)
	c.s.count.committed.Add(1)
	c.trace("committed", d.bucket, d.key, m.Size)
	out := &wire.Committed{ETag: info.ETag, Modified: info.Modified}
	if info.Versioned() {
		out.Version = info.Version
	}
	return out
}

// giveUp ends a draft that is refused for good, as all are that cannot be tried again.
func (c *conn) giveUp(id uint64, d *draft) {
	c.s.count.aborted.Add(1)
	if err := d.d.Abort(); err != nil {
		c.s.opts.Log.Error("a draft could not be removed", "bucket", d.bucket, "key", d.key, "file", d.d.Path(), "error", err)
	}
	c.forget(id, d)
}

// abort ends a draft.
func (c *conn) abort(m *wire.Abort) wire.Message {
	d, ok := c.drafts[m.Handle]
	if !ok {
		return noHandle(m.Handle)
	}
	c.s.count.aborted.Add(1)
	err := d.d.Abort()
	c.forget(m.Handle, d)
	if err != nil {
		return failure(fmt.Errorf("abort the draft of %s/%s: %w", d.bucket, d.key, err))
	}
	return &wire.Ack{}
}

// unquote takes the quotes off an ETag as HTTP writes it.
func unquote(etag string) string {
	if len(etag) >= 2 && strings.HasPrefix(etag, `"`) && strings.HasSuffix(etag, `"`) {
		return etag[1 : len(etag)-1]
	}
	return etag
}
