// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/fault"
	"github.com/nebulaio/nebulaio/internal/checksum"
)

// put writes objects to the bucket "box".
func put(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions, objects map[string]string) {
	t.Helper()
	c, err := sys.NewClient(access)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for key, content := range objects {
		src := memory(t, sys, "host", []byte(content))
		m, err := c.StartWrite(t.Context(), nebulaio.ObjectWrite{Bucket: "box", Key: key, Src: ptrOf(src, len(content)),
			Size: int64(len(content)), Device: "host"})
		if err == nil {
			err = m.Wait()
		}
		if err := errors.Join(err, src.Free()); err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns the files of a folder by their names below a prefix.
func contents(t *testing.T, dir, prefix string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[prefix+e.Name()] = string(b)
	}
	return out
}

// dataInBuckets reads training data of a bucket, through the door and over HTTP. The data is the same as on disk.
func dataInBuckets(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions) {
	archives, files := tars(t, 2, 20), folder(t, 30)
	put(t, sys, access, contents(t, archives, "data/tars/"))
	put(t, sys, access, contents(t, files, "data/files/"))
	put(t, sys, access, map[string]string{"data/files/": "", "data/files/.hidden": "x",
		"data/files/1000.txt.crc64nvme": "x", "data/files-2/x.txt": "another prefix"})
	at := strings.TrimPrefix(access.Endpoint, "http://")
	for _, door := range []string{"require", "off"} {
		o := nebulaio.DataOptions{Client: access}
		o.Client.Door = door
		for local, names := range map[string][]string{
			archives: {"s3://box/data/tars", "s3://box/data/tars/", "s3://box/data/tars/*.tar",
				"s3://box/data/tars/train-{00..01}.tar", "nebula://" + at + "/box/data/tars"},
			files: {"s3://box/data/files", "nebula://" + at + "/box/data/files/", "s3://box/data/files/*.txt"},
		} {
			want := openData(t, nebulaio.DataOptions{}, local).Info()
			for _, name := range names {
				d, err := sys.OpenData(t.Context(), []string{name}, o)
				if err != nil {
					t.Fatalf("%s, door %s: %v", name, door, err)
				}
				got := d.Info()
				if got.Fingerprint != want.Fingerprint || got.Format != want.Format || got.Samples != want.Samples ||
					got.Bytes != want.Bytes || got.Files != want.Files {
					t.Errorf("%s, door %s: %+v\nexpected %+v", name, door, got, want)
				}
				readEpoch(t, d, door)
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		for name, kind := range map[string]fault.Kind{"s3://no-such-box/data": fault.NotFound,
			"s3://box/data/nothing": fault.NotFound,
			"s3://box/data/fil":     fault.NotFound, "s3://box/data/files/*.jpg": fault.NotFound,
			"s3://no-such-box":                      fault.NotFound,
			"s3://box/data/tars/train-{00..02}.tar": fault.NotFound, "s3://": fault.Invalid,
			"s3://box/data/files-2/x.txt": fault.Invalid} {
			d, err := sys.OpenData(t.Context(), []string{name}, o)
			shown := strings.TrimSuffix(strings.Split(name, "{")[0], "train-")
			if strings.Contains(name, "no-such-box") {
				shown = "s3://no-such-box"
			}
			if fault.KindOf(err) != kind || !strings.Contains(err.Error(), shown) {
				t.Errorf("%s, door %s: %v, expected %v", name, door, err, kind)
			}
			if err == nil {
				_ = d.Close()
			}
		}
		skip := o
		skip.SkipBad = true
		d, err := sys.OpenData(t.Context(), []string{"s3://box/data/tars/train-{00..02}.tar"}, skip)
		if err != nil {
			t.Fatal(err)
		}
		if info := d.Info(); info.Samples != 40 || len(info.Bad) != 1 || !strings.Contains(info.Bad[0].Name, "train-02.tar") {
			t.Errorf("%+v", info)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := sys.OpenData(t.Context(), []string{"s3://box/data/tars", "nebula://" + at + "/box/data/tars"},
		nebulaio.DataOptions{Client: access})
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "another server") {
		t.Errorf("two servers: %v", err)
	}
	indexesInBuckets(t, sys, access)
	changedObjects(t, sys, access)
}

// readEpoch reads all samples and compares each byte. The report says by which way the bytes came.
func readEpoch(t *testing.T, d *nebulaio.Data, door string) {
	t.Helper()
	l, err := d.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 7, Seed: 3, Epochs: 1, Tail: "short",
		Device: "cuda:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := map[int64]bool{}
	for {
		b, err := l.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range b.Samples {
			for c, column := range l.Columns() {
				if got, err := b.Read(c, i); err != nil || string(got) != text(int(n), column.Name) {
					t.Fatalf("sample %d, %s: %q, %v", n, column.Name, got, err)
				}
			}
			seen[n] = true
		}
		b.Free()
	}
	if int64(len(seen)) != d.Len() {
		t.Errorf("%d of %d samples", len(seen), d.Len())
	}
	refused := slices.ContainsFunc(l.Report().Refusals, func(r nebulaio.Refusal) bool { return r.What == "door" })
	if refused != (door == "off") {
		t.Errorf("door %s: %+v", door, l.Report().Refusals)
	}
}

// indexesInBuckets makes the indexes of archives in a bucket, as objects beside them.
func indexesInBuckets(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions) {
	o := nebulaio.DataIndexOptions{Client: access}
	for _, want := range []string{"made", "present"} {
		all, err := sys.IndexData(t.Context(), []string{"s3://box/data/tars"}, o)
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		for _, x := range all {
			if x.State != want || x.Samples != 20 || x.Index != x.File+".nbx" {
				t.Errorf("%+v, expected %s", x, want)
			}
		}
	}
	d, err := sys.OpenData(t.Context(), []string{"s3://box/data/tars"}, nebulaio.DataOptions{Client: access})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if b, err := d.Read(t.Context(), 33, "txt"); err != nil || string(b) != text(33, "txt") {
		t.Errorf("%q, %v", b, err)
	}
}

// changedObjects replaces, removes and shortens objects after the data was opened.
func changedObjects(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions) {
	put(t, sys, access, map[string]string{"data/changed/a.txt": "aaaa", "data/changed/b.txt": "bbbb",
		"data/changed/c.txt": "cccc"})
	d, err := sys.OpenData(t.Context(), []string{"s3://box/data/changed"}, nebulaio.DataOptions{Client: access})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	put(t, sys, access, map[string]string{"data/changed/b.txt": "longer than before"})
	l, err := d.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 3, Epochs: 1, Device: "host", Shuffle: "stored"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Next(t.Context())
	if fault.KindOf(err) != fault.Corrupt || !strings.Contains(err.Error(), "data/changed/b.txt") ||
		!strings.Contains(err.Error(), "18 bytes") {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	l, err = d.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 3, Epochs: 1, Device: "host", Shuffle: "stored",
		SkipBad: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Next(t.Context())
	if err != nil || !slices.Equal(b.Samples, []int64{0, 2}) {
		t.Fatalf("%+v, %v", b, err)
	}
	b.Free()
	if r := l.Report(); r.Total.Skipped != 1 || len(r.Bad) != 1 || !strings.Contains(r.Bad[0], "b.txt") {
		t.Errorf("%+v", r)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestAServerThatEndsInAnEpoch ends the server while a loader reads objects: the loader ends with a clear error, and
// Close returns.
func TestAServerThatEndsInAnEpoch(t *testing.T) {
	endpoint, _, end := serveUntil(t, map[string]string{"NEBULAIO_DRAIN_TIMEOUT": "100ms"}) // as if it were killed
	sys := open(t, nebulaio.Options{Devices: nebulaio.DevicesOff})
	access := nebulaio.ClientOptions{Endpoint: endpoint, AccessKey: doorUser, SecretKey: doorPassword, Retries: 1}
	objects := map[string]string{}
	for i := range 300 {
		objects[fmt.Sprintf("die/%04d.bin", i)] = strings.Repeat("x", 1000+i)
	}
	put(t, sys, access, objects)
	loaders := map[string]*nebulaio.Loader{}
	var datas []*nebulaio.Data
	for _, door := range []string{"require", "off"} {
		o := nebulaio.DataOptions{Client: access}
		o.Client.Door = door
		d, err := sys.OpenData(t.Context(), []string{"s3://box/die"}, o)
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 5, Device: "host", OpenFiles: 8, Ahead: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.Free()
		loaders[door], datas = l, append(datas, d)
	}
	end()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, door := range slices.Sorted(maps.Keys(loaders)) {
		l := loaders[door]
		var err error
		for n := 0; err == nil && n < 1000; n++ {
			var b *nebulaio.DataBatch
			if b, err = l.Next(ctx); err == nil {
				b.Free()
			}
		}
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "die/") && !strings.Contains(err.Error(), strings.TrimPrefix(endpoint, "http://")) {
			t.Errorf("door %s: %v", door, err)
		}
		t.Logf("door %s: %v", door, err)
		if _, again := l.Next(ctx); again == nil {
			t.Errorf("door %s: a batch after %v", door, err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("door %s: close: %v", door, err)
		}
	}
	for _, d := range datas {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLooseFilesOfThisMachine reads files with a loader; those with checksums beside them are verified when opened.
func TestLooseFilesOfThisMachine(t *testing.T) {
	dir := folder(t, 12)
	sums, err := checksum.Compute(t.Context(), filepath.Join(dir, "1003.txt"), checksum.DefaultBlock, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sums.Write(filepath.Join(dir, "1003.txt")); err != nil {
		t.Fatal(err)
	}
	d := openData(t, nebulaio.DataOptions{Verify: true}, dir)
	if info := d.Info(); info.Verified != 1 || info.Samples != 12 || info.Format != "files" {
		t.Errorf("%+v", info)
	}
	seen, _ := all(t, d, nebulaio.LoaderOptions{Batch: 5, Epochs: 1, Tail: "short", Device: "host"}, 100)
	if len(seen) != 12 {
		t.Errorf("%d samples", len(seen))
	}
	if err := os.WriteFile(filepath.Join(dir, "1003.txt"), []byte(strings.ToUpper(text(3, "file"))), 0o600); err != nil {
		t.Fatal(err)
	}
	sys := newSystem(t, nebulaio.Options{Devices: nebulaio.DevicesOff})
	_, err = sys.OpenData(t.Context(), []string{dir}, nebulaio.DataOptions{Verify: true})
	if fault.KindOf(err) != fault.Corrupt || !strings.Contains(err.Error(), "1003.txt") {
		t.Errorf("a changed file: %v", err)
	}
	bad, err := sys.OpenData(t.Context(), []string{dir}, nebulaio.DataOptions{Verify: true, SkipBad: true})
	if err != nil || bad.Len() != 11 || bad.Info().BadAll != 1 {
		t.Errorf("%v", err)
	}
	if err := bad.Close(); err != nil {
		t.Error(err)
	}
}
