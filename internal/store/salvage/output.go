// SPDX-License-Identifier: Apache-2.0

package salvage

import "github.com/cockroachdb/pebble/v2"

// batchSize is the number of bytes of records that are collected before they are written.
const batchSize = 4 << 20

// output is the metadata of the new store.
type output struct {
	db    *pebble.DB
	batch *pebble.Batch
}

// set writes a record. Reads see it after flush.
func (o *output) set(key, value []byte) error {
	if err := o.batch.Set(key, value, nil); err != nil {
		return err
	}
	if o.batch.Len() < batchSize {
		return nil
	}
	return o.flush()
}

// flush makes the written records visible to reads of the new store.
func (o *output) flush() error {
	err := o.db.Apply(o.batch, pebble.NoSync)
	_ = o.batch.Close()
	o.batch = o.db.NewBatch()
	return err
}
