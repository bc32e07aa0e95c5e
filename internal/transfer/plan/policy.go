// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// File is a file whose page cache can be asked about.
type File interface {
	Size() int64
	// Residency tells what of the n bytes at off is in the page cache.
	Residency(off, n int64) (vfs.Residency, error)
}

// SettlePolicy decides what CacheAuto means for one file. A file that was
// loaded before and is absent again will likely be loaded once more, so it is
// kept this time; one that is partly cached, or that would push out half of
// what memory can hold, is not.
func SettlePolicy(f File, asked report.CachePolicy, seen bool, available func() int64) report.CachePolicy {
	if asked != report.CacheAuto || !seen || !dataAbsent(f) || f.Size() > available()/2 {
		return asked
	}
	return report.CacheKeep
}

// dataAbsent reports whether no sample of the file's data is in the page cache.
func dataAbsent(f File) bool {
	return sampled(f, func(r vfs.Residency, _ int64) bool { return r.Cached == 0 })
}

// Cached reports whether every sample of the file's data is in the page cache.
func Cached(f File) bool {
	return sampled(f, func(r vfs.Residency, n int64) bool { return r.Cached >= n })
}

// sampled looks at samples across the file, but for its first and last megabyte,
// where the header and a ragged end may be cached: asking for all of a large file
// takes longer than many a load. Of a small file all but its ends is one sample.
func sampled(f File, is func(r vfs.Residency, n int64) bool) bool {
	const samples, length = 16, 64 * units.KiB
	margin := min(units.MiB, f.Size()/8)
	span := f.Size() - 2*margin
	if span < samples*length {
		if span <= 0 {
			return false
		}
		r, err := f.Residency(margin, span)
		return err == nil && is(r, span)
	}
	for i := range int64(samples) {
		off := margin + (span-length)*i/(samples-1)
		if r, err := f.Residency(off, length); err != nil || !is(r, length) {
			return false
		}
	}
	return true
}
