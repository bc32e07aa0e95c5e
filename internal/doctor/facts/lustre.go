// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Stripe describes how a Lustre file is striped over storage targets.
type Stripe struct {
	Count int   `json:"count"` // number of storage targets of the file's last component
	Size  int64 `json:"size"`  // stripe size in bytes
}

// Magic numbers of Lustre's layout attribute.
const (
	lovV1   = 0x0bd10bd0
	lovV3   = 0x0bd30bd0
	lovComp = 0x0bd60bd0
)

// parseLayout parses the attribute lustre.lov. It returns false if the form is not known. For a file with several
// components, the last initialised one counts, because it has most of the data.
func parseLayout(b []byte) (Stripe, bool) {
	if len(b) < 4 {
		return Stripe{}, false
	}
	if binary.LittleEndian.Uint32(b) != lovComp {
		return plainLayout(b)
	}
	// magic 4, size 4, generation 4, flags 2, entries 2, then padding to 32.
	const header, entry = 32, 48
	if len(b) < header {
		return Stripe{}, false
	}
	var best Stripe
	found := false
	for i := range int(binary.LittleEndian.Uint16(b[14:])) {
		at := header + i*entry
		if at+entry > len(b) {
			break
		}
		// id 4, flags 4, extent 16, offset 4, size 4.
		from := int(binary.LittleEndian.Uint32(b[at+24:]))
		const laidOut = 0x10
		if binary.LittleEndian.Uint32(b[at+4:])&laidOut == 0 || from < 0 || from >= len(b) {
			continue
		}
		if s, ok := plainLayout(b[from:]); ok {
			best, found = s, true
		}
	}
	return best, found
}

func plainLayout(b []byte) (Stripe, bool) {
	// magic 4, pattern 4, object 16, stripe size 4, stripe count 2.
	if len(b) < 30 {
		return Stripe{}, false
	}
	if m := binary.LittleEndian.Uint32(b); m != lovV1 && m != lovV3 {
		return Stripe{}, false
	}
	s := Stripe{Count: int(binary.LittleEndian.Uint16(b[28:])), Size: int64(binary.LittleEndian.Uint32(b[24:]))}
	return s, s.Count > 0 && s.Count < 0xffff && s.Size > 0
}

// stripe asks the file system for a file's striping. It returns nil if the file system is not Lustre or does not
// tell.
func stripe(name string) *Stripe {
	buf := make([]byte, 64<<10)
	n, err := unix.Getxattr(name, "lustre.lov", buf)
	if err != nil || n <= 0 {
		return nil
	}
	if s, ok := parseLayout(buf[:min(n, len(buf))]); ok {
		return &s
	}
	return nil
}
