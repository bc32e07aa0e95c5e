// SPDX-License-Identifier: Apache-2.0

package datafile

// Stats is what the files are up to.
type Stats struct {
	Open     int // files that are open for reading, used or kept
	Settling int // files that are committed and not yet in their places
	Late     int // of these, those that could not be moved and are tried again
}

// Stats costs no I/O.
func (f *Files) Stats() Stats {
	var st Stats
	f.cache.mu.Lock()
	st.Open = len(f.cache.entries)
	f.cache.mu.Unlock()
	f.settler.mu.Lock()
	st.Settling, st.Late = len(f.settler.moving), len(f.settler.late)
	f.settler.mu.Unlock()
	return st
}
