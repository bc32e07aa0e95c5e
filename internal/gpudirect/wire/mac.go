// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// ClientMAC returns the MAC of a client's Proof. The MAC of a Proof shows that the client knows the secret. The MAC
// of a Proof also covers the challenge, the store, the protocol version and the server's end of the client's
// connection, so that a relay cannot change them. The client does not send the secret itself.
func ClientMAC(secret string, ch *Challenge, p *Proof) [MACSize]byte {
	return mac("client", secret, ch, p)
}

// ServerMAC returns the MAC of the server's Greeting. The MAC of a Greeting shows the client that the server knows
// the secret, and that the client is connected to this server. A process that impersonates the server cannot compute
// the MAC of a Greeting.
func ServerMAC(secret string, ch *Challenge, p *Proof) [MACSize]byte {
	return mac("server", secret, ch, p)
}

// EqualMAC compares two MACs in constant time.
func EqualMAC(a, b [MACSize]byte) bool { return hmac.Equal(a[:], b[:]) }

func mac(who, secret string, ch *Challenge, p *Proof) (out [MACSize]byte) {
	h := hmac.New(sha256.New, []byte(secret))
	// Each text is preceded by its length, so that no two different exchanges give the same bytes.
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
