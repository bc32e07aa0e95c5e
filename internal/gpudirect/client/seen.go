// SPDX-License-Identifier: Apache-2.0

package client

import (
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// seen reports whether an object was read recently. The sign is that the first page of its file is in the page cache.
// Every process of the host sees this sign, and the kernel evicts the page when memory is short. An object that is
// read a second time is read through the page cache and stays there. The file was opened a moment ago, and the opening
// has usually asked already.
func seen(f *vfs.File) bool {
	if f.Remote() != nil {
		return false
	}
	if r, known := vfs.ResidencyAtOpen(f, 0, 1); known {
		return r.Cached > 0
	}
	return firstCached(f)
}

// firstCached asks the kernel whether the first page of a file is in the page cache.
func firstCached(f *vfs.File) bool {
	r, err := f.Residency(0, 1)
	return err == nil && r.Cached > 0
}

// remember brings the first page of a file into the page cache after an O_DIRECT read, as the sign for seen.
func remember(f *vfs.File, cache report.CachePolicy, r *report.Report) {
	if cache != report.CacheAuto || f.Remote() != nil || f.Size() == 0 {
		return
	}
	for _, route := range r.Routes {
		if route.Route == report.RouteTakenDirect || route.Route == report.RouteTakenDirectUnproven {
			if firstCached(f) {
				return
			}
			var first [1]byte
			f.ExpectRandom(true) // no read-ahead
			_, _ = f.ReadAt(first[:], 0)
			f.ExpectRandom(false)
			return
		}
	}
}
