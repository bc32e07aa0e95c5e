// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

// flipAt changes one byte of a file.
func flipAt(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

// wantDamage expects a 500 that names the object and the damaged offset.
func wantDamage(t *testing.T, what string, err error, key string, off int) {
	t.Helper()
	r := minio.ToErrorResponse(err)
	if r.StatusCode != http.StatusInternalServerError || r.Code != "InternalError" || !strings.Contains(r.Message, key) ||
		!strings.Contains(r.Message, fmt.Sprintf("at offset %d", off)) {
		t.Errorf("%s: %d %s %q, expected a 500 InternalError that names %s and offset %d", what, r.StatusCode, r.Code,
			r.Message, key, off)
	}
}

// TestDamageIsNeverCopied checks that a copy of a damaged object is refused under every policy, with a 500 that names
// the damage, and leaves nothing. A reply with a damaged first block is refused in the same way.
func TestDamageIsNeverCopied(t *testing.T) {
	for _, policy := range []string{"first", "never", "always"} {
		t.Run(policy, func(t *testing.T) {
			s := start(t, t.TempDir())
			c := bucketOn(t, s, "damage")
			rnd := rand.New(rand.NewPCG(3, 4))
			bad, good := content(rnd, 3<<20+1), content(rnd, 2<<20+2)
			mustPut(t, c, "damage", "bad", bad)
			mustPut(t, c, "damage", "good", good)
			s.stop(t)
			flipAt(t, dataFile(t, s.data, int64(len(bad))), 1<<20+5)
			s = start(t, s.data, "--verify-reads", policy)
			c = s.client(t)
			ctx := t.Context()
			src := minio.CopySrcOptions{Bucket: "damage", Object: "bad"}
			_, err := c.Client.CopyObject(ctx, minio.CopyDestOptions{Bucket: "damage", Object: "copy"}, src)
			wantDamage(t, "copy", err, "damage/bad", 1<<20)
			if _, err := c.Client.StatObject(ctx, "damage", "copy", minio.StatObjectOptions{}); err == nil {
				t.Error("a copy of a damaged object is there")
			}
			id, err := c.NewMultipartUpload(ctx, "damage", "upload", minio.PutObjectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.CopyObjectPart(ctx, "damage", "bad", "damage", "upload", id, 1, 1<<20+100, 1<<20, nil); err == nil {
				t.Error("a range with damage was copied")
			} else {
				wantDamage(t, "copy of a range", err, "damage/bad", 1<<20)
			}
			if _, err := c.CopyObjectPart(ctx, "damage", "bad", "damage", "upload", id, 2, 2<<20, 1<<20+1, nil); err != nil {
				t.Errorf("a range without damage: %v", err)
			}
			l, err := c.ListObjectParts(ctx, "damage", "upload", id, 0, 10)
			if err != nil || len(l.ObjectParts) != 1 {
				t.Errorf("%d parts, %v", len(l.ObjectParts), err)
			}
			if policy != "never" {
				var o minio.GetObjectOptions
				_ = o.SetRange(1<<20+9, 2<<20)
				_, _, _, err = c.GetObject(ctx, "damage", "bad", o)
				wantDamage(t, "a range that begins in the damaged block", err, "damage/bad", 1<<20)
				body, _, _, err := c.GetObject(ctx, "damage", "bad", minio.GetObjectOptions{})
				if err != nil {
					t.Fatalf("the first block is whole: %v", err)
				}
				got, err := io.ReadAll(body)
				body.Close()
				if err == nil || len(got) > 1<<20 {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			}
			// What is whole is copied, and what is there stays.
			for range 2 {
				if _, err := c.Client.CopyObject(ctx, minio.CopyDestOptions{Bucket: "damage", Object: "fine"},
					minio.CopySrcOptions{Bucket: "damage", Object: "good"}); err != nil {
					t.Fatal(err)
				}
				mustServe(t, c, "damage", "fine", good)
			}
			s.stop(t)
			if left := unfinished(t, s.data); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
			if out, code := run(t, "store", "check", "--data", s.data); code != 0 {
				t.Errorf("store check: %d\n%s", code, out)
			}
			if !strings.Contains(s.log.String(), `"msg":"damage"`) {
				t.Error("the log does not name the damage")
			}
		})
	}
}

// TestWrongChecksumsOfClientsAreNoDamage checks that a wrong checksum of a client is a 400 and leaves nothing.
// Neither the log nor the metrics report damage.
func TestWrongChecksumsOfClientsAreNoDamage(t *testing.T) {
	s := start(t, t.TempDir())
	c := bucketOn(t, s, "sums")
	wrong := base64.StdEncoding.EncodeToString([]byte("12345678"))
	wrongMD5 := md5.Sum([]byte("something else"))
	for _, size := range []int{100, 2 << 20} {
		b := bytes.Repeat([]byte("x"), size)
		for name, meta := range map[string]map[string]string{
			"crc64": {"x-amz-checksum-crc64nvme": wrong},
			"crc32": {"x-amz-checksum-crc32": base64.StdEncoding.EncodeToString([]byte("1234"))},
			"sha":   {"x-amz-checksum-sha256": base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("1"), 32))},
		} {
			_, err := c.Client.PutObject(t.Context(), "sums", name, bytes.NewReader(b), int64(size),
				minio.PutObjectOptions{DisableMultipart: true, UserMetadata: meta, DisableContentSha256: true})
			if r := minio.ToErrorResponse(err); r.StatusCode != http.StatusBadRequest {
				t.Errorf("%s of %d bytes: %v, expected a 400", name, size, err)
			}
		}
		_, err := c.PutObject(t.Context(), "sums", "md5", bytes.NewReader(b), int64(size),
			base64.StdEncoding.EncodeToString(wrongMD5[:]), "", minio.PutObjectOptions{})
		if r := minio.ToErrorResponse(err); r.StatusCode != http.StatusBadRequest {
			t.Errorf("MD5 of %d bytes: %v, expected a 400", size, err)
		}
		id, err := c.NewMultipartUpload(t.Context(), "sums", "upload", minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.PutObjectPart(t.Context(), "sums", "upload", id, 1, bytes.NewReader(b), int64(size),
			minio.PutObjectPartOptions{Md5Base64: base64.StdEncoding.EncodeToString(wrongMD5[:])})
		if r := minio.ToErrorResponse(err); r.StatusCode != http.StatusBadRequest {
			t.Errorf("MD5 of a part of %d bytes: %v, expected a 400", size, err)
		}
	}
	for o := range c.Client.ListObjects(t.Context(), "sums", minio.ListObjectsOptions{}) {
		t.Errorf("%s was stored, %v", o.Key, o.Err)
	}
	resp, err := http.Get(s.console + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "nebulaio_store_damage_total") && !strings.HasSuffix(line, " 0\n") {
			t.Errorf("counted as damage: %s", line)
		}
	}
	if log := s.log.String(); strings.Contains(log, "damage") {
		t.Errorf("the log speaks of damage:\n%s", log)
	}
}
