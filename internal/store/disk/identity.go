// SPDX-License-Identifier: Apache-2.0

package disk

import "fmt"

// ID is the store's identity: made with it, and the same for as long as it exists.
func (s *Store) ID() string { return s.uuid }

// testimony returns what the witness says of the metadata. It is found by the UUID of FORMAT, or by that of EPOCH where
// FORMAT is missing or damaged. Without a witness, a log that was cut short looks whole, so that this is warned of.
func (v *salvage) testimony(s *Store) testimony {
	format, _ := readNote(v.fs, v.fs.PathJoin(v.from, formatName))
	t, err := s.witnessed()
	if err == nil && (t.known || format != nil && !t.gone) { // or the store is one of an older version, which has none
		return t
	}
	why := "both copies of the witness are missing or damaged"
	switch {
	case err != nil:
		why = err.Error()
	case format == nil:
		why = formatName + " is missing"
	}
	if epoch, _ := s.readEpoch(); epoch["uuid"] != "" {
		state, whole, err := readReach(v.fs, v.from, epoch["uuid"])
		if err == nil && whole.count() > 0 {
			if t.short, err = s.compare(state); err == nil {
				t.known, t.gone = true, false
				return t
			}
		}
	}
	v.blind = true
	v.warn("nothing proves that the newest log of the metadata is whole (%s): the last changes may be lost, and what they "+
		"deleted or overwrote may be there again, and is marked as doubtful", why)
	return t
}

// uuid is that of the old store, so that its identifiers of versions stay; a new one where it is lost. FORMAT, EPOCH and
// the metadata have it. If they differ, the one that two of them have is right.
func (v *salvage) uuid() string {
	votes := map[string]int{}
	var first string
	claim := func(where, uuid string) string {
		if uuid == "" {
			return ""
		}
		if votes[uuid]++; first == "" || votes[uuid] > votes[first] || votes[uuid] == votes[first] && !wellFormedUUID(first) {
			first = uuid
		}
		return fmt.Sprintf(", %s has %q", where, uuid)
	}
	var said string
	for _, name := range []string{formatName, epochName} {
		n, _ := readNote(v.fs, v.fs.PathJoin(v.from, name)) // what cannot be read says nothing
		said += claim(name, n["uuid"])
	}
	if b, state := v.view.get(metaKey("uuid")); state == changeSet {
		said += claim("the metadata", string(b))
	}
	switch {
	case first == "":
		v.warn("the UUID of the store is lost: identifiers of versions and uploads that clients know are void")
		return newUUID()
	case len(votes) > 1:
		v.warn("the UUID of the store is not the same everywhere%s: %s was taken; with another one, identifiers of versions "+
			"and uploads that clients know are void", said, first)
	}
	return first
}
