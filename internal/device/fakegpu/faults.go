// SPDX-License-Identifier: Apache-2.0

package fakegpu

// CopyToDevice is the name by which Fail and FailingCall refuse a copy to the device, whether the copy comes alone or
// in a batch. The copies of the batch before it are queued.
const CopyToDevice = "copy to device"

// OldDrivers returns the symbols that older drivers lack, by a name for each kind of driver. The newest has no name.
func OldDrivers() map[string][]string {
	return map[string][]string{"": nil, "batches of CUDA 12.8": {"cuMemcpyBatchAsync_v2"},
		"single copies": {"cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync"}}
}

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
