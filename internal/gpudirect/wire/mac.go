// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// ClientMAC returns the MAC of a client's Proof. It proves that the client knows the secret, answers this challenge of
// this store, speaks this version, and is connected to this end of the server. The secret itself is not sent. A relay
// in the middle cannot change any of that, because the MAC covers it.
func ClientMAC(secret string, ch *Challenge, p *Proof) [MACSize]byte {
	return mac("client", secret, ch, p)
}

// ServerMAC returns the MAC of the server's Greeting. It proves that the server knows the secret, too, and that the
// client is connected to it. A stranger who took the socket's place cannot make it.
func ServerMAC(secret string, ch *Challenge, p *Proof) [MACSize]byte {
	return mac("server", secret, ch, p)
}

// EqualMAC compares two MACs in constant time.
func EqualMAC(a, b [MACSize]byte) bool { return hmac.Equal(a[:], b[:]) }

func mac(who, secret string, ch *Challenge, p *Proof) (out [MACSize]byte) {
	h := hmac.New(sha256.New, []byte(secret))
	// Lengths before texts of others: no two exchanges have the same bytes.
	field := func(s string) {
		var n [4]byte
		binary.LittleEndian.PutUint32(n[:], uint32(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	field("nebulaio door")
	field(who)
	var v [2]byte
	binary.LittleEndian.PutUint16(v[:], ch.Version)
	h.Write(v[:])
	field(ch.Store)
	field(p.AccessKey)
	h.Write(ch.Nonce[:])
	h.Write(p.Nonce[:])
	var bound [9]byte
	bound[0] = p.Binding.Kind
	binary.LittleEndian.PutUint64(bound[1:], p.Binding.ID)
	h.Write(bound[:])
	h.Sum(out[:0])
	return out
}
