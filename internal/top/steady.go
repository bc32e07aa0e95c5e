// SPDX-License-Identifier: Apache-2.0

package top

import "github.com/nebulaio/nebulaio/internal/bottleneck"

// steady keeps the shown verdict from flickering. A second is short: a disk that is busy for ten seconds may rest in
// one of them. A new verdict is shown when two samples in a row agree on it.
type steady struct {
	shown, last bottleneck.Verdict
	any         bool
}

// next takes the verdict about the newest sample, and returns the verdict to show. The figures in it are always those
// of the newest sample that supports it.
func (s *steady) next(v bottleneck.Verdict) bottleneck.Verdict {
	if !s.any || same(v, s.last) || same(v, s.shown) {
		s.shown = v
	}
	s.last, s.any = v, true
	return s.shown
}

// same reports whether two verdicts name the same limit. Their figures may differ.
func same(a, b bottleneck.Verdict) bool {
	return a.Bound == b.Bound && a.Cause == b.Cause && a.Resource == b.Resource
}
