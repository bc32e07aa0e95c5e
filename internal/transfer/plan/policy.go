// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// File is a file that can report its cached pages.
type File interface {
	Size() int64
	// Residency counts the bytes of [off, off+n) that are in the page cache.
	Residency(off, n int64) (vfs.Residency, error)
}

// SettlePolicy returns the cache policy for one file: the policy that the caller asked for, or CacheKeep in place of
// CacheAuto. SettlePolicy chooses CacheKeep for a file that was loaded a short time ago and is no longer cached,
// because such a file will likely be loaded again. SettlePolicy does not choose CacheKeep for a file that is partly
// cached, or larger than half of the available memory.
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

// Cached tests samples of the file's data and reports whether all of them are in the page cache.
func Cached(f File) bool {
	return sampled(f, func(r vfs.Residency, n int64) bool { return r.Cached >= n })
}

// sampled calls is for samples across the file, because asking for all pages of a large file takes too long. It skips
// the first and last megabyte, where the header and an unaligned end may be cached. A small file has one sample,
// without its ends.
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
