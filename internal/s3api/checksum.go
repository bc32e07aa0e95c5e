// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// sums holds the checksum of a request or a reply. As in the types of the S3 SDK, each algorithm has a field; at
// most one is set.
type sums struct {
	CRC32, CRC32C, CRC64NVME, SHA1, SHA256, SHA512, MD5, XXHASH64, XXHASH3, XXHASH128 *string
}

func (s *sums) all() []struct {
	algo types.ChecksumAlgorithm
	at   **string
} {
	return []struct {
		algo types.ChecksumAlgorithm
		at   **string
	}{
		{types.ChecksumAlgorithmCrc32, &s.CRC32}, {types.ChecksumAlgorithmCrc32c, &s.CRC32C},
		{types.ChecksumAlgorithmCrc64nvme, &s.CRC64NVME}, {types.ChecksumAlgorithmSha1, &s.SHA1},
		{types.ChecksumAlgorithmSha256, &s.SHA256}, {types.ChecksumAlgorithmSha512, &s.SHA512},
		{types.ChecksumAlgorithmMd5, &s.MD5}, {types.ChecksumAlgorithmXxhash64, &s.XXHASH64},
		{types.ChecksumAlgorithmXxhash3, &s.XXHASH3}, {types.ChecksumAlgorithmXxhash128, &s.XXHASH128},
	}
}

// given returns the algorithm and the value of the checksum that is set, as cloned strings.
func (s *sums) given() (types.ChecksumAlgorithm, string) {
	for _, f := range s.all() {
		if *f.at != nil {
			return f.algo, strings.Clone(**f.at)
		}
	}
	return "", ""
}

// sumsOf returns sums with the field of the algorithm set.
func sumsOf(algo types.ChecksumAlgorithm, value string) sums {
	var s sums
	if value == "" {
		return s
	}
	for _, f := range s.all() {
		if f.algo == algo {
			*f.at = &value
		}
	}
	return s
}

// checksum is the checksum of an object or a part.
type checksum struct {
	Algorithm types.ChecksumAlgorithm
	Type      types.ChecksumType
	Value     string
}

func checksumOf(attrs map[string]string) checksum {
	return checksum{
		Algorithm: types.ChecksumAlgorithm(attrs[attrSumAlgo]), Type: types.ChecksumType(attrs[attrSumType]),
		Value: attrs[attrSum],
	}
}

// full returns the checksum of a version for replies. If the client did not choose a checksum, it is the store's
// own. It is empty if the store does not know a checksum of the object.
func full(info *object.Info) checksum {
	c := checksumOf(info.Attributes)
	if c.Value == "" && info.NoCRC64 {
		return checksum{}
	}
	if c.Value == "" {
		c = checksum{Algorithm: types.ChecksumAlgorithmCrc64nvme, Type: types.ChecksumTypeFullObject,
			Value: crc64Text(info.CRC64)}
	}
	return c
}

func (c checksum) keep(attrs map[string]string) {
	if c.Algorithm == "" || c.Algorithm == types.ChecksumAlgorithmCrc64nvme && c.Type == types.ChecksumTypeFullObject {
		return // there is none, or the store has this checksum already
	}
	attrs[attrSumAlgo], attrs[attrSumType], attrs[attrSum] = string(c.Algorithm), string(c.Type), c.Value
}

// algorithms returns the list of algorithms for the entry of a listing.
func (c checksum) algorithms() []types.ChecksumAlgorithm {
	if c.Algorithm == "" {
		return nil
	}
	return []types.ChecksumAlgorithm{c.Algorithm}
}

func (c checksum) sums() sums { return sumsOf(c.Algorithm, c.Value) }

func crc64Text(v uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return base64.StdEncoding.EncodeToString(b[:])
}

// body reads the content of a request for the store. It records why reading failed. It computes the checksum that
// the client asked for, unless the store computes that checksum anyway.
type body struct {
	r       io.Reader
	trailer middlewares.ChecksumReader // set if the checksum follows the content
	hash    *utils.HashReader
	algo    types.ChecksumAlgorithm
	want    string
	ended   bool
	err     error

	panicked error // the panic of a reader, with its stack
}

// newBody returns a body that reads r. The checksum to compute is that of s, or else of algo, or else the store's
// own.
func newBody(r io.Reader, s sums, algo types.ChecksumAlgorithm) (*body, error) {
	b := &body{r: r}
	if t, ok := r.(middlewares.ChecksumReader); ok && t.Algorithm() != "" {
		b.trailer = t
		b.algo = types.ChecksumAlgorithm(strings.ToUpper(strings.Clone(t.Algorithm())))
		return b, nil
	}
	b.algo, b.want = s.given()
	if b.algo == "" {
		b.algo = types.ChecksumAlgorithm(strings.Clone(string(algo)))
	}
	if b.algo == "" {
		b.algo = types.ChecksumAlgorithmCrc64nvme
	}
	if b.algo == types.ChecksumAlgorithmCrc64nvme {
		return b, nil
	}
	var err error
	if b.hash, err = utils.NewHashReader(r, b.want, utils.HashType(strings.ToLower(string(b.algo)))); err != nil {
		return nil, s3err.GetAPIError(s3err.ErrInvalidRequest)
	}
	b.r = b.hash
	return b, nil
}

// Read implements io.Reader. Read turns a panic in a reader of versitygw into an error, because a panic would leave
// the unfinished data file of the object behind.
func (b *body) Read(p []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			b.panicked = fmt.Errorf("reading the content: panic: %v\n%s", v, debug.Stack())
			n, err = 0, b.panicked
		}
	}()
	n, err = b.r.Read(p)
	b.ended = b.ended || err == io.EOF
	if err != nil && err != io.EOF && b.err == nil {
		b.err = err
	}
	return n, err
}

// end reads to the end of the content. versitygw checks signatures and checksums only there, and the store may have
// stopped before.
func (b *body) end() error {
	if b.ended {
		return nil
	}
	var one [1]byte
	switch n, err := b.Read(one[:]); {
	case err != nil && err != io.EOF:
		return err
	case n > 0 || err == nil:
		return s3err.GetAPIError(s3err.ErrContentLengthMismatch)
	}
	return nil
}

// sum returns the checksum of the content, which has to be read to its end.
func (b *body) sum(w object.Written) (checksum, error) {
	c := checksum{Algorithm: b.algo, Type: types.ChecksumTypeFullObject}
	if err := b.end(); err != nil {
		return c, err
	}
	switch {
	case b.trailer != nil:
		c.Value = strings.Clone(b.trailer.Checksum())
	case b.hash != nil:
		c.Value = b.hash.Sum()
	default:
		c.Value = crc64Text(w.CRC64)
		if b.want != "" && b.want != c.Value {
			return c, s3err.GetChecksumBadDigestErr(b.algo)
		}
	}
	return c, nil
}

// failure returns why a write failed. An error of the client's body comes before the store's error.
func (b *body) failure(err error) error {
	if b.panicked != nil {
		return b.panicked
	}
	if b.err == nil {
		return err
	}
	if s3, ok := b.err.(s3err.S3Error); ok {
		return s3
	}
	return s3err.GetAPIError(s3err.ErrIncompleteBody) // the connection is broken: no client reads this
}
