// SPDX-License-Identifier: Apache-2.0

package client

import (
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// seen says whether an object was read before, not long ago. The mark is the
// first page of its file in the page cache, which every process of the host sees
// and which goes away when memory is short: what is read again though it is absent is then
// read through the page cache, and stays.
func seen(f *vfs.File) bool {
	if f.Remote() != nil {
		return false
	}
	r, err := f.Residency(0, 1)
	return err == nil && r.Cached > 0
}

// remember leaves that mark behind a read that went past the page cache.
func remember(f *vfs.File, cache report.CachePolicy, r *report.Report) {
	if cache != report.CacheAuto || f.Remote() != nil || f.Size() == 0 || seen(f) {
		return
	}
	for _, route := range r.Routes {
		if route.Route == report.RouteTakenDirect || route.Route == report.RouteTakenDirectUnproven {
			var first [1]byte
			f.ExpectRandom(true) // the page alone
			_, _ = f.ReadAt(first[:], 0)
			f.ExpectRandom(false)
			return
		}
	}
}
