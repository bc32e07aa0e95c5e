// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process/image"
)

// memory is a container in memory.
type memory struct{ *bytes.Reader }

func (memory) Name() string { return "test.image" }

func source(b []byte) image.Source { return memory{bytes.NewReader(b)} }

func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// sample has files that are empty, small, and of several frames, written at the same time.
func sample(t testing.TB) ([]byte, map[string][]byte) {
	t.Helper()
	files := map[string][]byte{"inventory.img": noise(86, 1), "empty.img": {},
		"pages-1.img": noise(2*image.FrameData+77, 2), "core-7.img": noise(2348, 3), "exact.img": noise(image.FrameData, 4)}
	var out bytes.Buffer
	w := image.NewWriter(&out)
	var wg sync.WaitGroup
	for name, data := range files {
		wg.Go(func() {
			f, err := w.Create(name)
			if err != nil {
				t.Error(err)
				return
			}
			if n, err := f.ReadFrom(bytes.NewReader(data)); n != int64(len(data)) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	index, size, err := w.Finish(image.Index{PID: 7, Name: "python", Tool: "criu 4.2"})
	if err != nil || size != int64(out.Len()) || index.Bytes != w.Bytes() {
		t.Fatalf("%+v, %d, %v", index, size, err)
	}
	return out.Bytes(), files
}

func TestFilesComeBack(t *testing.T) {
	data, files := sample(t)
	m, err := image.Open(source(data))
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	if err := m.Verify(t.Context(), func(done, total int64) { last = done }); err != nil || last != int64(len(data)) {
		t.Fatalf("%v, %d", err, last)
	}
	if got := m.Index(); got.PID != 7 || got.Name != "python" || len(got.Files) != len(files) {
		t.Errorf("%+v", got)
	}
	for name, want := range files {
		var got bytes.Buffer
		if n, err := m.WriteFile(t.Context(), name, &got); err != nil || n != int64(len(want)) || !m.Has(name) ||
			!bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
	if _, err := m.WriteFile(t.Context(), "other.img", &bytes.Buffer{}); !errs.Is(err, errs.NotFound) ||
		m.Has("other.img") {
		t.Errorf("%v", err)
	}
}

func TestTheLastFileOfANameCounts(t *testing.T) {
	var out bytes.Buffer
	w := image.NewWriter(&out)
	for _, text := range []string{"old", "new"} {
		f, err := w.Create("a.img")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Create("a.img"); !errs.Is(err, errs.Invalid) {
			t.Errorf("two writers of a file: %v", err)
		}
		if _, err := f.ReadFrom(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if index, _, err := w.Finish(image.Index{}); err != nil || len(index.Files) != 1 || index.Bytes != 3 {
		t.Fatalf("%+v, %v", index, err)
	}
	m, err := image.Open(source(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := m.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := m.WriteFile(t.Context(), "a.img", &got); err != nil || got.String() != "new" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

// Every flipped bit is found before anything is restored: by Open or by Verify.
func TestEachFlippedBitIsFound(t *testing.T) {
	var out bytes.Buffer
	w := image.NewWriter(&out)
	for i := range 3 {
		f, err := w.Create(fmt.Sprintf("f%d.img", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadFrom(bytes.NewReader(noise(100*i, uint64(i)))); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := w.Finish(image.Index{PID: 1}); err != nil {
		t.Fatal(err)
	}
	whole := out.Bytes()
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			m, err := image.Open(source(b))
			if err == nil {
				err = m.Verify(t.Context(), nil)
			}
			if !errs.Is(err, errs.Corrupt) && !(i >= 8 && i < 16 && errs.Is(err, errs.Unsupported)) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
	for n := range whole {
		if _, err := image.Open(source(whole[:n])); !errs.Is(err, errs.Corrupt) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := image.Open(source(append(bytes.Clone(whole), 0))); !errs.Is(err, errs.Corrupt) {
		t.Errorf("one byte more: %v", err)
	}
}

// Damage between the verification and the use is found too.
func TestDamageAfterVerifyIsFound(t *testing.T) {
	data, _ := sample(t)
	m, err := image.Open(source(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Index().Files {
		for _, p := range f.Parts {
			data[p.Off+p.Len/2] ^= 4
		}
		if len(f.Parts) > 0 {
			var out bytes.Buffer
			if _, err := m.WriteFile(t.Context(), f.Name, &out); !errs.Is(err, errs.Corrupt) ||
				!strings.Contains(err.Error(), f.Name) || out.Len() != 0 {
				t.Errorf("%v", err)
			}
		}
	}
}

// limited fails after some bytes, as a full disk does.
type limited struct{ room int }

var errFull = errors.New("no space")

func (l *limited) Write(p []byte) (int, error) {
	if l.room -= len(p); l.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriterErrors(t *testing.T) {
	for _, room := range []int{0, 20, 50, 3000} {
		w := image.NewWriter(&limited{room})
		f, err := w.Create("a.img")
		if err == nil {
			_, err = f.ReadFrom(bytes.NewReader(noise(5000, 1)))
		}
		if !errors.Is(err, errFull) {
			t.Errorf("%d: %v", room, err)
		}
		if f != nil {
			if err := f.Close(); !errors.Is(err, errFull) {
				t.Errorf("%d: %v", room, err)
			}
		}
		if _, _, err := w.Finish(image.Index{}); err == nil {
			t.Errorf("%d: finished", room)
		}
	}
	w := image.NewWriter(&limited{1 << 20})
	if _, _, err := w.Finish(image.Index{}); !errs.Is(err, errs.Invalid) {
		t.Errorf("no file: %v", err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "a\x00", strings.Repeat("x", 256)} {
		if _, err := w.Create(name); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := w.Create("open.img"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Finish(image.Index{}); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "open.img") {
		t.Errorf("%v", err)
	}
}

func TestVerifyStops(t *testing.T) {
	data, _ := sample(t)
	m, err := image.Open(source(data))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Verify(ctx, nil); !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v", err)
	}
	if _, err := m.WriteFile(ctx, "pages-1.img", &bytes.Buffer{}); !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v", err)
	}
}

func FuzzOpen(f *testing.F) {
	var out bytes.Buffer
	w := image.NewWriter(&out)
	file, err := w.Create("a.img")
	if err != nil {
		f.Fatal(err)
	}
	if _, err := file.ReadFrom(strings.NewReader("text")); err != nil {
		f.Fatal(err)
	}
	if err := file.Close(); err != nil {
		f.Fatal(err)
	}
	if _, _, err := w.Finish(image.Index{PID: 3}); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add([]byte("NEBULAPR"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := image.Open(source(b))
		if err != nil {
			return
		}
		if err := m.Verify(t.Context(), nil); err != nil {
			return
		}
		for _, file := range m.Index().Files {
			if n, err := m.WriteFile(t.Context(), file.Name, &bytes.Buffer{}); err != nil || n != file.Size {
				t.Errorf("%s: %d, %v", file.Name, n, err)
			}
		}
	})
}
