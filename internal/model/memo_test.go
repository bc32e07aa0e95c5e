// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/format/safetensors"
)

// headerOf returns a file of one tensor of n bytes.
func headerOf(name string, n int) []byte {
	text := fmt.Sprintf(`{%q:{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, name, n, n)
	return append(append([]byte{byte(len(text)), 0, 0, 0, 0, 0, 0, 0}, text...), make([]byte, n)...)
}

func openWith(t *testing.T, m *Memo, path string, o Options) *Model {
	t.Helper()
	o.Memo = m
	opened, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

func TestAMemoKnowsAFileByItsHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var memo Memo
	write(headerOf("abc", 8))
	first := openWith(t, &memo, path, Options{})
	if again := openWith(t, &memo, path, Options{}); again.Files[0] != first.Files[0] {
		t.Error("the same header was parsed twice")
	}
	if len(memo.known) != 1 {
		t.Errorf("%d headers are kept for one file", len(memo.known))
	}
	// The same path, size and length of the header: only the bytes tell.
	write(headerOf("abd", 8))
	if other := openWith(t, &memo, path, Options{}); other.Tensors[0].Name != "abd" || len(memo.known) != 1 {
		t.Errorf("%+v, %d headers", other.Tensors, len(memo.known))
	}
	if first.Tensors[0].Name != "abc" {
		t.Errorf("the open model has changed: %+v", first.Tensors)
	}
	host := openWith(t, &memo, path, Options{Addressable: true})
	if host.Layouts[0].Align == first.Layouts[0].Align {
		t.Errorf("layouts of host and device memory are equal: %+v", host.Layouts[0])
	}
	if chosen := openWith(t, &memo, path, Options{Tensors: []string{"ab*"}}); len(chosen.Tensors) != 1 {
		t.Errorf("%+v", chosen.Tensors)
	}
	if _, err := Open(t.Context(), path, Options{Memo: &memo, Tensors: []string{"x"}}); err == nil {
		t.Error("a glob without a match was accepted")
	}
	write(append(headerOf("abd", 8), 0))
	if _, err := Open(t.Context(), path, Options{Memo: &memo}); err == nil {
		t.Error("a longer file with the same header was accepted")
	}
}

func TestAMemoIsBounded(t *testing.T) {
	var memo Memo
	pad := strings.Repeat(" ", 1<<20)
	for i := range 3 * mostKnown {
		raw := headerOf("a", 8)
		header := append(bytes.Clone(raw[8:len(raw)-8]), pad...)
		if _, err := memo.parse(header, int64(8+len(header)+8), fmt.Sprint(i), safetensors.Strict); err != nil {
			t.Fatal(err)
		}
	}
	if len(memo.known) > mostKnown || memo.bytes > mostKnownBytes || memo.bytes < len(pad) {
		t.Errorf("%d headers of %d bytes", len(memo.known), memo.bytes)
	}
	sum := 0
	for _, k := range memo.known {
		sum += len(k.header)
	}
	if sum != memo.bytes {
		t.Errorf("%d bytes are counted, %d are kept", memo.bytes, sum)
	}
}

func TestFilesOfAModelShareNothingWrong(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"model-00001-of-00002", "model-00002-of-00002"} {
		if err := os.WriteFile(filepath.Join(dir, name+".safetensors"), headerOf(fmt.Sprint("t", i), 8), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var memo Memo
	for range 2 {
		m := openWith(t, &memo, dir, Options{})
		for i, p := range m.Tensors {
			if p.File != i || p.Name != fmt.Sprint("t", i) {
				t.Errorf("%d: %+v", i, p)
			}
		}
		second := openWith(t, &memo, filepath.Join(dir, "model-00002-of-00002.safetensors"), Options{})
		if second.Tensors[0].File != 0 {
			t.Errorf("%+v", second.Tensors)
		}
	}
}
