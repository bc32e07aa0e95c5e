// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// crowded reports whether the door refused an object because the access key has too many open handles. All processes
// with one access key share the limit, so a batch can meet the limit although its own windows would fit.
func crowded(err error) bool { return err != nil && codeOf(err) == wire.CodeTooManyHandles }

// admit takes a token for a window and opens the window. If admit fails, it closes the window and returns the token.
func (b *batch) admit(ctx context.Context, w *window) error {
	if err := b.token(ctx, b.c.windows); err != nil {
		return err
	}
	err := b.open(ctx, w)
	if err == nil {
		return nil
	}
	w.close()
	d := w.door
	<-b.c.windows // the handles are in the door's post now, so a flush by the next owner of the token closes them
	if crowded(err) && d != nil && w.taken == 0 {
		return b.admitAgain(ctx, w, d)
	}
	return err
}

// admitAgain opens a window again that the door refused for lack of handles. It collects the tokens of the client's
// windows one by one, and tries again with each token that another window gave back. If it has all tokens of windows,
// it also waits for the reads of single objects. Every wait is for a transfer in progress, so every wait ends, and no
// try repeats another one without cause. If the window has no room although nothing else is read by the client,
// admitAgain returns the door's error. Only one window of a client is opened again at a time, because two of them
// would take the room from each other.
func (b *batch) admitAgain(ctx context.Context, w *window, d *door) error {
	c := b.c
	if err := b.token(ctx, c.again); err != nil {
		return err
	}
	defer func() { <-c.again }()
	windows, reads := 0, 0 // tokens that are held here
	free := func() {
		for ; windows > 0; windows-- {
			<-c.windows
		}
		for ; reads > 0; reads-- {
			<-c.reads
		}
	}
	defer free()
	for {
		if err := b.token(ctx, c.windows); err != nil {
			return err
		}
		windows++
		for windows < cap(c.windows) && tryToken(c.windows) {
			windows++
		}
		alone := windows == cap(c.windows)
		for alone && reads < cap(c.reads) {
			if err := b.token(ctx, c.reads); err != nil {
				return err
			}
			reads++
		}
		if err := d.flush(ctx, alone); err != nil {
			return err
		}
		w.door = nil
		err := b.open(ctx, w)
		if err == nil {
			windows-- // the token of the window
			return nil
		}
		w.close()
		if alone || !crowded(err) || w.taken > 0 {
			return err
		}
	}
}

// token waits for a token of the client, or until the context ends.
func (b *batch) token(ctx context.Context, of chan struct{}) error {
	select {
	case of <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errs.Wrap("read", b.m.report.Key, context.Cause(ctx))
	}
}

// tryToken takes a token if one is free, and reports whether it did.
func tryToken(of chan struct{}) bool {
	select {
	case of <- struct{}{}:
		return true
	default:
		return false
	}
}
