// SPDX-License-Identifier: Apache-2.0

package record

import "github.com/nebulaio/nebulaio/internal/object"

// Sealed reports whether the content of v is encrypted. Size, CRC and Sums then describe the encrypted bytes, so that
// checks of the store need no key.
func (v *Version) Sealed() bool { return v.Flags&FlagSealed != 0 }

// Shown returns the size and the checksum of v that clients see: those before encryption.
func (v *Version) Shown() (size int64, crc uint64) {
	if v.Sealed() {
		return v.Plain, v.PlainCRC
	}
	return v.Size, v.CRC
}

// Seal records that the content of v is encrypted, and what it was before.
func (v *Version) Seal(plain object.Written) {
	v.Flags |= FlagSealed
	v.Plain, v.PlainCRC = plain.Size, plain.CRC64
}

// Shown returns the size and the checksum of r that clients see: those before encryption. Sealed reports whether the
// part is encrypted.
func (r *Part) Shown() (size int64, crc uint64, sealed bool) {
	text, ok := r.Attrs[object.AttrSealedPart]
	if !ok {
		return r.Size, r.CRC, false
	}
	p, err := object.ParsePartSeal(text)
	if err != nil {
		return r.Size, r.CRC, false // the encrypter refuses to read such a part
	}
	return p.Size, p.CRC, true
}
