// SPDX-License-Identifier: Apache-2.0

// Package seal encrypts content in blocks with AES-256-GCM, so that a range is read without the bytes before it.
//
// # Format
//
// A stream of content becomes a sequence of sealed blocks. Every block but the last holds Block bytes of content; the
// last holds 0 to Block bytes. A stream has at least one block, so that even empty content is authenticated. A sealed
// block is the ciphertext and its tag of Tag bytes.
//
// The nonce of a block is its index in 8 bytes, and 4 bytes that are 1 for the last block and 0 for all others. Each
// stream has a key of its own, so that no nonce is used twice with one key. So a block that was changed, moved, taken
// from another stream or left out at the end does not open.
//
// The key of a stream is derived from the data key of its object. An object has one data key, which is random. Package
// seal keeps no keys and does no I/O.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// Block is the number of bytes of content in a sealed block.
	Block = 64 << 10
	// Tag is the number of bytes that a sealed block has more than its content.
	Tag = 16
	// KeySize is the number of bytes of every key.
	KeySize = 32
)

// Blocks returns the number of sealed blocks of size bytes of content.
func Blocks(size int64) int64 { return max(1, (size+Block-1)/Block) }

// Size returns the number of sealed bytes of size bytes of content.
func Size(size int64) int64 { return size + Tag*Blocks(size) }

// Span returns the range of sealed bytes that holds n bytes of content from off: whole blocks. The stream has size
// bytes of content. The range of content must lie within the stream. Span also returns the index of the first block.
func Span(off, n, size int64) (sealedOff, sealedN, first int64) {
	first = min(off/Block, Blocks(size)-1)
	last := first
	if n > 0 {
		last = (off + n - 1) / Block
	}
	end := min((last+1)*(Block+Tag), Size(size))
	sealedOff = first * (Block + Tag)
	return sealedOff, end - sealedOff, first
}

// Stream seals and opens the blocks of one stream. A Stream is safe for concurrent use.
type Stream struct{ aead cipher.AEAD }

// NewStream returns the stream that a data key, a salt and a name identify. Two streams of one data key need different
// names or different salts.
func NewStream(dataKey, salt []byte, name string) (*Stream, error) {
	key, err := Derive(dataKey, salt, "content "+name)
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(key)
	return &Stream{aead}, err
}

// Derive returns a key of KeySize bytes for one purpose.
func Derive(key, salt []byte, purpose string) ([]byte, error) {
	if len(key) != KeySize {
		return nil, errs.New(errs.Invalid, "derive key", purpose,
			fmt.Sprintf("a key of %d bytes, expected %d", len(key), KeySize))
	}
	out, err := hkdf.Key(sha256.New, key, salt, "nebulaio 1 "+purpose, KeySize)
	return out, errs.Wrap("derive key", purpose, err)
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, errs.Wrap("make cipher", "", err)
	}
	aead, err := cipher.NewGCM(block)
	return aead, errs.Wrap("make cipher", "", err)
}

// nonce returns the nonce of a block.
func nonce(index int64, last bool) (n [12]byte) {
	binary.BigEndian.PutUint64(n[:], uint64(index))
	if last {
		n[11] = 1
	}
	return n
}

// Seal appends the sealed block to dst.
func (s *Stream) Seal(dst, content []byte, index int64, last bool) []byte {
	n := nonce(index, last)
	return s.aead.Seal(dst, n[:], content, nil)
}

// Open appends the content of a sealed block to dst. Open fails with kind Corrupt if the block is not the one with that
// index, or was changed.
func (s *Stream) Open(dst, sealed []byte, index int64, last bool) ([]byte, error) {
	n := nonce(index, last)
	out, err := s.aead.Open(dst, n[:], sealed, nil)
	if err != nil {
		return dst, errs.New(errs.Corrupt, "decrypt", "",
			fmt.Sprintf("block %d of %d bytes is not authentic", index, len(sealed)))
	}
	return out, nil
}

// HiddenMD5 returns 16 bytes that are different for different contents and do not tell the MD5 to anybody without the
// data key. S3 makes the ETags of objects with SSE-C and SSE-KMS so that they are no MD5s.
func HiddenMD5(dataKey, md5 []byte) ([]byte, error) {
	key, err := Derive(dataKey, nil, "etag")
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(md5) // writing to a hash never fails
	return mac.Sum(nil)[:16], nil
}
