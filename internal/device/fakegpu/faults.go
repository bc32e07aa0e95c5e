// SPDX-License-Identifier: Apache-2.0

package fakegpu

// FailingCall returns a function that makes one call of the driver function fn return code, after skip other calls of
// it. Tables of failures hold such functions.
func FailingCall(fn string, skip, code int) func(g *GPU) {
	return func(g *GPU) { g.Fail(fn, skip, 1, code) }
}

// FailingCopy returns a function that calls FailCopy.
func FailingCopy(nth, code int, sticky bool) func(g *GPU) {
	return func(g *GPU) { g.FailCopy(nth, code, sticky) }
}

// FailingStep returns a function that calls FailStep.
func FailingStep(nth, code int, sticky bool) func(g *GPU) {
	return func(g *GPU) { g.FailStep(nth, code, sticky) }
}

// CheckPinned fails the test if a copy came from host memory that is not pinned, or went there.
func (g *GPU) CheckPinned() {
	g.tb.Helper()
	if n := g.Count("pageable_copies"); n != 0 {
		g.tb.Errorf("%d copies came from memory that is not pinned, or went there", n)
	}
}
