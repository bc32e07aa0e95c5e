// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Known is what another server said last about one key.
type Known struct {
	Identity object.Identity // the current content of the key; not used if Absent is true
	About    []byte          // description by the caller, which package cachefile does not read; at most MaxAbout bytes
	Checked  time.Time       // when the server said it
	Absent   bool            // the server said that there is no such key
}

// MaxAbout is the largest number of bytes of Known.About.
const MaxAbout = 1 << 20

// Pin keeps matching entries from being evicted. Admit makes room for a pinned key without asking the Guard.
type Pin struct {
	Origin  string    // as in object.Identity
	Key     string    // a key, or the first bytes of keys if Prefix is true
	Prefix  bool      // match every key that begins with Key
	Expires time.Time // end of the pin; the zero time means never
}

// MostPins is the largest number of pins of a cache.
const MostPins = 10_000

// matches reports whether the pin is for this key now.
func (p *Pin) matches(origin, key string, now time.Time) bool {
	if p.Origin != origin || !p.Expires.IsZero() && !now.Before(p.Expires) {
		return false
	}
	return p.Key == key || p.Prefix && strings.HasPrefix(key, p.Key)
}

// Match selects entries. The zero Match selects all entries.
type Match struct {
	Origin string // empty: every origin
	Key    string // the first bytes of keys, or the whole key if Exact is true
	Exact  bool
}

// Matches reports whether m selects the entries of this key.
func (m Match) Matches(origin, key string) bool {
	switch {
	case m.Origin != "" && m.Origin != origin:
		return false
	case m.Exact:
		return m.Key == key
	}
	return strings.HasPrefix(key, m.Key)
}

// Info describes one entry.
type Info struct {
	object.Identity
	Bytes      int64     // content bytes of present blocks
	Allocated  int64     // bytes that the present blocks occupy on the disk
	Whole      bool      // whether all blocks are present
	Inline     bool      // whether the content is in the database instead of a file
	Proof      string    // as set by Entry.Proven
	Pinned     bool      // whether a pin keeps the entry from being evicted
	Superseded bool      // whether the upstream has another content for the key now
	Foreign    bool      // as set by Entry.Foreign
	Open       bool      // somebody uses the entry now
	Admitted   time.Time // when the entry was made
	Read       time.Time // last Lookup of the entry, to about a minute after a crash
	File       string    // path of the file; empty if Inline is true
}

// Stats counts what a cache holds and what happened since it was opened.
type Stats struct {
	Capacity  int64 // as in Options
	Bytes     int64 // bytes that present blocks occupy on the disk
	Entries   int64
	Whole     int64 // entries with all blocks
	Pinned    int64 // bytes of entries that a pin matches
	Pending   int64 // bytes that are not durable yet
	Known     int64 // estimate of the number of Known records
	Evicted   int64 // entries that were evicted to make room or by Evict
	Freed     int64 // bytes of evicted entries
	Refused   int64 // calls of Admit that returned false
	Damaged   int64 // blocks that were dropped because they did not match their checksum or could not be read
	Lost      int64 // entries that were dropped because their file was missing or had another length
	Abandoned int64 // blocks that were given up because the disk was full or failed
}

// Progress is how far Verify has come.
type Progress struct {
	Entries, AllEntries int64
	Bytes, AllBytes     int64
	Damaged             int64 // blocks that were dropped so far
}

// Report is the result of Verify.
type Report struct {
	Entries int64    // entries that were read
	Bytes   int64    // bytes that were compared
	Damaged []Damage // dropped blocks; at most MostDamages are listed
	Dropped int64    // number of dropped blocks
	Lost    int64    // entries without a usable file, which were dropped
}

// MostDamages is the largest number of blocks that a Report lists.
const MostDamages = 1000

// Damage is a block that Verify dropped.
type Damage struct {
	object.Identity
	Block int64
	What  string // "checksum", "short" or "unreadable"
}

// Evicted is the result of Evict.
type Evicted struct {
	Entries int64
	Bytes   int64 // bytes on the disk that were freed, or will be freed when the last user of an entry is done
	Pinned  int64 // selected entries that stayed because a pin matches
}
