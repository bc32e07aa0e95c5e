// SPDX-License-Identifier: Apache-2.0

// Package clients tests a server of this project with real clients. minio-go is tested here; the files beside it test
// clients that are programs or Python packages.
package clients

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/tags"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/test/built"
	"github.com/nebulaio/nebulaio/test/effort"
)

const (
	access = "clientsclients"
	secret = "clients-secret-key"
	domain = "s3.test" // under which buckets have host names of their own
	mib    = 1 << 20
)

// endpoint is the address of the server for this package's tests: S3_ENDPOINT, which must accept these keys, else a
// server that TestMain starts.
var endpoint, dataDir string

func TestMain(m *testing.M) {
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withServer(tests func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "nebulaio-clients-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	dataDir = dir
	if given := os.Getenv("S3_ENDPOINT"); given != "" {
		endpoint = given
		return tests(), nil
	}
	program, err := built.Command(dir)
	if err != nil {
		return 1, err
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "server", "--json", "--data", filepath.Join(dir, "data"), "--address", "127.0.0.1:0",
		"--console-address", "127.0.0.1:0", "--domains", domain)
	cmd.Env = append(os.Environ(), "NEBULAIO_ROOT_USER="+access, "NEBULAIO_ROOT_PASSWORD="+secret)
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	lines := bufio.NewScanner(out)
	for endpoint == "" && lines.Scan() {
		var said struct{ Endpoint string }
		if json.Unmarshal(lines.Bytes(), &said) == nil {
			endpoint = said.Endpoint
		}
	}
	if endpoint == "" {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return 1, fmt.Errorf("the server has not said where it listens:\n%s", &log)
	}
	code = tests()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 1, err
	}
	for lines.Scan() { // to its end, before Wait closes the pipe
	}
	if err := cmd.Wait(); err != nil {
		return 1, fmt.Errorf("the server did not end well: %w\n%s", err, &log)
	}
	return code, nil
}

// client returns a client and a separate bucket, which is removed with all its versions.
func client(t *testing.T) (*minio.Core, string) { return clientWith(t, false) }

// clientWith returns a client that may send checksums in signed trailers, as mc does.
func clientWith(t *testing.T, trailers bool) (*minio.Core, string) {
	t.Helper()
	c, err := minio.NewCore(strings.TrimPrefix(endpoint, "http://"),
		&minio.Options{Creds: credentials.NewStaticV4(access, secret, ""), Region: "us-east-1", TrailingHeaders: trailers})
	must(t, err)
	bucket := fmt.Sprintf("minio-go-%x", rand.Uint64())
	must(t, c.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{}))
	t.Cleanup(func() {
		ctx := context.Background()
		objects := make(chan minio.ObjectInfo)
		go func() {
			defer close(objects)
			for o := range c.Client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
				objects <- o
			}
		}()
		for e := range c.RemoveObjects(ctx, bucket, objects, minio.RemoveObjectsOptions{}) {
			t.Error(e.Err)
		}
		must(t, c.RemoveBucket(ctx, bucket))
	})
	return c, bucket
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func bytesOf(n int, seed uint64) []byte {
	b := make([]byte, n)
	s := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = s.Read(b)
	return b
}

func read(t *testing.T, c *minio.Core, bucket, key string, o minio.GetObjectOptions) []byte {
	t.Helper()
	r, _, _, err := c.GetObject(t.Context(), bucket, key, o)
	must(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	must(t, err)
	return b
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if got := minio.ToErrorResponse(err).Code; got != code {
		t.Errorf("the error is %q (%v), expected %q", got, err, code)
	}
}

func TestObjects(t *testing.T) {
	c, bucket := client(t)
	for i, size := range []int{0, 1, 4096, 64 << 10, mib + 1, 17*mib + 3} {
		data := bytesOf(size, uint64(i))
		for _, announced := range []int64{int64(size), -1} { // of unknown length: in parts
			key := fmt.Sprintf("o/%d/%d", size, announced)
			_, err := c.Client.PutObject(t.Context(), bucket, key, bytes.NewReader(data), announced,
				minio.PutObjectOptions{ContentType: "x/y", UserMetadata: map[string]string{"K": "v"}, PartSize: 5 * mib})
			must(t, err)
			if got := read(t, c, bucket, key, minio.GetObjectOptions{}); !bytes.Equal(got, data) {
				t.Errorf("%s came back with %d other bytes", key, len(got))
			}
			info, err := c.StatObject(t.Context(), bucket, key, minio.StatObjectOptions{})
			must(t, err)
			if info.Size != int64(size) || info.ContentType != "x/y" || info.UserMetadata["K"] != "v" ||
				info.Metadata.Get("Content-Encoding") != "" {
				t.Errorf("%s is described as %+v", key, info)
			}
		}
	}
	o, err := c.Client.GetObject(t.Context(), bucket, fmt.Sprintf("o/%d/-1", 17*mib+3), minio.GetObjectOptions{})
	must(t, err)
	defer o.Close()
	piece := make([]byte, 9)
	_, err = o.ReadAt(piece, 5*mib-4) // over the seam of two parts
	must(t, err)
	if want := bytesOf(17*mib+3, 5)[5*mib-4:][:9]; !bytes.Equal(piece, want) {
		t.Errorf("read %x at a seam, expected %x", piece, want)
	}
	if _, err := o.Seek(-3, io.SeekEnd); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(o); err != nil || len(rest) != 3 {
		t.Errorf("%d bytes at the end (%v), expected 3", len(rest), err)
	}
	_, err = c.StatObject(t.Context(), bucket, "none", minio.StatObjectOptions{})
	wantCode(t, err, "NoSuchKey")
}

func TestOddKeys(t *testing.T) {
	c, bucket := client(t)
	keys := []string{"a", "a/", "a//b", "../x", "a/../b", strings.Repeat("k", 1024), "😀", "ключ/鍵", "plus+", "per%cent",
		"q?m", "a b"}
	for _, key := range keys {
		_, err := c.Client.PutObject(t.Context(), bucket, key, strings.NewReader(key), int64(len(key)),
			minio.PutObjectOptions{})
		if err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	var listed []string
	for o := range c.Client.ListObjects(t.Context(), bucket, minio.ListObjectsOptions{Recursive: true, MaxKeys: 5}) {
		must(t, o.Err)
		listed = append(listed, o.Key)
	}
	slices.Sort(keys)
	if !slices.Equal(listed, keys) {
		t.Errorf("listed %q, expected %q", listed, keys)
	}
	for _, key := range keys {
		if got := string(read(t, c, bucket, key, minio.GetObjectOptions{})); got != key {
			t.Errorf("%q holds %q", key, got)
		}
	}
}

// upload begins a multipart upload. It returns a function that uploads a part, and a function that completes the
// upload with the given part numbers.
func upload(t *testing.T, c *minio.Core, bucket, key string) (id string, put func(int, []byte) minio.CompletePart,
	complete func(...minio.CompletePart) error) {
	t.Helper()
	id, err := c.NewMultipartUpload(t.Context(), bucket, key, minio.PutObjectOptions{})
	must(t, err)
	put = func(n int, data []byte) minio.CompletePart {
		p, err := c.PutObjectPart(t.Context(), bucket, key, id, n, bytes.NewReader(data), int64(len(data)),
			minio.PutObjectPartOptions{})
		must(t, err)
		return minio.CompletePart{PartNumber: n, ETag: p.ETag}
	}
	complete = func(parts ...minio.CompletePart) error {
		_, err := c.CompleteMultipartUpload(t.Context(), bucket, key, id, parts, minio.PutObjectOptions{})
		return err
	}
	return id, put, complete
}

// wantParts fails the test unless the object k consists of these parts, which what describes.
func wantParts(t *testing.T, c *minio.Core, bucket, what string, parts ...[]byte) {
	t.Helper()
	if got := read(t, c, bucket, "k", minio.GetObjectOptions{}); !bytes.Equal(got, slices.Concat(parts...)) {
		t.Errorf("%d bytes, and not those of %s", len(got), what)
	}
}

func TestPartsOfOddSizes(t *testing.T) {
	one, two, three := bytesOf(5*mib+1, 1), bytesOf(9*mib, 2), bytesOf(3, 3)
	t.Run("last part first", func(t *testing.T) {
		c, bucket := client(t)
		_, put, complete := upload(t, c, bucket, "k")
		p3, p1, p2 := put(3, three), put(1, one), put(2, two)
		must(t, complete(p1, p2, p3))
		wantParts(t, c, bucket, "the parts in order", one, two, three)
	})
	t.Run("a part repeated and cut off", func(t *testing.T) {
		c, bucket := client(t)
		id, put, complete := upload(t, c, bucket, "k")
		p1, p3 := put(1, one), put(3, three)
		put(2, bytesOf(6*mib, 9))
		p2 := put(2, two)
		u, err := c.Presign(t.Context(), http.MethodPut, bucket, "k", time.Hour,
			url.Values{"uploadId": {id}, "partNumber": {"2"}})
		must(t, err)
		cutOff(t, u, 8*mib, bytesOf(4*mib, 8))
		must(t, complete(p1, p2, p3))
		wantParts(t, c, bucket, "the parts that were acknowledged last", one, two, three)
	})
	t.Run("completed with one and three", func(t *testing.T) {
		c, bucket := client(t)
		_, put, complete := upload(t, c, bucket, "k")
		p2, p1, p3 := put(2, two), put(1, one), put(3, three)
		wantCode(t, complete(p2, p1), "InvalidPartOrder")
		wantCode(t, complete(p1, minio.CompletePart{PartNumber: 3, ETag: p2.ETag}), "InvalidPart")
		must(t, complete(p1, p3))
		wantParts(t, c, bucket, "the first and the third part", one, three)
	})
}

// cutOff starts a PUT of n bytes, sends only some and closes the connection. It returns when the server has noticed.
func cutOff(t *testing.T, u *url.URL, n int, some []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", u.Host)
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", u.RequestURI(), u.Host, n,
		some)
	must(t, err)
	must(t, conn.(*net.TCPConn).CloseWrite())
	_, _ = io.Copy(io.Discard, conn)
}

func TestCopyAndCompose(t *testing.T) {
	c, bucket := client(t)
	a, b := bytesOf(6*mib+1, 1), bytesOf(100, 2)
	for key, data := range map[string][]byte{"a ü+": a, "b": b} {
		_, err := c.Client.PutObject(t.Context(), bucket, key, bytes.NewReader(data), int64(len(data)),
			minio.PutObjectOptions{})
		must(t, err)
	}
	_, err := c.Client.CopyObject(t.Context(), minio.CopyDestOptions{Bucket: bucket, Object: "copy"},
		minio.CopySrcOptions{Bucket: bucket, Object: "a ü+"})
	must(t, err)
	if !bytes.Equal(read(t, c, bucket, "copy", minio.GetObjectOptions{}), a) {
		t.Error("the copy differs")
	}
	_, err = c.ComposeObject(t.Context(), minio.CopyDestOptions{Bucket: bucket, Object: "both"},
		minio.CopySrcOptions{Bucket: bucket, Object: "a ü+"}, minio.CopySrcOptions{Bucket: bucket, Object: "b"})
	must(t, err)
	if !bytes.Equal(read(t, c, bucket, "both", minio.GetObjectOptions{}), slices.Concat(a, b)) {
		t.Error("what was composed differs")
	}
}

func TestConditionsTagsAndPresigned(t *testing.T) {
	c, bucket := client(t)
	put := func(text string, set func(*minio.PutObjectOptions)) error {
		var o minio.PutObjectOptions
		set(&o)
		_, err := c.Client.PutObject(t.Context(), bucket, "k", strings.NewReader(text), int64(len(text)), o)
		return err
	}
	none := func(o *minio.PutObjectOptions) { o.SetMatchETagExcept("*") }
	must(t, put("one", none))
	wantCode(t, put("two", none), "PreconditionFailed")
	sum := md5.Sum([]byte("one"))
	must(t, put("two", func(o *minio.PutObjectOptions) { o.SetMatchETag(hex.EncodeToString(sum[:])) }))
	wantCode(t, put("three", func(o *minio.PutObjectOptions) { o.SetMatchETag(hex.EncodeToString(sum[:])) }),
		"PreconditionFailed")

	given, err := tags.MapToObjectTags(map[string]string{"k": "v", "l": "x y"})
	must(t, err)
	must(t, c.PutObjectTagging(t.Context(), bucket, "k", given, minio.PutObjectTaggingOptions{}))
	got, err := c.GetObjectTagging(t.Context(), bucket, "k", minio.GetObjectTaggingOptions{})
	must(t, err)
	if fmt.Sprint(got.ToMap()) != fmt.Sprint(given.ToMap()) {
		t.Errorf("tags %v, expected %v", got.ToMap(), given.ToMap())
	}
	u, err := c.PresignedGetObject(t.Context(), bucket, "k", time.Hour, nil)
	must(t, err)
	res, err := http.Get(u.String())
	must(t, err)
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || string(text) != "two" {
		t.Errorf("the presigned URL gave %q (%v)", text, err)
	}
}

func TestVersions(t *testing.T) {
	c, bucket := client(t)
	must(t, c.EnableVersioning(t.Context(), bucket))
	var ids []string
	for _, text := range []string{"one", "two"} {
		info, err := c.Client.PutObject(t.Context(), bucket, "k", strings.NewReader(text), 3, minio.PutObjectOptions{})
		must(t, err)
		ids = append(ids, info.VersionID)
	}
	must(t, c.RemoveObject(t.Context(), bucket, "k", minio.RemoveObjectOptions{}))
	_, err := c.StatObject(t.Context(), bucket, "k", minio.StatObjectOptions{})
	wantCode(t, err, "NoSuchKey")
	if got := string(read(t, c, bucket, "k", minio.GetObjectOptions{VersionID: ids[0]})); got != "one" {
		t.Errorf("the first version holds %q", got)
	}
	n := 0
	for o := range c.Client.ListObjects(t.Context(), bucket,
		minio.ListObjectsOptions{WithVersions: true, Recursive: true}) {
		must(t, o.Err)
		n++
		if o.IsDeleteMarker != o.IsLatest {
			t.Errorf("version %+v: only the delete marker is the latest", o)
		}
	}
	if n != 3 {
		t.Errorf("%d versions, expected two and a delete marker", n)
	}
}

func TestChecksumsInSignedTrailers(t *testing.T) {
	c, bucket := clientWith(t, true)
	for _, sum := range []minio.ChecksumType{minio.ChecksumCRC32, minio.ChecksumCRC32C, minio.ChecksumSHA1,
		minio.ChecksumSHA256, minio.ChecksumCRC64NVME} {
		// in two parts, and whole
		for size, part := range map[int]uint64{6*mib + 11: 5 * mib, 6*mib + 10: 16 * mib, 3000: 16 * mib} {
			data := bytesOf(size, 4)
			info, err := c.Client.PutObject(t.Context(), bucket, sum.String(), bytes.NewReader(data), int64(len(data)),
				minio.PutObjectOptions{Checksum: sum, PartSize: part})
			if err != nil {
				t.Errorf("%s, %d bytes in parts of %d: %v", sum, size, part, err)
				continue
			}
			if got := read(t, c, bucket, sum.String(), minio.GetObjectOptions{Checksum: true}); !bytes.Equal(got, data) ||
				info.Size != int64(len(data)) {
				t.Errorf("%s: %d bytes differ", sum, len(got))
			}
		}
	}
}

// TestFiveGiB exceeds every 32-bit number. The object is written in parts of 640 MiB of zeros with a mark in each,
// and read back in one request.
func TestFiveGiB(t *testing.T) {
	effort.SingleThreaded(t)
	const size, part, mark = 5<<30 + 1, 640 * mib, "here is part %02d"
	if testing.Short() {
		t.Skip("5 GiB are not short")
	}
	var fs unix.Statfs_t
	must(t, unix.Statfs(dataDir, &fs))
	if free := int64(fs.Bavail) * fs.Bsize; free < 12<<30 {
		t.Skipf("THE OBJECT OF 5 GiB IS NOT TESTED: %s has %d MiB free, expected 12 GiB", dataDir, free>>20)
	}
	c, bucket := client(t)
	id, err := c.NewMultipartUpload(t.Context(), bucket, "large", minio.PutObjectOptions{})
	must(t, err)
	var parts []minio.CompletePart
	for off, n := int64(0), 1; off < size; off, n = off+part, n+1 {
		length := min(part, size-off)
		text := fmt.Sprintf(mark, n)
		text = text[:min(len(text), int(length))]
		body := io.MultiReader(strings.NewReader(text), io.LimitReader(zeros{}, length-int64(len(text))))
		p, err := c.PutObjectPart(t.Context(), bucket, "large", id, n, body, length,
			minio.PutObjectPartOptions{DisableContentSha256: true})
		must(t, err)
		parts = append(parts, minio.CompletePart{PartNumber: n, ETag: p.ETag})
	}
	_, err = c.CompleteMultipartUpload(t.Context(), bucket, "large", id, parts, minio.PutObjectOptions{})
	must(t, err)
	r, info, _, err := c.GetObject(t.Context(), bucket, "large", minio.GetObjectOptions{})
	must(t, err)
	defer r.Close()
	if info.Size != size {
		t.Fatalf("%d bytes, expected %d", info.Size, int64(size))
	}
	buf, empty := make([]byte, 4*mib), make([]byte, 4*mib)
	for off := int64(0); off < size; {
		n, err := io.ReadFull(r, buf[:min(4*mib, size-off)])
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("at %d: %v", off+int64(n), err)
		}
		want := empty[:n]
		if off%part == 0 {
			text := fmt.Sprintf(mark, off/part+1)
			want = slices.Concat([]byte(text), empty)[:n]
		}
		if !bytes.Equal(buf[:n], want) {
			t.Fatalf("other bytes than were written between %d and %d", off, off+int64(n))
		}
		off += int64(n)
	}
	var o minio.GetObjectOptions
	must(t, o.SetRange(7*part-2, 7*part+14))
	if got, want := string(read(t, c, bucket, "large", o)), "\x00\x00"+fmt.Sprintf(mark, 8); got != want {
		t.Errorf("beyond 4 GiB lies %q, expected %q", got, want)
	}
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestBucketsByHostName names buckets by their host, with either version of signatures.
func TestBucketsByHostName(t *testing.T) {
	if os.Getenv("S3_ENDPOINT") != "" {
		t.Skip("a server that was given has domains of its own")
	}
	u, err := url.Parse(endpoint)
	must(t, err)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, u.Host)
	}}
	defer transport.CloseIdleConnections()
	for name, creds := range map[string]*credentials.Credentials{"V4": credentials.NewStaticV4(access, secret, ""),
		"V2": credentials.NewStaticV2(access, secret, "")} {
		t.Run(name, func(t *testing.T) {
			c, err := minio.New(domain+":"+u.Port(), &minio.Options{Creds: creds, Region: "us-east-1",
				BucketLookup: minio.BucketLookupDNS, Transport: transport})
			must(t, err)
			buckets := []string{fmt.Sprintf("host-%x", rand.Uint64()), fmt.Sprintf("a.b.%x", rand.Uint64())}
			if name == "V2" {
				buckets = buckets[:1] // minio-go signs the part before the first dot alone
			}
			for _, bucket := range buckets {
				must(t, c.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{}))
				_, err := c.PutObject(t.Context(), bucket, "dir/a b", strings.NewReader("hello"), 5, minio.PutObjectOptions{})
				must(t, err)
				o, err := c.GetObject(t.Context(), bucket, "dir/a b", minio.GetObjectOptions{})
				must(t, err)
				if text, err := io.ReadAll(o); err != nil || string(text) != "hello" {
					t.Errorf("%s: %q %v", bucket, text, err)
				}
				signed, err := c.PresignedGetObject(t.Context(), bucket, "dir/a b", time.Minute, nil)
				must(t, err)
				resp, err := (&http.Client{Transport: transport}).Get(signed.String())
				must(t, err)
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 || string(text) != "hello" {
					t.Errorf("%s: %d %s", signed, resp.StatusCode, text)
				}
				must(t, c.RemoveObject(t.Context(), bucket, "dir/a b", minio.RemoveObjectOptions{}))
				must(t, c.RemoveBucket(t.Context(), bucket))
			}
		})
	}
}
