// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// guards are the abilities that a kind of change needs for its conditions.
type guards struct{ match, noneMatch Ability }

var (
	putGuards      = guards{PutIfMatch, PutIfNoneMatch}
	completeGuards = guards{CompleteIfMatch, CompleteIfNoneMatch}
	copyGuards     = guards{"", CopyIfNoneMatch}
	deleteGuards   = guards{DeleteIfMatch, ""}
)

// condition adds the headers of a condition to a request. It fails with status 501 if the upstream was not proven to
// check the condition, because the change would be made without it.
func (b *Bucket) condition(ctx context.Context, op, name string, h http.Header, c object.Condition, g guards) error {
	if c == (object.Condition{}) {
		return nil
	}
	unproven := func(what string, a Ability) error {
		detail := b.Capabilities().Findings[a].Detail
		if detail != "" {
			detail = " It " + detail + "."
		}
		return cannot(op, name, "The upstream is not proven to check "+what+" for this request."+detail)
	}
	switch {
	case c.IfSize != nil || c.IfModified != nil:
		return unproven("conditions on size or time", "")
	case c.IfMatch == "*":
		return unproven("If-Match: *", "")
	case c.IfNoneMatch != "" && c.IfNoneMatch != "*":
		return unproven("If-None-Match with an ETag", "")
	}
	if c.IfMatch != "" {
		if !b.proven(ctx, g.match) {
			return unproven("If-Match", g.match)
		}
		if b.Capabilities().Has(BareIfMatch) {
			h.Set("If-Match", c.IfMatch)
		} else {
			h.Set("If-Match", `"`+c.IfMatch+`"`)
		}
	}
	if c.IfNoneMatch != "" {
		if !b.proven(ctx, g.noneMatch) {
			return unproven("If-None-Match", g.noneMatch)
		}
		h.Set("If-None-Match", "*")
	}
	return nil
}

// probeAgain is how long after a Probe that failed the next one is tried.
const probeAgain = time.Minute

// proven reports whether the upstream has an ability. If nobody knows, the upstream is probed first.
func (b *Bucket) proven(ctx context.Context, a Ability) bool {
	if a == "" {
		return false
	}
	if _, tried := b.Capabilities().Findings[a]; !tried {
		if b.probed(ctx) != nil {
			return false
		}
	}
	return b.Capabilities().Has(a)
}

// probed probes an upstream that was never probed. It fails only if the upstream does not answer, or if the context has
// ended: an upstream that refuses a probe has no proven abilities.
func (b *Bucket) probed(ctx context.Context) error {
	done := func() bool {
		return !b.Capabilities().Probed.IsZero() || b.now().UnixNano()-b.unprobed.Load() < int64(probeAgain)
	}
	if done() {
		return nil
	}
	select {
	case b.probing <- struct{}{}:
		defer func() { <-b.probing }()
	case <-ctx.Done():
		return cancelled(ctx, "probe", b.origin)
	}
	if done() { // another call has probed in the meantime
		return nil
	}
	err := b.probe(ctx)
	if errors.Is(err, ErrUnavailable) || errs.Is(err, errs.Cancelled) {
		return err
	}
	return nil
}

// judge asks the Judge of a change, and returns the attributes that it adds.
func (t *Through) judge(ctx context.Context, op string, j object.Judge) (map[string]string, error) {
	if j == nil {
		return nil, nil
	}
	settings, err := t.settings(ctx)
	if err != nil {
		return nil, errs.Wrap(op, t.name, err)
	}
	return j(object.Change{Bucket: settings})
}

// uncertain adds to the error of a write without reply that the write may have been done.
func uncertain(op, name string, err error) error {
	return &errs.Error{Kind: errs.KindOf(err), Op: op, Name: name, Err: err,
		Msg: "the reply did not come: the change may have been made or not",
		Fix: fmt.Sprintf("look at %s before the request is repeated", name)}
}
