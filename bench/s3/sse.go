// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// sseName is the target that encrypts its objects on the disk.
const sseName = "nebulaio sse"

// verifiedName is the target that compares every block with its checksum in each GET.
const verifiedName = "nebulaio always"

// masterKey makes the key file of the target that encrypts.
func (t *target) masterKey() error {
	if t.name != sseName {
		return nil
	}
	path := t.dir + ".key"
	t.env = append(t.env, "NEBULAIO_ENCRYPTION_KEY_FILE="+path)
	return os.WriteFile(path, []byte(strings.Repeat("5a", 32)+"\n"), 0o600)
}

// encryptBucket sets the default encryption of the bucket of the target that encrypts.
func (t *target) encryptBucket(s *stream) error {
	if t.name != sseName {
		return nil
	}
	const doc = `<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm>` +
		`</ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>`
	return s.do(t.sign(http.MethodPut, "", url.Values{"encryption": {""}}, []byte(doc), http.StatusOK, -1), nil)
}

// decrypt measures the CPU time of AES-256-GCM over n bytes of data, in blocks of 64 KiB as on the disk.
func decrypt(data []byte, n int64) (sample, error) {
	const size = 64 << 10
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		return sample{}, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return sample{}, err
	}
	step := size + aead.Overhead()
	nonce := make([]byte, aead.NonceSize())
	var sealed []byte
	for at := 0; at < len(data); at += size {
		sealed = aead.Seal(sealed, nonce, data[at:at+size], nil)
	}
	out := make([]byte, 0, size)
	start, own := time.Now(), ownCPU()
	for done := int64(0); done < n; done += size {
		at := int(done/size) % (len(sealed) / step) * step
		if _, err := aead.Open(out, nonce, sealed[at:at+step], nil); err != nil {
			return sample{}, err
		}
	}
	return sample{Ops: 1, Bytes: n, Seconds: time.Since(start).Seconds(), ServerCPU: ownCPU() - own}, nil
}

// sseClaim compares the CPU time that encryption adds to a GET with compared blocks with that of the decryption alone,
// round by round.
func (r *rowResult) sseClaim() (claim, bool) {
	sealed, verified, gcm := r.cpu(sseName), r.cpu(verifiedName), []float64{}
	for _, s := range r.Decryption {
		gcm = append(gcm, s.cpuPerGiB())
	}
	var got []float64
	for i := range min(len(sealed), len(verified), len(gcm)) {
		if gcm[i] > 0 {
			got = append(got, (sealed[i]-verified[i])/gcm[i])
		}
	}
	return claim{
		fmt.Sprintf("%s: server CPU that encryption adds to a GET with compared blocks, against AES-GCM of the same bytes",
			r.Name), spreadOf(got), 1.3, false, " x"}, len(got) > 0
}
