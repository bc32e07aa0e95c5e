// SPDX-License-Identifier: Apache-2.0

package datafile

// Stats is what the files are up to.
type Stats struct {
	Open     int // files that are open for reading, used or kept
	Settling int // files that are committed and not yet in their places
	Late     int // of these, those that could not be moved and are tried again
	// Held are the files that exist only because somebody was handed them: removed meanwhile, or made for that. HeldBytes
	// are of their content.
	Held      int
	HeldBytes int64
	// Drafts are the files that others write; DraftBytes is what they take of the disk.
	Drafts     int
	DraftBytes int64
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
	st.Held, st.HeldBytes = f.holds.orphans()
	spills, bytes := f.spills.count.Load(), f.spills.bytes.Load()
	st.Held, st.HeldBytes = st.Held+int(spills), st.HeldBytes+bytes
	st.Drafts, st.DraftBytes = f.drafts.reserved()
	return st
}
