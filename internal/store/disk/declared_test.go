// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/record"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

// declare writes an object through a draft with these sums.
func declare(t *testing.T, s *Store, key string, data []byte, sums []uint64) {
	t.Helper()
	d, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: key, Size: int64(len(data))})
	must(t, err)
	f, err := d.Open(false)
	must(t, err)
	_, err = f.Write(data)
	must(t, err)
	must(t, f.Close())
	_, err = d.Commit(t.Context(), object.Sealed{Size: int64(len(data)),
		CRC64: record.JoinSums(s.join, sums, int64(len(data))), Sums: sums})
	must(t, err)
}

func TestSumsThatAClientDeclaredAreToldApartFromDamage(t *testing.T) {
	s := openReal(t, storetest.Dir(t))
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	data := content1(1<<20+100, 1)
	right := []uint64{checksum.Of(data[:1<<20]), checksum.Of(data[1<<20:])}
	declare(t, s, "right", data, right)
	declare(t, s, "wrong", data, []uint64{right[0] ^ 1, right[1]})
	putBytes(t, s, "b", "put", data)
	var told []string
	s.opts.Events.Damage = func(d object.Damage) { told = append(told, d.Key+" "+d.What) }
	read := func(key string) error {
		c, err := s.Open(t.Context(), object.Ref{Bucket: "b", Key: key})
		must(t, err)
		defer c.Close()
		body, err := c.Section(object.Range{N: int64(len(data))})
		must(t, err)
		defer body.Close()
		_, err = io.Copy(io.Discard, body)
		return err
	}
	if err := read("right"); err != nil || len(told) != 0 {
		t.Errorf("%v, told %v", err, told)
	}
	if err := read("wrong"); !errors.Is(err, object.ErrDamaged) || len(told) != 1 || told[0] != "wrong declared" {
		t.Errorf("%v, told %v", err, told)
	}
	told = nil
	if _, err := s.Copy(t.Context(), object.Copy{From: object.Ref{Bucket: "b", Key: "wrong"}, Bucket: "b",
		Key: "copy"}); !errors.Is(err, object.ErrDamaged) {
		t.Errorf("a copy: %v", err)
	}
	r, err := s.Scrub(t.Context(), ScrubOptions{})
	must(t, err)
	if r.Damaged != 1 || r.Damage[0].What != object.DamageDeclared {
		t.Errorf("%+v", r)
	}
	// The sums of a copy are the server's own: it has compared the content.
	_, err = s.Copy(t.Context(), object.Copy{From: object.Ref{Bucket: "b", Key: "right"}, Bucket: "b", Key: "copy"})
	must(t, err)
	if v := current(t, s, "b", "copy"); v.Wrong("checksum") != "checksum" {
		t.Errorf("flags %x", v.Flags)
	}
	if v := current(t, s, "b", "put"); v.Wrong("checksum") != "checksum" {
		t.Errorf("flags %x", v.Flags)
	}
}
