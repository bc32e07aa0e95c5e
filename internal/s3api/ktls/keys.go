// SPDX-License-Identifier: Apache-2.0

package ktls

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"hash"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Numbers of the kernel's interface (linux/tls.h).
const (
	tlsTX            = 1
	setRecordType    = 1
	version13        = 0x0304
	cipherAESGCM128  = 51
	cipherAESGCM256  = 52
	ivSize, saltSize = 8, 4
	sequenceSize     = 8
)

// cipher is an encryption that the kernel can do.
type cipher struct {
	number  uint16 // in the kernel
	keySize int
	hash    func() hash.Hash // of the key schedule
}

// cipherOf returns the cipher of a TLS 1.3 suite. The result is false for a suite that stays in the program.
func cipherOf(suite uint16) (cipher, bool) {
	switch suite {
	case tls.TLS_AES_128_GCM_SHA256:
		return cipher{cipherAESGCM128, 16, sha256.New}, true
	case tls.TLS_AES_256_GCM_SHA384:
		return cipher{cipherAESGCM256, 32, sha512.New384}, true
	}
	return cipher{}, false
}

// keys are the write keys of one direction of a connection.
type keys struct {
	cipher cipher
	key    []byte
	iv     []byte // of 12 bytes
}

// newKeys derives the keys from the traffic secret of a direction, as RFC 8446 describes in section 7.3.
func newKeys(c cipher, secret []byte) (keys, error) {
	key, err := expandLabel(c.hash, secret, "key", c.keySize)
	if err != nil {
		return keys{}, err
	}
	iv, err := expandLabel(c.hash, secret, "iv", saltSize+ivSize)
	return keys{c, key, iv}, err
}

// expandLabel is HKDF-Expand-Label of RFC 8446 without a context.
func expandLabel(h func() hash.Hash, secret []byte, label string, n int) ([]byte, error) {
	label = "tls13 " + label
	info := append([]byte{byte(n >> 8), byte(n), byte(len(label))}, label...)
	return hkdf.Expand(h, secret, string(append(info, 0)), n)
}

// info returns the keys as the kernel expects them, for a connection that has sent no record with them yet.
func (k *keys) info() []byte {
	b := make([]byte, 0, 56)
	b = append(b, version13&0xff, version13>>8, byte(k.cipher.number), byte(k.cipher.number>>8)) // little endian
	b = append(b, k.iv[saltSize:]...)
	b = append(b, k.key...)
	b = append(b, k.iv[:saltSize]...)
	return append(b, make([]byte, sequenceSize)...)
}

// forget overwrites the keys.
func (k *keys) forget() {
	clear(k.key)
	clear(k.iv)
}

// secretLog receives the secrets of one connection from crypto/tls, and keeps the one that the server writes with.
type secretLog struct{ secret []byte }

// label begins the line with the server's traffic secret.
const label = "SERVER_TRAFFIC_SECRET_0 "

// Write implements io.Writer for tls.Config.KeyLogWriter. Each call gets one line.
func (l *secretLog) Write(line []byte) (int, error) {
	rest, ok := bytes.CutPrefix(line, []byte(label))
	if !ok {
		return len(line), nil
	}
	_, text, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" ")) // behind the client's random number
	secret := make([]byte, hex.DecodedLen(len(text)))
	if _, err := hex.Decode(secret, text); err != nil || len(secret) == 0 {
		return 0, errs.New(errs.Unsupported, "read the traffic secret", "", "the key log has another form than expected")
	}
	l.secret = secret
	return len(line), nil
}
