// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// seal creates the witness for the metadata of a restored or salvaged store, as a clean close would leave it. So
// damage to the log is noticed from the moment when the directory becomes a store, even before the first start. seal
// returns when everything is durable. The directory has no FORMAT yet, so nobody else can open it.
func seal(f vfs.FS, dir, uuid string) error {
	meta := f.PathJoin(dir, layout.MetaName)
	guard := New(f, meta, nil)
	settings := metadb.Settings{Memory: metadb.ToolMemory, MemTable: metadb.MaxMemTable, BlobAge: metadb.BlobAge}
	db, err := guard.OpenDB(meta, metadb.Options(guard, settings, false, Logger{guard}, func(error) {}))
	if err != nil {
		return layout.WrapIO("seal store", meta, err)
	}
	err = guard.writeSeal(db, dir, uuid)
	if e := guard.CloseDB(db, dir); err == nil {
		err = e
	}
	if e := guard.Witness.Close(err == nil); err == nil {
		err = layout.WrapIO("seal store", dir, e)
	}
	return err
}

// writeSeal starts the witness and records a clean end.
func (f *Fence) writeSeal(db *pebble.DB, dir, uuid string) error {
	if err := f.Witness.Start(dir, uuid); err != nil {
		return err
	}
	f.Arm()
	epoch, err := metadb.GetNumber(db, record.MetaKey("epoch"), 1)
	if err != nil {
		return err
	}
	next, err := metadb.GetNumber(db, record.MetaKey("sequences"), 1)
	if err != nil {
		return err
	}
	return f.NoteEnd(db, CleanEnd{Dir: dir, UUID: uuid, Epoch: max(1, epoch), Next: next})
}

// CleanEnd is the state that is recorded when a store is closed cleanly.
type CleanEnd struct {
	Dir   string // directory of the store
	UUID  string
	Epoch uint64
	Next  uint64 // the sequence number that the store assigns next
}

// NoteEnd records a clean close of the store in the metadata, and then in the file EPOCH.
func (f *Fence) NoteEnd(db *pebble.DB, e CleanEnd) error {
	b := db.NewBatch()
	if err := b.Set(record.MetaKey("epoch"), binary.BigEndian.AppendUint64(nil, e.Epoch), nil); err != nil {
		return err
	}
	if err := b.Set(record.MetaKey("closed"), binary.BigEndian.AppendUint64(nil, e.Next), nil); err != nil {
		return err
	}
	if err := f.Apply(db, "close store", e.Dir, b, nil); err != nil {
		return err
	}
	return layout.WriteEpoch(f.FS, e.Dir, e.UUID, layout.Epoch{Number: e.Epoch, Closed: true, Next: e.Next})
}

// FinishPartial turns a restored or salvaged directory into a store. FinishPartial first writes the witness (the files
// that record how far the metadata is durable), and then the file FORMAT. Nobody may have the metadata open while
// FinishPartial runs.
func FinishPartial(f vfs.FS, dir, uuid string) error {
	if err := seal(f, dir, uuid); err != nil {
		return err
	}
	if err := layout.WriteNote(f, dir, layout.FormatName, layout.FormatNote(uuid, true)); err != nil {
		return err
	}
	return f.Remove(f.PathJoin(dir, layout.PartialName)) // where FORMAT is, nobody looks at it
}
