// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// EncodeBucket returns the record of the bucket with this number.
func EncodeBucket(id uint64, b *object.Bucket) []byte {
	p := make(codec.Encoder, 0, 128)
	p.Byte(Format)
	p.Uint(id)
	p.Int(b.Created.UnixMilli())
	p.Text(b.Owner)
	p.Text(string(b.Versioning))
	p.Text(string(b.ETag))
	m := make(map[string]string, len(b.Settings))
	for k, v := range b.Settings {
		m[k] = string(v)
	}
	p.Pairs(m)
	return p
}

// DecodeBucket decodes a record that EncodeBucket wrote, and returns the bucket's number and settings.
func DecodeBucket(name string, b []byte) (uint64, *object.Bucket, error) {
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "bucket"); err != nil {
		return 0, nil, err
	}
	id := t.Uint()
	o := &object.Bucket{Name: name, Created: Time(t.Int()), Owner: t.Text(), Versioning: object.Versioning(t.Text()),
		ETag: object.ETagKind(t.Text())}
	m := t.Pairs()
	if !t.Done() {
		return 0, nil, Unreadable("bucket", b)
	}
	if len(m) > 0 {
		o.Settings = make(map[string][]byte, len(m))
		for k, v := range m {
			o.Settings[k] = []byte(v)
		}
	}
	return id, o, nil
}
