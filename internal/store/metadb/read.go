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

// Get reads a value; it returns nil and no error where there is none.
func Get(r pebble.Reader, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, WrapRead("", err)
	}
	c := append(make([]byte, 0, len(v)), v...)
	// A value that could not be fetched from a blob file comes empty, and only the end says why.
	if err := closer.Close(); err != nil {
		return nil, WrapRead("", err)
	}
	return c, nil
}

// GetNumber reads a number of 8 bytes. It returns otherwise where there is none, or none of that length.
func GetNumber(r pebble.Reader, key []byte, otherwise uint64) (uint64, error) {
	b, err := Get(r, key)
	if err != nil || len(b) != 8 {
		return otherwise, err
	}
	return binary.BigEndian.Uint64(b), nil
}

// Has says whether one of the keys exists.
func Has(r pebble.Reader, keys ...[]byte) (bool, error) {
	for _, k := range keys {
		v, err := Get(r, k)
		if v != nil || err != nil {
			return v != nil, err
		}
	}
	return false, nil
}

// Each calls f with every key from from up to to, and its value. Both are Pebble's and must not be kept.
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

// LoadCounts reads what a bucket holds.
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

// LoadSums reads the sums of a version's file.
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

// LoadInline reads content that lies with the metadata; what says what is wrong with it.
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

// ErrStop ends an iteration that looks for anything at all.
var ErrStop = errors.New("found")

// EachKind calls f with every key of a kind and its value, which are Pebble's.
func EachKind(r pebble.Reader, kind byte, f func(k, v []byte) error) error {
	return Each(r, []byte{kind}, []byte{kind + 1}, f)
}
