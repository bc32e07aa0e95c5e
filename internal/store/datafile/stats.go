// SPDX-License-Identifier: Apache-2.0

package datafile

// Stats counts the data files that are in use.
type Stats struct {
	Open     int // files that are open for reading, including cached files without a reader
	Settling int // committed files that are not moved from tmp/ to data/ yet
	Late     int // committed files that could not be moved to data/ yet and are tried again; Settling includes them
	// Held counts the files that exist only because a client has them open: files of removed versions, and files with a
	// copy of inline content. HeldBytes is the size in bytes of the content of the files in Held.
	Held      int
	HeldBytes int64
	// Drafts counts the drafts, which are files that clients are writing. DraftBytes is the disk space that drafts use.
	Drafts     int
	DraftBytes int64
}

// Stats returns the current counts without reading any file.
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
