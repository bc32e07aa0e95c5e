// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

func journalEntry() object.JournalEntry {
	return object.JournalEntry{Seq: 7, Time: time.UnixMilli(1234).UTC(), Kind: object.ChangeMarker, Bucket: "b",
		Owner: "o", Key: "k\x00", Version: "v", Versioned: true, Marker: true, Size: 9, ETag: "e",
		By: object.Requester{Principal: "p", Remote: "r", RequestID: "i", HostID: "h", Agent: "a"}, Label: "l"}
}

func TestJournalEntriesComeBack(t *testing.T) {
	want := journalEntry()
	if got, err := DecodeJournal(7, EncodeJournal(&want)); err != nil || got != want {
		t.Fatalf("%+v, %v, expected %+v", got, err, want)
	}
	for _, name := range hostileNames[1:] {
		k := JournalKey(name, 42)
		if got, seq, ok := SplitJournalKey(k); !ok || got != name || seq != 42 {
			t.Errorf("%q came back as %q, %d, %v", name, got, seq, ok)
		}
		if bytes.Compare(k, JournalKey(name, 43)) >= 0 {
			t.Errorf("%q: entries are not in order", name)
		}
	}
}

func FuzzDecodeJournal(f *testing.F) {
	e := journalEntry()
	f.Add(EncodeJournal(&e))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := DecodeJournal(7, b)
		if err != nil {
			return
		}
		again, err := DecodeJournal(7, EncodeJournal(&got))
		if err != nil || again != got {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
	})
}
