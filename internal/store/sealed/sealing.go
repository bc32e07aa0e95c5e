// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/seal"
)

// sealing encrypts the content of one write, an object or a part, while the store below reads it.
type sealing struct {
	v   *envelope
	r   *seal.Reader // the encrypted content
	err error        // why the content before encryption is unknown; set by plain
}

// sealedSize returns the size of encrypted content from its size before encryption. An unknown size stays unknown.
func sealedSize(size int64) int64 {
	if size < 0 {
		return size
	}
	return seal.Size(size)
}

// plain describes the content before encryption, when all of it was read.
func (s *sealing) plain() (w object.Written) {
	w, s.err = s.v.written(s.r)
	return w
}

// finish returns the hook that is called after the last byte of the write. It calls the hook of the caller, which may
// be nil, and then add, which adds the attributes of the encryption.
func (s *sealing) finish(op, key string, hook func(object.Written) (map[string]string, error),
	add func(of object.Written, attrs map[string]string) error) func(object.Written) (map[string]string, error) {
	return func(w object.Written) (map[string]string, error) {
		if s.err != nil {
			return nil, s.err
		}
		attrs, err := object.FinishAttributes(op, key, nil, hook, w)
		if err != nil {
			return nil, err
		}
		if err := add(w, attrs); err != nil {
			return nil, err
		}
		return attrs, nil
	}
}
