// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// seal gives the metadata of a restored or salvaged store its witness, as a clean close would leave it. So damage to the
// log is noticed from the moment on when the directory becomes a store, also before the first start. It returns when all
// of it is durable. The directory has no FORMAT yet, so nobody else can open it.
func seal(f vfs.FS, dir, uuid string) error {
	s := newStore(Options{Dir: dir, FS: f, Memory: toolMemory, MemTable: maxMemTable, blobAge: blobAge})
	s.uuid = uuid
	meta := f.PathJoin(dir, metaName)
	var err error
	if s.db, err = openDB(meta, dbOptions(s.fence, &s.opts, false, logger{s.fence}, func(error) {}), s.fence); err != nil {
		return wrapIO("seal store", meta, err)
	}
	err = s.writeSeal()
	if e := s.closeDB(); err == nil {
		err = e
	}
	if e := s.fence.reach.close(err == nil); err == nil {
		err = wrapIO("seal store", dir, e)
	}
	return err
}

// writeSeal starts the witness and notes a clean end.
func (s *Store) writeSeal() error {
	if err := s.fence.reach.start(s.opts.Dir, s.uuid); err != nil {
		return err
	}
	s.fence.armed.Store(true)
	s.epoch = 1
	if b, err := get(s.db, metaKey("epoch")); err != nil {
		return err
	} else if len(b) == 8 {
		s.epoch = max(1, binary.BigEndian.Uint64(b))
	}
	next := uint64(1)
	if b, err := get(s.db, s.seqs.key); err != nil {
		return err
	} else if len(b) == 8 {
		next = binary.BigEndian.Uint64(b)
	}
	return s.noteEnd(next)
}
