// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// A batch is opened and read in windows, with one round trip and one transfer for each window.
const (
	// windowSize is the largest number of objects in a window. It is large enough to hide the round trip. It is small
	// enough that the descriptors of several windows fit a process with a limit of 1024.
	windowSize = 32
	// windowsOpening is the number of windows that are opened at the same time, each over its own connection. Opening
	// a small object takes as long as reading it.
	windowsOpening = 4
	// firstSize is the largest number of objects in each of the windows that are opened first, if later windows
	// overlap with their copies.
	firstSize = 4
	// leastWindows and mostWindows limit the number of windows that are opened or read at the same time. The windows
	// of leastWindows fit a process with a limit of 1024 descriptors.
	leastWindows, mostWindows = 5, 12
	// descriptorsEach is the largest number of descriptors of an object in a window: one that uses the page cache, one
	// with O_DIRECT, and one with the locks by which processes share the reads of a large object (vfs.Interest).
	descriptorsEach = 3
	// windowsOnNetwork is the number of windows that are read over HTTP at the same time.
	windowsOnNetwork = 4
)

// windowsAtOnce returns the number of windows that are opened or read at the same time. The descriptors of all windows
// are at most half of a limit of 1,024 or more: vfs.PoolSize is an eighth of the limit.
func windowsAtOnce() int {
	return min(max(4*vfs.PoolSize()/(descriptorsEach*windowSize), leastWindows), mostWindows)
}

// window is a group of consecutive reads of a batch that one transfer can serve.
type window struct {
	first int
	reads []Read
	dev   device.Device
	files []*vfs.File
	sums  []*checksum.Sums
	segs  []transfer.Segment
	of    []int // for each file, the index of its read
	taken int   // number of reads that are opened or delivered
	door  *door
	late  []int // indices of reads that the door refused because their objects are not cached
	only  []int // indices of the reads to open over HTTP; nil means all
}

// alike reports whether one transfer can serve both reads.
func alike(a, b *Read) bool {
	return a.Device == b.Device && a.Route == b.Route && a.Cache == b.Cache && a.Stream == b.Stream &&
		a.HasStream == b.HasStream && a.NoVerify == b.NoVerify &&
		len(a.Peers) == 0 && len(b.Peers) == 0
}

// windowsOf divides the reads of a batch into windows.
func windowsOf(ctx context.Context, c *Client, rs []Read) ([]*window, error) {
	var windows []*window
	for first := 0; first < len(rs); {
		dev, err := c.device(ctx, rs[first].Device)
		if err != nil {
			return nil, err
		}
		end, most := first+1, min(len(rs), first+sizeOf(dev, len(rs), len(windows)))
		for end < most && alike(&rs[end-1], &rs[end]) {
			end++
		}
		windows = append(windows, &window{first: first, reads: rs[first:end:end], dev: dev})
		first = end
	}
	return windows, nil
}

// sizeOf returns the largest number of objects in a window for a device, by the number of reads of the batch and the
// number of windows before it. The first windows for a GPU are small, so that their copies begin while the next windows
// are opened. A short batch has no next windows, and host memory needs no copies: their windows are large at once,
// because each window costs a round trip and a transfer.
func sizeOf(dev device.Device, reads, before int) int {
	if dev.Info().Kind == device.Host || reads <= 2*windowSize {
		return windowSize
	}
	return min(firstSize<<min(before/windowsOpening*2, 8), windowSize)
}

// add adds a file to the window's transfer.
func (w *window) add(f *vfs.File, i int, r *Read, n int64, sums *checksum.Sums) {
	w.files, w.of, w.sums = append(w.files, f), append(w.of, i), append(w.sums, sums)
	if n > 0 {
		w.segs = append(w.segs, transfer.Segment{File: len(w.files) - 1, Off: r.Off, Len: n, Dst: r.Dst})
	}
}

// beside returns an open file of the window, or nil if the window has none yet.
func (w *window) beside() *vfs.File {
	if len(w.files) == 0 {
		return nil
	}
	return w.files[0]
}

// close closes the files of the window.
func (w *window) close() {
	for _, f := range w.files {
		_ = f.Close() // only read from
	}
	w.files = nil
}
