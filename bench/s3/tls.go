// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// tlsName is the target that serves TLS.
const tlsName = "nebulaio tls"

// tlsRow is the row in which TLS is compared with plain HTTP and with the encryption alone.
const tlsRow = "GET 64 MiB, 4 streams"

// stream returns a new stream to the target.
func (t *target) stream() *stream {
	s := newStream(t.host)
	s.secure = t.name == tlsName
	return s
}

// dial connects a stream to its server. dial does not check the certificate: the benchmark made it, and the connection
// stays on this machine.
func (s *stream) dial() (net.Conn, error) {
	c, err := net.DialTimeout("tcp", s.host, 10*time.Second)
	if err != nil || !s.secure {
		return c, err
	}
	secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	if err := secure.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	if err := secure.Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return secure, nil
}

// encrypt measures the CPU time of AES-128-GCM over n bytes of data, in records of 16 KiB as in TLS.
func encrypt(data []byte, n int64) (sample, error) {
	const record = 16 << 10
	block, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		return sample{}, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return sample{}, err
	}
	out := make([]byte, 0, record+aead.Overhead())
	nonce := make([]byte, aead.NonceSize())
	start, own := time.Now(), ownCPU()
	for done := int64(0); done < n; done += record {
		at := done % int64(len(data))
		aead.Seal(out, nonce, data[at:at+record], nil)
		nonce[done>>14&7]++
	}
	return sample{Ops: 1, Bytes: n, Seconds: time.Since(start).Seconds(), ServerCPU: ownCPU() - own}, nil
}

// tlsClaim compares the CPU time that TLS adds with that of the encryption alone, round by round.
func (r *rowResult) tlsClaim() (claim, bool) {
	secure, plain, gcm := r.cpu(tlsName), r.cpu("nebulaio"), []float64{}
	for _, s := range r.Cipher {
		gcm = append(gcm, s.cpuPerGiB())
	}
	added := make([]float64, min(len(secure), len(plain)))
	for i := range added {
		added[i] = secure[i] - plain[i]
	}
	got := ratios(added, gcm)
	return claim{fmt.Sprintf("%s: server CPU that TLS adds to plain HTTP, against AES-GCM of the same bytes", r.Name),
		spreadOf(got), 1.3, false, " x"}, len(got) > 0
}

// tlsWay returns how the target encrypts, as its log says.
func (t *target) tlsWay() string {
	text, err := os.ReadFile(t.dir + ".log")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if _, way, ok := strings.Cut(line, "TLS by the "); ok {
			way, _, _ = strings.Cut(strings.TrimSpace(way), `"`)
			return "TLS by the " + way
		}
	}
	return ""
}
