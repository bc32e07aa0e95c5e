// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio/test/built"
	"github.com/nebulaio/nebulaio/test/s3suite/player"
	"github.com/nebulaio/nebulaio/test/upstreams"
)

// enable is the variable by which make test-upstreams runs these tests. They install packages and take minutes.
const enable = "NEBULAIO_UPSTREAMS"

// work is the directory of everything that the tests write.
var work = sync.OnceValues(func() (string, error) { return os.MkdirTemp(os.Getenv(enable+"_DIR"), "upstreams-test-") })

// binary is the program under test: that of NEBULAIO_CLI, or one that is built here.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := work()
	if err != nil {
		return "", err
	}
	return built.Command(dir)
})

// running holds the upstreams that the tests share. Each kind is started once.
type running struct {
	mu  sync.Mutex
	all map[upstreams.Kind]*upstreams.Upstream
	not map[upstreams.Kind]error
}

var shared = running{all: map[upstreams.Kind]*upstreams.Upstream{}, not: map[upstreams.Kind]error{}}

func TestMain(m *testing.M) {
	if player.Play() {
		return
	}
	code := m.Run()
	for _, u := range shared.all {
		u.Stop()
	}
	if os.Getenv(enable) != "" {
		if dir, err := work(); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// needsUpstreams skips the test unless make test-upstreams runs it.
func needsUpstreams(t *testing.T) {
	t.Helper()
	if os.Getenv(enable) == "" {
		t.Skip("make test-upstreams runs this test: it installs and builds other S3 servers")
	}
}

// upstream returns the shared server of a kind. The test is skipped where the server's packages cannot be had.
func upstream(t *testing.T, kind upstreams.Kind) *upstreams.Upstream {
	t.Helper()
	needsUpstreams(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if err := shared.not[kind]; err != nil {
		skipOrFail(t, err)
	}
	if u := shared.all[kind]; u != nil {
		return u
	}
	u, err := upstreams.Start(context.Background(), kind, workDir(t))
	if err != nil {
		shared.not[kind] = err
		skipOrFail(t, err)
	}
	shared.all[kind] = u
	return u
}

func skipOrFail(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, upstreams.ErrMissing) {
		t.Skip(err)
	}
	t.Fatal(err)
}

func workDir(t *testing.T) string {
	t.Helper()
	dir, err := work()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// tempDir is a directory of the test on the disk of the other data, removed at the end.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(workDir(t), "t-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var buckets atomic.Int64

// newBucket makes a bucket with a new name at the upstream, directly.
func newBucket(t *testing.T, u *upstreams.Upstream) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d-%d", os.Getpid(), buckets.Add(1))
	err := client(t, u.Host(), upstreams.Access, upstreams.Secret).MakeBucket(t.Context(), name,
		minio.MakeBucketOptions{Region: upstreams.Region})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// client speaks to an S3 server without attempts of its own.
func client(t *testing.T, host, access, secret string) *minio.Core {
	t.Helper()
	c, err := minio.NewCore(host, &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""),
		Region: upstreams.Region, MaxRetries: 1, BucketLookup: minio.BucketLookupPath})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func direct(t *testing.T, u *upstreams.Upstream) *minio.Core {
	t.Helper()
	return client(t, u.Host(), upstreams.Access, upstreams.Secret)
}

// put stores an object and returns its ETag.
func put(t *testing.T, c *minio.Core, bucket, key string, data []byte) string {
	t.Helper()
	info, err := tryPut(t.Context(), c, bucket, key, data)
	if err != nil {
		t.Fatalf("PUT %s/%s: %v", bucket, key, err)
	}
	return info
}

func tryPut(ctx context.Context, c *minio.Core, bucket, key string, data []byte) (string, error) {
	info, err := c.Client.PutObject(ctx, bucket, key, bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{DisableMultipart: true, DisableContentSha256: true})
	return strings.Trim(info.ETag, `"`), err
}

// putSummed stores an object with its CRC-64/NVME in a trailer. Ceph 16 does not know trailers.
func putSummed(t *testing.T, u *upstreams.Upstream, bucket, key string, data []byte) string {
	t.Helper()
	return putWith(t, summing(t, u), bucket, key, data)
}

// summing returns a client for putWith.
func summing(t *testing.T, u *upstreams.Upstream) *minio.Client {
	t.Helper()
	c, err := minio.New(u.Host(), &minio.Options{Creds: credentials.NewStaticV4(upstreams.Access, upstreams.Secret, ""),
		Region: upstreams.Region, TrailingHeaders: true, BucketLookup: minio.BucketLookupPath})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func putWith(t *testing.T, c *minio.Client, bucket, key string, data []byte) string {
	t.Helper()
	info, err := c.PutObject(t.Context(), bucket, key, bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{DisableMultipart: true, Checksum: minio.ChecksumCRC64NVME})
	if err != nil {
		t.Fatalf("PUT %s/%s: %v", bucket, key, err)
	}
	return strings.Trim(info.ETag, `"`)
}

// content returns bytes without a pattern, the same for the same seed.
func content(seed uint64, size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8(sha256.Sum256(binaryOf(seed)))
	_, _ = r.Read(b)
	return b
}

func binaryOf(seed uint64) []byte { return []byte(strconv.FormatUint(seed, 10)) }

// sizeOf returns a number of the environment, for runs at length, or its default.
func sizeOf(t *testing.T, name string, normal int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return normal
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, text)
	}
	return n
}

// readAll reads and closes a body.
func readAll(body io.ReadCloser) ([]byte, error) {
	defer body.Close()
	return io.ReadAll(body)
}
