// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// NewKey returns a random key of KeySize bytes.
func NewKey() []byte { return Random(KeySize) }

// Random returns n random bytes.
func Random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: the program ends if the system has no random numbers
	return b
}

// Wrapper encrypts small secrets, such as data keys, under one key. A Wrapper is safe for concurrent use.
type Wrapper struct{ aead cipher.AEAD }

// NewWrapper returns the Wrapper of a key, which must have KeySize bytes.
func NewWrapper(key []byte) (*Wrapper, error) {
	derived, err := Derive(key, nil, "wrap")
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(derived)
	return &Wrapper{aead}, err
}

// Wrap encrypts a secret. Unwrap returns the secret only for the same bound texts. A random nonce begins the result;
// one key may wrap 2^32 secrets.
func (w *Wrapper) Wrap(secret []byte, bound ...string) []byte {
	n := Random(w.aead.NonceSize())
	return w.aead.Seal(n, n, secret, join(bound))
}

// Unwrap decrypts a secret that Wrap encrypted. Unwrap fails with kind Corrupt if the key or a bound text is another
// one, or if the wrapped bytes were changed.
func (w *Wrapper) Unwrap(wrapped []byte, bound ...string) ([]byte, error) {
	k := w.aead.NonceSize()
	if len(wrapped) < k {
		return nil, errs.New(errs.Corrupt, "unwrap key", "", fmt.Sprintf("%d bytes, expected more than %d", len(wrapped), k))
	}
	secret, err := w.aead.Open(nil, wrapped[:k], wrapped[k:], join(bound))
	if err != nil {
		return nil, errs.New(errs.Corrupt, "unwrap key", "",
			"the wrapped key is not authentic, or belongs to another object or key")
	}
	return secret, nil
}

// join makes one text of several. Lengths keep ("a", "bc") apart from ("ab", "c").
func join(texts []string) []byte {
	var b []byte
	for _, t := range texts {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = append(b, t...)
	}
	return b
}
