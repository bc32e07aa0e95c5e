// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// mayBeStale reports whether the rules allow to serve content while the upstream does not answer.
func (b *bucket) mayBeStale(ref object.Ref, k cachefile.Known) bool {
	return b.Rules.NeverChanges(ref.Key) || fixed(ref.Version) || b.s.now().Sub(k.Checked) <= b.Rules.StaleIfError
}

// servable reports whether the wanted range is on the disk and may be served while the upstream does not answer.
func (b *bucket) servable(w *wanted, k cachefile.Known) bool {
	if b.Rules.StaleAfter <= 0 || !b.mayBeStale(w.ref, k) {
		return false
	}
	e, ok := b.s.files.Peek(k.Identity)
	if !ok {
		return false
	}
	defer e.Release()
	r := w.rng
	if r.N < 0 || !w.open {
		r.N = k.Identity.Size // Missing ignores what is behind the end
	}
	return len(e.Missing(r)) == 0
}

// askSoon asks the upstream whether it still has the content of old. If the answer takes longer than Rules.StaleAfter,
// askSoon returns late, and the question goes on: its answer is remembered. While such a question is open, askSoon asks
// no other one and returns late at once.
func (b *bucket) askSoon(ctx context.Context, ref object.Ref, old upstream.About, changes uint64) (a upstream.About,
	late bool, err error) {
	b.mu.Lock()
	overdue := b.overdue > 0
	b.mu.Unlock()
	if overdue {
		return upstream.About{}, true, nil
	}
	type answer struct {
		about upstream.About
		err   error
	}
	got, left := make(chan answer, 1), false // left is protected by b.mu
	asked := b.s.now()
	b.s.running.Go(func() {
		about, err := b.From.Stat(b.s.fetches, ref.Key, ref.Version, old.Identity.ETag)
		got <- answer{about, err}
		b.mu.Lock()
		if left {
			b.overdue--
		}
		tell := left && err == nil
		b.mu.Unlock()
		if tell && about.NotModified {
			about = old
		}
		if tell && !about.Marker && b.plausible(&about) == nil {
			b.records.remember(ref, changes, cachefile.Known{Identity: about.Identity, About: about.Encode(), Checked: asked})
		}
	})
	timer := time.NewTimer(b.Rules.StaleAfter)
	defer timer.Stop()
	select {
	case x := <-got:
		return x.about, false, x.err
	case <-ctx.Done():
		return upstream.About{}, false, errs.Wrap("open", b.name(ref.Key), context.Cause(ctx))
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case x := <-got:
		return x.about, false, x.err
	default:
		left = true
		b.overdue++
		return upstream.About{}, true, nil
	}
}
