// SPDX-License-Identifier: Apache-2.0

package metadb

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Get returns a copy of the value of a key, or nil without an error if the key does not exist.
func Get(r pebble.Reader, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, WrapRead("", err)
	}
	c := append(make([]byte, 0, len(v)), v...)
	// If a value cannot be read from its blob file, it is empty, and only Close returns the error.
	if err := closer.Close(); err != nil {
		return nil, WrapRead("", err)
	}
	return c, nil
}

// GetNumber returns the value of a key as an 8-byte number. If the key does not exist or its value has another length,
// GetNumber returns the parameter called otherwise.
func GetNumber(r pebble.Reader, key []byte, otherwise uint64) (uint64, error) {
	b, err := Get(r, key)
	if err != nil || len(b) != 8 {
		return otherwise, err
	}
	return binary.BigEndian.Uint64(b), nil
}

// Has reports whether at least one of the keys exists.
func Has(r pebble.Reader, keys ...[]byte) (bool, error) {
	for _, k := range keys {
		v, err := Get(r, k)
		if v != nil || err != nil {
			return v != nil, err
		}
	}
	return false, nil
}

// Each calls the function f with every key from `from` up to, but not including, `to`, and with its value. Pebble owns
// the key and the value, so f must not keep them.
func Each(r pebble.Reader, from, to []byte, f func(k, v []byte) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return WrapRead("", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err == nil {
			err = f(it.Key(), v)
		} else {
			err = WrapRead("", err)
		}
		if err != nil {
			_ = it.Close()
			return err
		}
	}
	return WrapRead("", it.Close())
}

// LoadCounts reads the Counts of a bucket; they are zero if the bucket has none.
func LoadCounts(r pebble.Reader, bucket uint64) (record.Counts, error) {
	b, closer, err := r.Get(record.CountsKey(bucket))
	if errors.Is(err, pebble.ErrNotFound) {
		return record.Counts{}, nil
	}
	if err != nil {
		return record.Counts{}, WrapRead("", err)
	}
	defer func() { _ = closer.Close() }()
	return record.DecodeCounts(b)
}

// LoadSums reads the checksums of the blocks of a version's data file.
func LoadSums(r pebble.Reader, v *record.Version) ([]uint64, error) {
	chunks := record.ChunksOf(v.Size)
	if chunks == 0 {
		return v.Sums, nil
	}
	sums := make([]uint64, 0, min(record.BlocksOf(v.Size), record.SumsPerChunk))
	for i := range chunks {
		b, err := Get(r, record.SumsKey(v.File, uint32(i)))
		if err != nil {
			return nil, err
		}
		var ok bool
		if sums, ok = record.DecodeSums(b, sums); !ok {
			return nil, record.Unreadable("sums", b)
		}
	}
	if int64(len(sums)) != record.BlocksOf(v.Size) {
		return nil, errs.New(errs.Corrupt, "read metadata", datafile.ID(v.File).String(),
			"the sums of the file are not all there")
	}
	return sums, nil
}

// LoadInline reads the inline content of a version. The result called what is "missing", "short" or "checksum" if the
// content is damaged, else "".
func LoadInline(r pebble.Reader, v *record.Version) (b []byte, what string, err error) {
	if v.Size == 0 {
		return nil, "", nil
	}
	if b, err = Get(r, record.DataKey(v.Seq)); err != nil {
		return nil, "", err
	}
	switch {
	case b == nil:
		what = "missing"
	case int64(len(b)) != v.Size:
		what = "short"
	case checksum.Of(b) != v.CRC:
		what = "checksum"
	}
	return b, what, nil
}

// ErrStop is returned by a callback of Each to end the iteration early.
var ErrStop = errors.New("found")

// EachKind calls f with every key of a kind and with its value. Pebble owns the key and the value, so f must not keep
// them.
func EachKind(r pebble.Reader, kind byte, f func(k, v []byte) error) error {
	return Each(r, []byte{kind}, []byte{kind + 1}, f)
}
