// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/object"
)

// TestAlignFindsWhatHasArrived: a letter is the content of a version, x is a delete marker and t a change of tags. The
// result names the copy of each change, "-" for none, and how many changes must not be sent any more.
func TestAlignFindsWhatHasArrived(t *testing.T) {
	for _, c := range []struct{ changes, arrived, want string }{
		{"a b x", "", "- - - 0"},
		{"a b x", "a", "1 - - 1"},
		{"a b x", "a b x", "1 2 3 3"},
		{"a x x b", "a x", "1 2 - - 2"},
		{"a a a", "a a", "1 2 - 2"},
		{"a b c", "a c", "1 - 2 3"}, // b was refused for good, or deleted
		{"a t b", "a", "1 - - 1"},
		{"a b", "z", "- - 0"}, // somebody else wrote at the target
	} {
		var changes []object.JournalEntry
		for _, w := range strings.Fields(c.changes) {
			e := object.JournalEntry{Kind: object.ChangePut, ETag: strings.Repeat(fmt.Sprintf("%02x", w[0]), 16)}
			switch w {
			case "x":
				e = object.JournalEntry{Kind: object.ChangeMarker, Marker: true}
			case "t":
				e.Kind = object.ChangeTags
			}
			changes = append(changes, e)
		}
		var arrived []versions.Entry
		for i, w := range strings.Fields(c.arrived) {
			e := versions.Entry{Version: fmt.Sprint(i + 1), Marker: w == "x"}
			if !e.Marker {
				e.ETag = strings.Repeat(fmt.Sprintf("%02x", w[0]), 16)
			}
			arrived = append(arrived, e)
		}
		copies, last := align(changes, arrived)
		var got []string
		for _, id := range copies {
			if id == "" {
				id = "-"
			}
			got = append(got, id)
		}
		if text := strings.Join(append(got, fmt.Sprint(last)), " "); text != c.want {
			t.Errorf("changes %q, arrived %q: %q, expected %q", c.changes, c.arrived, text, c.want)
		}
	}
	all := []versions.Entry{{Version: "1"}, {Version: "2"}, {Version: "3"}}
	for before, want := range map[string]int{"": 3, "1": 2, "3": 0, "gone": 3} {
		if got := len(after(all, before)); got != want {
			t.Errorf("%d versions after %q, expected %d", got, before, want)
		}
	}
}
