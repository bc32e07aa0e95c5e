// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/fault"
)

// text is the content of one part of the samples of these tests.
func text(n int, column string) string { return strings.Repeat(fmt.Sprint(column, n), n%7+1) }

// tars writes WebDataset archives with samples of two columns, and returns their folder.
func tars(t *testing.T, archives, samples int) string {
	t.Helper()
	dir := t.TempDir()
	for a := range archives {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range samples {
			n := a*samples + i
			for _, column := range []string{"jpg", "txt"} {
				content := text(n, column)
				h := &tar.Header{Name: fmt.Sprintf("%06d.%s", n, column), Size: int64(len(content)), Mode: 0o644}
				if err := w.WriteHeader(h); err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(w, content); err != nil {
					t.Fatal(err)
				}
			}
		}
		name := filepath.Join(dir, fmt.Sprintf("train-%02d.tar", a))
		if err := errors.Join(w.Close(), os.WriteFile(name, b.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// openData opens data of a system on host.
func openData(t *testing.T, o nebulaio.DataOptions, sources ...string) *nebulaio.Data {
	t.Helper()
	sys := newSystem(t, nebulaio.Options{Devices: nebulaio.DevicesOff})
	d, err := sys.OpenData(t.Context(), sources, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// all reads at most `most` batches of a loader and checks each byte. all returns the samples and the last state.
func all(t *testing.T, d *nebulaio.Data, o nebulaio.LoaderOptions, most int) ([]int64, *nebulaio.LoaderState) {
	t.Helper()
	l, err := d.NewLoader(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	var seen []int64
	var state *nebulaio.LoaderState
	for range most {
		b, err := l.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range b.Samples {
			for c, column := range l.Columns() {
				got, err := b.Read(c, i)
				if want := text(int(n), column.Name); err != nil || string(got) != want {
					t.Fatalf("sample %d, %s: %q, %v; expected %q", n, column.Name, got, err, want)
				}
			}
		}
		seen, state = append(seen, b.Samples...), &b.State
		b.Free()
	}
	return seen, state
}

// TestDataIsReadOnceAndResumes reads a part of an epoch with one rank, and the rest with three.
func TestDataIsReadOnceAndResumes(t *testing.T) {
	d := openData(t, nebulaio.DataOptions{}, tars(t, 3, 40))
	info := d.Info()
	if info.Format != "tar" || info.Samples != 120 || info.Files != 3 || len(info.Columns) != 2 ||
		len(info.Fingerprint) != 32 {
		t.Fatalf("%+v", info)
	}
	o := nebulaio.LoaderOptions{Batch: 8, Seed: 7, Epochs: 1, Tail: "short"}
	seen, state := all(t, d, o, 4)
	if len(seen) != 32 || state.Position != 32 || state.Samples != 120 {
		t.Fatalf("%d samples, state %+v", len(seen), state)
	}
	stored, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	var again nebulaio.LoaderState
	if err := json.Unmarshal(stored, &again); err != nil {
		t.Fatal(err)
	}
	for rank := range 3 {
		o := nebulaio.LoaderOptions{Batch: 5, Epochs: 1, Tail: "short", Rank: rank, World: 3, State: &again}
		rest, _ := all(t, d, o, 1000)
		seen = append(seen, rest...)
	}
	if slices.IsSorted(seen) {
		t.Error("the samples come in the order of the files")
	}
	slices.Sort(seen)
	for i, n := range seen {
		if int64(i) != n || len(seen) != 120 {
			t.Fatalf("%d samples, among them %v", len(seen), seen)
		}
	}
}

// TestAStateOfOtherDataIsRefused resumes with changed data, seeds and shuffles.
func TestAStateOfOtherDataIsRefused(t *testing.T) {
	dir := tars(t, 2, 20)
	d := openData(t, nebulaio.DataOptions{}, dir)
	_, state := all(t, d, nebulaio.LoaderOptions{Batch: 4, Seed: 1}, 3)
	for says, o := range map[string]nebulaio.LoaderOptions{
		"seed":    {Batch: 4, State: state, Seed: 2},
		"shuffle": {Batch: 4, State: state, Shuffle: "stored"},
	} {
		if _, err := d.NewLoader(t.Context(), o); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	other := openData(t, nebulaio.DataOptions{}, filepath.Join(tars(t, 4, 10), "*.tar"))
	_, err := other.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 4, State: state})
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), state.Fingerprint) {
		t.Errorf("other data: %v", err)
	}
	seen, _ := all(t, other, nebulaio.LoaderOptions{Batch: 4, State: state, AllowChanged: true, Epochs: 1}, 100)
	if len(seen) != 28 {
		t.Errorf("%d samples of the changed data, expected 28", len(seen))
	}
	fewer := openData(t, nebulaio.DataOptions{}, filepath.Join(dir, "train-{00..00}.tar"))
	_, err = fewer.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 4, State: state, AllowChanged: true})
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "20") {
		t.Errorf("fewer samples: %v", err)
	}
}

func TestTheReportOfALoader(t *testing.T) {
	d := openData(t, nebulaio.DataOptions{}, tars(t, 2, 20))
	l, err := d.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 8, Epochs: 2, Tail: "short",
		Columns: []string{"txt"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); fault.KindOf(err) != fault.Invalid {
		t.Errorf("closing data with a loader: %v", err)
	}
	bytes := int64(0)
	for range 7 {
		b, err := l.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bytes += b.Columns[0].Size
		b.Free()
	}
	r := l.Report()
	routed := int64(0)
	for _, share := range r.Total.Routes {
		routed += share.Bytes
	}
	if r.Device.ID != "host" || r.Total.Batches != 7 || r.Total.Samples != 56 || r.Total.Bytes != bytes ||
		routed != bytes {
		t.Errorf("%+v, expected 56 samples with %d bytes", r.Total, bytes)
	}
	if len(r.Epochs) != 2 || r.Epochs[0].Samples != 40 || r.Epochs[1].Samples != 16 || r.Epochs[1].Epoch != 1 {
		t.Errorf("epochs %+v", r.Epochs)
	}
	if len(r.Refusals) == 0 || r.Refusals[0].What != "gpu" {
		t.Errorf("refusals %+v", r.Refusals)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Next(ctx); fault.KindOf(err) != fault.Closed {
		t.Errorf("after Close: %v", err)
	}
}

// TestSamplesCanBeRead reads parts of samples without a loader.
func TestSamplesCanBeRead(t *testing.T) {
	d := openData(t, nebulaio.DataOptions{}, tars(t, 1, 5))
	s, err := d.Sample(3)
	if err != nil || s.Key != "000003" || len(s.Parts) != 2 || s.Parts[1].Column != "txt" {
		t.Fatalf("%+v, %v", s, err)
	}
	if b, err := d.Read(t.Context(), 3, "txt"); err != nil || string(b) != text(3, "txt") {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := d.Read(t.Context(), 3, "png"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a column that is not there: %v", err)
	}
	if _, err := d.Sample(5); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "0 to 4") {
		t.Errorf("sample 5 of 5: %v", err)
	}
}

// TestALoaderNamesWhatIsMissing removes a file after its index was read.
func TestALoaderNamesWhatIsMissing(t *testing.T) {
	dir := tars(t, 3, 10)
	d := openData(t, nebulaio.DataOptions{}, dir)
	gone := filepath.Join(dir, "train-02.tar")
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	l, err := d.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 4, World: 2, Tail: "pad", Shuffle: "stored"})
	if err != nil {
		t.Fatal(err)
	}
	if l.Batches() != 4 || l.Start().Samples != 30 {
		t.Errorf("%d batches, %+v", l.Batches(), l.Start())
	}
	for err == nil {
		var b *nebulaio.DataBatch
		if b, err = l.Next(t.Context()); err == nil {
			b.Free()
		}
	}
	if fault.KindOf(err) != fault.NotFound || !strings.Contains(err.Error(), gone) ||
		!strings.Contains(err.Error(), "sample 2") {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if keys, err := d.Keys([]int64{29, 0}); err != nil || !slices.Equal(keys, []string{"000029", "000000"}) {
		t.Errorf("%q, %v", keys, err)
	}
	if _, err := d.Keys([]int64{30}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("sample 30 of 30: %v", err)
	}
}

// TestBatchesOutliveTheirLoader closes a system under a loader, and then the loader under a batch.
func TestBatchesOutliveTheirLoader(t *testing.T) {
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		t.Fatal(err)
	}
	d, err := sys.OpenData(t.Context(), []string{tars(t, 1, 10)}, nebulaio.DataOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.NewLoader(t.Context(), nebulaio.LoaderOptions{Batch: 4})
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.Close(); fault.KindOf(err) != fault.Invalid {
		t.Errorf("closing a system with a loader: %v", err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if got, err := b.Read(1, 2); err != nil || string(got) != text(int(b.Samples[2]), "txt") {
		t.Errorf("%q, %v", got, err)
	}
	if err := errors.Join(d.Close(), sys.Close()); err != nil {
		t.Error(err)
	}
	b.FreeAfter(0)
	b.Free()
}
