// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/base32"
	"encoding/binary"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Names converts sequences to the identifiers that clients see, and back. An identifier has 16 bytes, written in 26
// characters that sort as the bytes do. The first 8 bytes of an identifier are a random nonce. The last 8 bytes of an
// identifier are the sequence, hidden by the nonce and a secret of the store.
type Names struct{ secret uint64 }

// Raw returns the 16 bytes of a sequence's identifier; nonce makes the identifier hard to guess.
func (n Names) Raw(nonce, seq uint64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], nonce)
	binary.BigEndian.PutUint64(id[8:], seq^mix(nonce^n.secret))
	return id
}

// Split returns the nonce and the sequence of an identifier that Raw made.
func (n Names) Split(id [16]byte) (nonce, seq uint64) {
	nonce = binary.BigEndian.Uint64(id[:])
	return nonce, binary.BigEndian.Uint64(id[8:]) ^ mix(nonce^n.secret)
}

// Text returns the identifier of a sequence in the 26 characters that clients see.
func (n Names) Text(nonce, seq uint64) string {
	id := n.Raw(nonce, seq)
	return Crockford.EncodeToString(id[:])
}

// Version returns the version identifier of v that clients see.
func (n Names) Version(v *Version) string {
	if v.Null() {
		return object.NullVersion
	}
	return n.Text(v.Nonce, v.Seq)
}

// Crockford encodes the 16 bytes of an identifier in 26 characters that sort as the bytes do.
var Crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// ParseName decodes the 26 characters of an identifier. ParseName returns false for a text that is no identifier.
func ParseName(s string) (id [16]byte, ok bool) {
	if len(s) != 26 {
		return id, false
	}
	var b [17]byte
	k, err := Crockford.Decode(b[:], []byte(s))
	if err != nil || k != 16 || Crockford.EncodeToString(b[:16]) != s {
		return id, false
	}
	copy(id[:], b[:])
	return id, true
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// NamesOf returns the Names of the store with this UUID.
func NamesOf(uuid string) Names {
	var secret uint64
	for _, c := range []byte(uuid) {
		secret = mix(secret + uint64(c))
	}
	return Names{secret}
}
