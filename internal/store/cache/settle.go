// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"slices"

	"github.com/nebulaio/nebulaio/internal/object"
)

// arrive waits until the entry is whole, if all blocks that it does not have are in the memory of flights. arrive
// reports whether the entry is whole.
func (v *version) arrive(ctx context.Context) bool {
	stop := v.wakes(ctx)
	defer stop()
	for {
		if v.entry.Whole() || ctx.Err() != nil || len(v.absent(object.Range{N: v.id.Size})) > 0 {
			return v.entry.Whole()
		}
		v.mu.Lock()
		if len(v.flights) > 0 && !v.entry.Whole() && ctx.Err() == nil {
			v.proved.Wait()
		}
		v.mu.Unlock()
	}
}

// fill waits until the entry is whole or nobody fetches blocks of it any more.
func (v *version) fill(ctx context.Context) {
	stop := v.wakes(ctx)
	defer stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	for !v.entry.Whole() && ctx.Err() == nil && v.broken == nil && (len(v.flights) > 0 || v.b.s.refills.has(v.id)) {
		v.proved.Wait()
	}
}

// settle waits until whole content has been compared. settle fails if the content is wrong. If the upstream does not
// answer, settle returns without a comparison.
func (v *version) settle(ctx context.Context) error {
	stop := v.wakes(ctx)
	defer stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	for tried := false; ; tried = true {
		for v.unsettled() && (len(v.flights) > 0 || v.comparing) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			v.proved.Wait()
		}
		if tried || !v.unsettled() {
			return v.broken
		}
		v.proveLate()
	}
}

// unsettled reports whether the content is whole, and nobody knows whether it is right. The caller holds v.mu.
func (v *version) unsettled() bool {
	return v.broken == nil && v.entry.Whole() && v.entry.Proof() == ""
}

// wakes makes the end of ctx a change that v.proved signals. The caller calls the returned function at the end.
func (v *version) wakes(ctx context.Context) func() bool {
	return context.AfterFunc(ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.proved.Broadcast()
	})
}

// proveLate compares whole content that was never compared: the process ended, or the upstream did not answer, when the
// content became whole. Other readers wait. The caller holds v.mu, which proveLate releases meanwhile.
func (v *version) proveLate() {
	f := &flight{v: v} // without blocks
	v.flights = append(v.flights, f)
	v.mu.Unlock()
	_ = v.conclude("", 0) // sets v.broken
	v.mu.Lock()
	v.flights = slices.DeleteFunc(v.flights, func(g *flight) bool { return g == f })
	v.proved.Broadcast()
}
