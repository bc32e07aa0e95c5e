// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/inventory"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/test/effort"
)

// TestInventoryEqualsListing writes an inventory of many objects and compares it with a listing.
func TestInventoryEqualsListing(t *testing.T) {
	n := effort.Rounds{Test: 1200, CI: 3000, Long: 1_000_000}.Of(t) // versions; a page of the listing has 1,000
	ctx := t.Context()
	s, err := disk.Open(ctx, disk.Options{Dir: t.TempDir(), Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fillForInventory(t, s, n)
	w := inventory.New(s, time.Now, slog.New(slog.DiscardHandler))
	reports, err := w.RunNow(ctx, "source", "all")
	if err != nil {
		t.Fatal(err)
	}
	r := reports[0]
	rows := readInventory(t, s, r)
	l := object.List{Bucket: "source", Versions: true}
	listed := 0
	for more := true; more; {
		page, err := s.List(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Objects {
			o := &page.Objects[i]
			want := []string{"source", url.QueryEscape(o.Key), o.Version, strconv.FormatBool(o.Latest),
				strconv.FormatBool(o.Marker), strconv.FormatInt(o.Size, 10), o.ETag}
			if o.Marker {
				want[5] = ""
			}
			row, err := rows.Read()
			if err != nil || strings.Join(row, ",") != strings.Join(want, ",") {
				t.Fatalf("row %d is %q (%v), expected %q", listed, row, err, want)
			}
			listed++
		}
		more = page.Truncated
		l.After, l.AfterVersion = page.Next, page.NextVersion
	}
	if _, err := rows.Read(); err != io.EOF {
		t.Errorf("the inventory goes on after %d rows: %v", listed, err)
	}
	if r.Objects != int64(listed) || listed < n {
		t.Errorf("the report has %d objects, the listing %d", r.Objects, listed)
	}
	if again, err := w.Reports(ctx); err != nil || len(again) != 1 || again[0].Manifest != r.Manifest ||
		len(again[0].Pending) > 0 {
		t.Errorf("the reports are %+v, %v", again, err)
	}
	t.Logf("%d rows in the order of the listing", listed)
}

// fillForInventory makes a bucket with n versions and an inventory configuration.
func fillForInventory(t *testing.T, s *disk.Store, n int) {
	t.Helper()
	ctx := t.Context()
	c,
		err := inventory.Parse(
		[]byte(`<InventoryConfiguration><Destination><S3BucketDestination><Bucket>arn:aws:s3:::lists</Bucket>` +
			`<Format>CSV</Format><Prefix>made</Prefix></S3BucketDestination></Destination><IsEnabled>true</IsEnabled><Id>all</Id>` +
			`<IncludedObjectVersions>All</IncludedObjectVersions><OptionalFields><Field>Size</Field><Field>ETag</Field>` +
			`</OptionalFields><Schedule><Frequency>Daily</Frequency></Schedule></InventoryConfiguration>`))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := inventory.EncodeConfigs(map[string]*inventory.Config{"all": c})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []object.Bucket{{Name: "lists", Owner: "alice"}, {Name: "source", Owner: "alice",
		Versioning: object.VersioningEnabled, Settings: map[string][]byte{inventory.Setting: doc}}} {
		if err := s.CreateBucket(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	const writers = 64
	for k := range writers {
		wg.Go(func() {
			for i := k; i < n; i += writers {
				key := fmt.Sprintf("%d/key \"%d\", ä\n", i%7, i/2) // two versions of each key
				if _, err := s.Put(ctx, object.Put{Bucket: "source", Key: key, Size: int64(i % 9),
					Body: bytes.NewReader(make([]byte, i%9))}); err != nil {
					t.Error(err)
				}
				if i%100 == 0 {
					if _, err := s.Delete(ctx, object.Deletion{Ref: object.Ref{Bucket: "source", Key: key}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// readInventory checks the manifest and its checksums, and returns the rows of all its files.
func readInventory(t *testing.T, s *disk.Store, r inventory.Report) *csv.Reader {
	t.Helper()
	read := func(key string) []byte {
		c, err := s.Open(t.Context(), object.Ref{Bucket: "lists", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		body, err := c.Section(object.Range{N: c.Info().Size})
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	sum := func(b []byte) string {
		x := md5.Sum(b)
		return hex.EncodeToString(x[:])
	}
	doc := read(r.Manifest)
	if want := read(strings.TrimSuffix(r.Manifest, "json") + "checksum"); string(want) != sum(doc) {
		t.Errorf("the checksum of the manifest is %s, expected %s", want, sum(doc))
	}
	if !strings.HasPrefix(r.Manifest, "made/source/all/2") {
		t.Errorf("the manifest is %s", r.Manifest)
	}
	var m struct {
		SourceBucket, DestinationBucket, Version, CreationTimestamp, FileFormat, FileSchema string
		Files                                                                               []struct {
			Key         string
			Size        int
			MD5checksum string
		}
	}
	if err := json.Unmarshal(doc, &m); err != nil || m.SourceBucket != "source" ||
		m.DestinationBucket != "arn:aws:s3:::lists" || m.FileFormat != "CSV" ||
		m.FileSchema != "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, ETag" {
		t.Fatalf("the manifest is %s: %v", doc, err)
	}
	var all []io.Reader
	for _, f := range m.Files {
		content := read(f.Key)
		if len(content) != f.Size || sum(content) != f.MD5checksum {
			t.Errorf("%s has %d bytes with the MD5 %s, expected %+v", f.Key, len(content), sum(content), f)
		}
		z, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, z)
	}
	return csv.NewReader(io.MultiReader(all...))
}
