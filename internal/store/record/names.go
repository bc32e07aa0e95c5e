// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/base32"
	"encoding/binary"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Names turns sequences into identifiers for clients and back. An identifier
// is 16 bytes in 26 characters whose order is that of the bytes: a random word,
// then the sequence hidden by that word and a secret of the store.
type Names struct{ secret uint64 }

// Raw is the identifier of a sequence; nonce makes it unguessable.
func (n Names) Raw(nonce, seq uint64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], nonce)
	binary.BigEndian.PutUint64(id[8:], seq^mix(nonce^n.secret))
	return id
}

// Split is the reverse of Raw.
func (n Names) Split(id [16]byte) (nonce, seq uint64) {
	nonce = binary.BigEndian.Uint64(id[:])
	return nonce, binary.BigEndian.Uint64(id[8:]) ^ mix(nonce^n.secret)
}

// Text is the identifier of a sequence as clients see it.
func (n Names) Text(nonce, seq uint64) string {
	id := n.Raw(nonce, seq)
	return Crockford.EncodeToString(id[:])
}

// Version is the identifier of v that clients see.
func (n Names) Version(v *Version) string {
	if v.Null() {
		return object.NullVersion
	}
	return n.Text(v.Nonce, v.Seq)
}

// Crockford writes identifiers in 26 characters whose order is that of the bytes.
var Crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// ParseName reads the text of an identifier.
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

// NamesOf makes and reads the identifiers of the store with this UUID.
func NamesOf(uuid string) Names {
	var secret uint64
	for _, c := range []byte(uuid) {
		secret = mix(secret + uint64(c))
	}
	return Names{secret}
}
