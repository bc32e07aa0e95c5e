// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/minio/minio-go/v7/pkg/sse"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/test/closing"
)

// TestEncryptedObjectsReachTheGPUOverHTTP reads and writes objects of a bucket that encrypts, with clients that find
// the door. The report gives the reason why the bytes went over HTTP, and a client that must use the door gets that
// reason as its error.
func TestEncryptedObjectsReachTheGPUOverHTTP(t *testing.T) {
	file := filepath.Join(t.TempDir(), "master.key")
	if err := os.WriteFile(file, []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	endpoint, _, _ := serveUntil(t, map[string]string{"NEBULAIO_ENCRYPTION_KEY_FILE": file})
	m, err := minio.New(strings.TrimPrefix(endpoint, "http://"),
		&minio.Options{Creds: credentials.NewStaticV4(doorUser, doorPassword, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	data := randomBytes(5, 3<<20+77)
	for i := range 3 {
		if _, err := m.PutObject(t.Context(), "box", fmt.Sprintf("sealed-%d", i), bytes.NewReader(data), int64(len(data)),
			minio.PutObjectOptions{ServerSideEncryption: encrypt.NewSSE()}); err != nil {
			t.Fatal(err)
		}
	}
	g := fakegpu.Build(t, fakegpu.Options{Devices: 1})
	sys := open(t, nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML, BufferPoolSize: 32 << 20})
	client := func(door string) *nebulaio.Client {
		c, err := sys.NewClient(nebulaio.ClientOptions{Endpoint: endpoint, AccessKey: doorUser, SecretKey: doorPassword,
			Door: door})
		return closing.AtEnd(t, c, err)
	}
	dst := memory(t, sys, "cuda:0", make([]byte, len(data)))
	read := func(c *nebulaio.Client, key string) (nebulaio.ObjectReport, error) {
		move, err := c.StartRead(t.Context(), nebulaio.ObjectRead{Bucket: "box", Key: key, Size: -1, Dst: dst.Ptr(),
			DstSize: dst.Size(), Device: "cuda:0"})
		if err == nil {
			err = move.Wait()
		}
		if err != nil {
			return nebulaio.ObjectReport{}, err
		}
		return move.Report(), nil
	}
	r, err := read(client("auto"), "sealed-0")
	if err != nil || r.Via != "http" || r.Size != int64(len(data)) {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(r.Refusals) == 0 || r.Refusals[0].What != "door" || !strings.Contains(r.Refusals[0].Reason, "encrypted") {
		t.Errorf("refusals %+v", r.Refusals)
	}
	got := make([]byte, len(data))
	if err := dst.Read(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := read(client("require"), "sealed-0"); errs.KindOf(err) != errs.Unsupported ||
		!strings.Contains(err.Error(),
			"encrypted") {
		t.Errorf("a client that must use the door: %v", err)
	}

	if err := m.SetBucketEncryption(t.Context(), "box", sse.NewConfigurationSSES3()); err != nil {
		t.Fatal(err)
	}
	src := memory(t, sys, "host", data)
	move, err := client("auto").StartWrite(t.Context(), nebulaio.ObjectWrite{Bucket: "box", Key: "written", Src: src.Ptr(),
		Size: int64(len(data)), Device: "host"})
	if err == nil {
		err = move.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	if w := move.Report(); w.Via != "http" || len(w.Refusals) == 0 || !strings.Contains(w.Refusals[0].Reason, "encrypts") {
		t.Errorf("%+v", w)
	}
	info, err := m.StatObject(t.Context(), "box", "written", minio.StatObjectOptions{})
	if err != nil || info.Size != int64(len(data)) || info.Metadata.Get("x-amz-server-side-encryption") != "AES256" {
		t.Errorf("%+v, %v", info, err)
	}
}
