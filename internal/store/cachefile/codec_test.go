// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"bytes"
	"math/bits"
	"reflect"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

func someRecord() entryRecord {
	return entryRecord{id: object.Identity{Origin: "https://s3/b/", Key: "k", Version: "v", ETag: "e", Size: 3<<20 + 1},
		superseded: true, proof: "crc64nvme", admitted: time.Unix(1, 2), read: Moment{77, time.Unix(3, 4)}, blocks: 2,
		bytes: 2 << 20, allocated: 2 << 20}
}

// FuzzEntry feeds records of entries to the decoder. What it accepts is encoded to the same record.
func FuzzEntry(f *testing.F) {
	r := someRecord()
	f.Add(r.encode())
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeEntry(b)
		if err != nil {
			return
		}
		if r.blocks > blocksOf(r.id.Size) || r.bytes > r.id.Size || r.id.Size < 0 || r.allocated < 0 {
			t.Fatalf("%+v", r)
		}
		again, err := decodeEntry(r.encode())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v became %+v: %v", r, again, err)
		}
	})
}

// FuzzChunk feeds chunks of sums to the decoder.
func FuzzChunk(f *testing.F) {
	f.Add(encodeChunk(5, []uint64{1, 2, 3}), uint8(3))
	f.Add(encodeChunk(1<<63, make([]uint64, 64)), uint8(64))
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		sums := make([]uint64, min(n, chunkBlocks))
		mask, err := decodeChunk(b, sums)
		if err != nil {
			return
		}
		if bits.Len64(mask) > len(sums) || !bytes.Equal(encodeChunk(mask, sums), b) {
			t.Fatalf("mask %x of %d blocks", mask, n)
		}
	})
}

// FuzzKnown feeds Known records and pins to the decoders.
func FuzzKnown(f *testing.F) {
	f.Add(encodeKnown("o", "k", Known{Identity: object.Identity{Origin: "o", Key: "k", Size: 1}, About: []byte("a")}))
	f.Add(encodeKnown("o", "k", Known{Absent: true, Checked: time.Unix(9, 9)}))
	f.Add(encodePin(Pin{Origin: "o", Key: "k", Prefix: true, Expires: time.Unix(1, 0)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if origin, key, k, err := decodeKnown(b); err == nil {
			o, n, again, err := decodeKnown(encodeKnown(origin, key, k))
			if err != nil || o != origin || n != key || !reflect.DeepEqual(again, k) {
				t.Fatalf("%+v became %+v: %v", k, again, err)
			}
		}
		if p, err := decodePin(b); err == nil {
			if again, err := decodePin(encodePin(p)); err != nil || again != p {
				t.Fatalf("%+v became %+v: %v", p, again, err)
			}
		}
	})
}

// Each record that is cut or extended is refused.
func TestCutRecords(t *testing.T) {
	r := someRecord()
	whole := r.encode()
	if got, err := decodeEntry(whole); err != nil || !reflect.DeepEqual(got, r) {
		t.Fatalf("%+v: %v", got, err)
	}
	for n := range whole {
		if _, err := decodeEntry(whole[:n]); err == nil {
			t.Errorf("accepted the first %d bytes", n)
		}
	}
	if _, err := decodeEntry(append(whole, 0)); err == nil {
		t.Error("accepted one byte more")
	}
}
