// SPDX-License-Identifier: Apache-2.0

package salvage

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/record"
	"github.com/nebulaio/nebulaio/internal/store/witness"
)

// testimony compares the metadata with the witness. The witness is found by the UUID of FORMAT, or by that of EPOCH
// if FORMAT is missing or damaged. Without a witness, a log that was cut short looks complete, so testimony adds a
// warning.
func (v *salvage) testimony(e witness.Examiner) witness.Testimony {
	format, _ := layout.ReadNote(v.fs, v.fs.PathJoin(v.from, layout.FormatName))
	t, err := e.Examine()
	if err == nil && (t.Known || format != nil && !t.Gone) { // or the store is one of an older version, which has none
		return t
	}
	why := "both copies of the witness are missing or damaged"
	switch {
	case err != nil:
		why = err.Error()
	case format == nil:
		why = layout.FormatName + " is missing"
	}
	if epoch, _ := layout.ReadEpoch(v.fs, v.from); epoch["uuid"] != "" {
		state, whole, err := witness.Read(v.fs, v.from, epoch["uuid"])
		if err == nil && whole.Count() > 0 {
			if t.Short, err = e.Compare(state); err == nil {
				t.Known, t.Gone = true, false
				return t
			}
		}
	}
	v.blind = true
	v.warn(
		"nothing proves that the newest log of the metadata is whole (%s): the last changes may be lost, and what they "+
			"deleted or overwrote may be there again, and is marked as doubtful", why)
	return t
}

// uuid returns the UUID of the old store, so that its version identifiers stay valid, or a new one if it is lost.
// FORMAT, EPOCH and the metadata contain the UUID. If they differ, the one that two of them have is right.
func (v *salvage) uuid() string {
	votes := map[string]int{}
	var first string
	claim := func(where, uuid string) string {
		if uuid == "" {
			return ""
		}
		if votes[uuid]++; first == "" || votes[uuid] > votes[first] || votes[uuid] == votes[first] &&
			!layout.IsWellFormedUUID(first) {
			first = uuid
		}
		return fmt.Sprintf(", %s has %q", where, uuid)
	}
	var said string
	for _, name := range []string{layout.FormatName, layout.EpochName} {
		n, _ := layout.ReadNote(v.fs, v.fs.PathJoin(v.from, name)) // what cannot be read says nothing
		said += claim(name, n["uuid"])
	}
	if b, state := v.view.get(record.MetaKey("uuid")); state == changeSet {
		said += claim("the metadata", string(b))
	}
	switch {
	case first == "":
		v.warn("the UUID of the store is lost: identifiers of versions and uploads that clients know are void")
		return layout.NewUUID()
	case len(votes) > 1:
		v.warn("the UUID of the store is not the same everywhere%s: %s was taken; with another one, identifiers of versions "+
			"and uploads that clients know are void", said, first)
	}
	return first
}
