// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// place is a device and a function that reads its memory.
type place struct {
	dev  device.Device
	look func(p device.Ptr, n int64) []byte
}

func places(t *testing.T) map[string]place {
	g, h := fakegpu.Build(t, fakegpu.Options{}), host.New()
	return map[string]place{"host": {h, h.Map}, "gpu": {g.Open("cuda:0"), g.Bytes}}
}

func ours(t *testing.T) *s3.Client {
	t.Helper()
	c, err := s3.New(s3.Options{Endpoint: endpoint, AccessKey: access, SecretKey: secret, Connections: 4})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// TestOurClientMovesObjects uses our engine and our client with our server, and checks the results with another
// client.
func TestOurClientMovesObjects(t *testing.T) {
	witness, bucket := client(t)
	c := ours(t)
	e, err := transfer.New(transfer.Options{Poison: true})
	must(t, err)
	defer func() { must(t, e.Close()) }()
	all := places(t)
	for i, size := range []int{0, 1, mib, 8*mib + 1, 37*mib + 12_345} {
		data := bytesOf(size, uint64(100+i))
		for name, at := range all {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				key := fmt.Sprintf("Ours/%s %d+ü", name, size)
				b, err := at.dev.Alloc(int64(size) + 1)
				must(t, err)
				defer func() { must(t, b.Free()) }()
				copy(at.look(b.Ptr(), int64(size)), data)
				to, err := c.NewUpload(s3.Put{Bucket: bucket, Key: key, ContentType: "x/y",
					Metadata: map[string]string{"who": "we"}, IfNoneMatch: "*"})
				must(t, err)
				up, err := e.StartUpload(t.Context(), transfer.UploadRequest{To: to,
					Sources: []transfer.Source{{Len: int64(size), Device: at.dev, Ptr: b.Ptr()}}})
				must(t, err)
				must(t, up.Wait())
				if got := read(t, witness, bucket, key, minio.GetObjectOptions{}); !bytes.Equal(got, data) {
					t.Fatal("another client reads other bytes")
				}
				if notes := strings.Join(up.Report().Notes, " "); strings.Contains(notes, "without") {
					t.Errorf("our own server does not check: %s", notes)
				}

				o, err := c.Open(t.Context(), bucket, key, "")
				must(t, err)
				if info := o.Info(); info.ETag != to.Info().ETag || info.CRC64 != checksum.Of(data) || !info.HasCRC64 ||
					info.Size != int64(size) || info.ContentType != "x/y" || info.Metadata["who"] != "we" {
					t.Errorf("%+v, expected %+v", info, to.Info())
				}
				clear(at.look(b.Ptr(), int64(size)))
				tr, err := e.Start(t.Context(), transfer.Request{Device: at.dev, Files: []*vfs.File{o.File()},
					Verify:   []*checksum.Sums{o.Sums()},
					Segments: []transfer.Segment{{Len: int64(size), Dst: b.Ptr()}}})
				must(t, err)
				must(t, tr.Err())
				if !bytes.Equal(at.look(b.Ptr(), int64(size)), data) {
					t.Fatal("other bytes came back")
				}
				if r := tr.Report(); size > 0 && (r.Network.Retries != 0 || r.Routes[0].Route != report.RouteTakenNetwork ||
					r.Verify.Blocks != 1) {
					t.Errorf("%+v, %+v, %+v", r.Network, r.Routes, r.Verify)
				}

				// The key is taken now: the condition is judged, and nothing is left.
				again, err := c.NewUpload(s3.Put{Bucket: bucket, Key: key, IfNoneMatch: "*"})
				must(t, err)
				up, err = e.StartUpload(t.Context(), transfer.UploadRequest{To: again,
					Sources: []transfer.Source{{Len: int64(size), Device: at.dev, Ptr: b.Ptr()}}})
				must(t, err)
				if err := up.Wait(); s3.CodeOf(err) != "PreconditionFailed" {
					t.Errorf("got %v", err)
				}
			})
		}
	}
	for u := range witness.ListIncompleteUploads(t.Context(), bucket, "", true) {
		t.Errorf("an upload is left: %+v", u)
	}
	page, err := c.List(t.Context(), s3.Listing{Bucket: bucket, Prefix: "Ours/"})
	if err != nil || len(page.Entries) != 10 || page.Next != "" {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestOurClientHearsRefusals(t *testing.T) {
	_, bucket := client(t)
	c := ours(t)
	if _, err := c.Open(t.Context(), bucket, "missing", ""); !errs.Is(err, errs.NotFound) {
		t.Errorf("a missing object: %v", err)
	}
	if _, err := c.List(t.Context(), s3.Listing{Bucket: "no-such-bucket-here"}); s3.CodeOf(err) != "NoSuchBucket" {
		t.Errorf("a missing bucket: %v", err)
	}
	for name, o := range map[string]s3.Options{
		"a wrong secret": {AccessKey: access, SecretKey: "wrong"},
		"a wrong key":    {AccessKey: "nobody-here", SecretKey: secret}, "anybody": {},
	} {
		o.Endpoint = endpoint
		bad, err := s3.New(o)
		must(t, err)
		if _, _, err := bad.ReadAll(t.Context(), bucket, "x", "", 10); !errs.Is(err, errs.Permission) ||
			errs.FixOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		must(t, bad.Close())
	}
	o := s3.Options{Endpoint: endpoint, AccessKey: access, SecretKey: secret, Region: "elsewhere-1"}
	far, err := s3.New(o)
	must(t, err)
	if _, err := far.List(t.Context(), s3.Listing{Bucket: bucket}); err != nil {
		t.Errorf("another region: %v", err)
	}
	must(t, far.Close())
}
