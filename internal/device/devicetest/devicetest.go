// SPDX-License-Identifier: Apache-2.0

// Package devicetest opens queues, marks and memory of a device for the length of a test.
package devicetest

import (
	"io"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

// Queue opens a queue of d. The queue is closed when the test ends.
func Queue(tb testing.TB, d device.Device) device.Queue {
	tb.Helper()
	q, err := d.NewQueue()
	return closed(tb, q, err)
}

// Mark makes a mark of q. The mark is closed when the test ends.
func Mark(tb testing.TB, q device.Queue) device.Mark {
	tb.Helper()
	m, err := q.NewMark()
	return closed(tb, m, err)
}

// Stamp makes a time stamp of q, which must be a device.Timer. The stamp is closed when the test ends.
func Stamp(tb testing.TB, q device.Queue) device.Stamp {
	tb.Helper()
	s, err := q.(device.Timer).NewStamp()
	return closed(tb, s, err)
}

// Sum makes room for the sums of that many tiles on q, which must be a device.Summer. The room is freed when the
// test ends.
func Sum(tb testing.TB, q device.Queue, tiles int) device.Sum {
	tb.Helper()
	s, err := q.(device.Summer).NewSum(tiles)
	return closed(tb, s, err)
}

// Buffer allocates n bytes on d. The memory is freed when the test ends.
func Buffer(tb testing.TB, d device.Device, n int64) device.Buffer {
	tb.Helper()
	b, err := d.Alloc(n)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { b.Free() })
	return b
}

// HostBytes maps n bytes of host memory that begin at a page. The memory is unmapped when the test ends.
func HostBytes(tb testing.TB, n int64) []byte {
	tb.Helper()
	r, err := hostmem.Map(n)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { r.Unmap() })
	return r.Bytes()[:n]
}

// closed stops the test if err is not nil, and closes c when the test ends. A test may have closed c before, or
// have broken its device on purpose, so an error of Close does not fail the test.
func closed[T io.Closer](tb testing.TB, c T, err error) T {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}
