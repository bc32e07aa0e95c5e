// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Epoch is the content of the file EPOCH.
type Epoch struct {
	Number uint64 // how often the store was opened
	Closed bool   // whether the last close of the store was clean
	Next   uint64 // the sequence number that the store assigns next; set only if Closed is true
}

// ReadEpoch reads the file EPOCH. ReadEpoch returns a nil Note if the file does not exist. ReadEpoch fails if EPOCH
// is damaged or cannot be read.
func ReadEpoch(f vfs.FS, dir string) (Note, error) {
	path := f.PathJoin(dir, EpochName)
	n, err := ReadNote(f, path)
	if err == nil && n != nil {
		if _, ok := n.Number("epoch"); !ok {
			err = errs.New(errs.Corrupt, "open store", path, fmt.Sprintf("it has epoch %q, expected a number", n["epoch"]))
		}
	}
	if errs.Is(err, errs.Corrupt) {
		err = &errs.Error{Kind: errs.Corrupt, Op: "open store", Name: path, Msg: "the note is damaged", Err: err,
			Fix: "run nebulaio store check --repair, which writes it anew; nothing was changed"}
	}
	return n, err
}

// WriteEpoch replaces the file EPOCH atomically.
func WriteEpoch(f vfs.FS, dir, uuid string, e Epoch) error {
	text := fmt.Sprintf("uuid %s\nepoch %d\nreach 1\n", uuid, e.Number)
	if e.Closed {
		text += fmt.Sprintf("closed %d\n", e.Next)
	}
	return WriteNote(f, dir, EpochName, text)
}
