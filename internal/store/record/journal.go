// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// JournalPrefix returns the common prefix of the keys of all journal entries of a consumer.
func JournalPrefix(consumer string) []byte {
	return append(Escape([]byte{KindJournal}, consumer), 0, 1)
}

// JournalKey returns the key of the journal entry of a consumer with this number.
func JournalKey(consumer string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(JournalPrefix(consumer), seq)
}

// SplitJournalKey returns the consumer and the number that JournalKey was called with.
func SplitJournalKey(k []byte) (consumer string, seq uint64, ok bool) {
	if len(k) == 0 || k[0] != KindJournal {
		return "", 0, false
	}
	consumer, rest, ok := Unescape(k[1:])
	if !ok || len(rest) != 8 || consumer == "" {
		return "", 0, false
	}
	return consumer, binary.BigEndian.Uint64(rest), true
}

// The bits of a journal entry's flags.
const (
	journalMarker = 1 << iota
	journalVersioned
	journalFlagsEnd
)

// EncodeJournal returns the record of a journal entry. The key holds the number of the entry.
func EncodeJournal(e *object.JournalEntry) []byte {
	p := make(codec.Encoder, 0, 160+len(e.Key)+len(e.Bucket))
	p.Byte(Format)
	p.Int(e.Time.UnixMilli())
	p.Text(string(e.Kind))
	p.Text(e.Bucket)
	p.Text(e.Owner)
	p.Text(e.Key)
	p.Text(e.Version)
	var flags uint64
	if e.Marker {
		flags |= journalMarker
	}
	if e.Versioned {
		flags |= journalVersioned
	}
	p.Uint(flags)
	p.Int(e.Size)
	p.Text(e.ETag)
	p.Text(e.By.Principal)
	p.Text(e.By.Remote)
	p.Text(e.By.RequestID)
	p.Text(e.By.HostID)
	p.Text(e.By.Agent)
	p.Text(e.Label)
	return p
}

// DecodeJournal decodes a record that EncodeJournal wrote, for the entry with this number.
func DecodeJournal(seq uint64, b []byte) (object.JournalEntry, error) {
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "journal entry"); err != nil {
		return object.JournalEntry{}, err
	}
	e := object.JournalEntry{Seq: seq, Time: Time(t.Int()), Kind: object.ChangeKind(t.Text()), Bucket: t.Text(),
		Owner: t.Text(), Key: t.Text(), Version: t.Text()}
	flags := t.Uint()
	e.Marker, e.Versioned = flags&journalMarker != 0, flags&journalVersioned != 0
	e.Size, e.ETag = t.Int(), t.Text()
	e.By = object.Requester{Principal: t.Text(), Remote: t.Text(), RequestID: t.Text(), HostID: t.Text(), Agent: t.Text()}
	e.Label = t.Text()
	if !t.Done() || flags >= journalFlagsEnd {
		return object.JournalEntry{}, Unreadable("journal entry", b)
	}
	return e, nil
}
