// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
)

// firstDirectFeature is the first bit of Properties.Features that means a direct route. The four lower bits mean
// routing, batches, streams and parallel I/O.
const firstDirectFeature = 4

// compatOnly reports whether compatibility mode is the only route of the open driver. This is so if nvidia-fs is
// absent, no file system or disk has a direct route, and P2PDMA is off. If a property cannot be read, the result is
// false.
func (l *Library) compatOnly() bool {
	p, err := l.Properties()
	if err != nil || p.NVFSMajor != 0 || p.NVFSMinor != 0 || p.Status != 0 || p.Features>>firstDirectFeature != 0 {
		return false
	}
	p2p, err := l.BoolParameter("use_pci_p2pdma")
	return err == nil && !p2p
}

// ownCounts counts the operations of one session in place of the library.
//
// With libcufile 1.15 in compatibility mode, some processes crashed on a thread of the library after its statistics
// had been started. If compatibility mode is the only route, the statistics are not needed, because each successful
// operation went through host memory. A nil *ownCounts counts nothing.
type ownCounts struct {
	mu  sync.Mutex
	now device.DirectCounters // the operations since the session was opened
}

func newOwnCounts() *ownCounts {
	return &ownCounts{now: device.DirectCounters{Known: true, CountedBy: device.CountedByNebulaIO}}
}

// counters returns the operations counted since the session was opened.
func (o *ownCounts) counters() device.DirectCounters {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

// moved counts one read or write that ended with n bytes or with err.
func (o *ownCounts) moved(write bool, n int64, err error) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ops, bytes := &o.now.Reads, &o.now.ReadBytes
	if write {
		ops, bytes = &o.now.Writes, &o.now.WriteBytes
	}
	ended(ops, bytes, n, err)
}

// batched counts one request of a batch that ended with n bytes or with err.
func (o *ownCounts) batched(n int64, err error) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ended(&o.now.Batch, &o.now.BatchBytes, n, err)
}

// ended adds one operation. A failed operation has no route.
func ended(ops *device.RouteOps, bytes *int64, n int64, err error) {
	ops.Total++
	if err != nil {
		ops.Errors++
		return
	}
	ops.Posix++
	*bytes += n
}

// queuedOps holds the stream operations of one file that are not counted yet. The map's value is true for a write.
type queuedOps struct {
	mu  sync.Mutex
	ops map[*StreamOp]bool
}

func (q *queuedOps) add(op *StreamOp, write bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ops == nil {
		q.ops = map[*StreamOp]bool{}
	}
	q.ops[op] = write
}

// take removes an operation. known is false if the operation was removed before.
func (q *queuedOps) take(op *StreamOp) (write, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	write, known = q.ops[op]
	delete(q.ops, op)
	return write, known
}

func (q *queuedOps) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ops = nil
}
