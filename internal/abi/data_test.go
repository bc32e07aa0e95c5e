// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// samples writes files that are samples, and returns their folder.
func samples(t *testing.T, count int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range count {
		content := strings.Repeat(fmt.Sprint(i, ";"), i%5+1)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.bin", i)), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// openData opens a folder of samples.
func openData(t *testing.T, feeds abi.Feeds, sys uint64, folder string) uint64 {
	t.Helper()
	data, err := feeds.StartData(sys, []string{folder}, `{"format":"files"}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := feeds.Wait(data, -1); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestBatchesThroughTheABI reads an epoch with several threads, and checks each byte.
func TestBatchesThroughTheABI(t *testing.T) {
	var table abi.Table
	feeds := abi.Feeds{Table: &table}
	sys, err := table.OpenSystem(`{"devices":"off"}`)
	if err != nil {
		t.Fatal(err)
	}
	data := openData(t, feeds, sys, samples(t, 50))
	loader, err := feeds.OpenLoader(data, `{"batch":3,"epochs":1,"tail":"short","seed":18446744073709551615}`)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				h, b, running, err := feeds.Next(loader, 20*time.Millisecond)
				if err != nil {
					t.Error(err)
					return
				}
				if running {
					continue
				}
				if h == 0 {
					return
				}
				c := b.Columns[0]
				offsets := unsafe.Slice(c.Offsets, len(b.Samples)+1)
				for i, n := range b.Samples {
					got, err := b.Read(0, i)
					want := strings.Repeat(fmt.Sprint(n, ";"), int(n)%5+1)
					if err != nil || string(got) != want || offsets[i+1]-offsets[i] != int64(len(want)) {
						t.Errorf("sample %d: %q, %v", n, got, err)
					}
				}
				mu.Lock()
				seen = append(seen, b.Samples...)
				mu.Unlock()
				if len(b.Samples)%2 == 0 {
					err = table.Release(h)
				} else {
					err = feeds.FreeBatch(h, 0)
				}
				if err != nil {
					t.Error(err)
				}
				if err := feeds.FreeBatch(h, 0); !errs.Is(err, errs.Closed) {
					t.Errorf("freed twice: %v", err)
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(seen)
	for i, n := range seen {
		if int64(i) != n || len(seen) != 50 {
			t.Fatalf("%d samples: %v", len(seen), seen)
		}
	}
	for _, h := range []uint64{data, sys} {
		if err := table.Release(h); !errs.Is(err, errs.Invalid) {
			t.Errorf("released under a loader: %v", err)
		}
	}
	for _, h := range []uint64{loader, data, sys} {
		if err := table.Release(h); err != nil {
			t.Error(err)
		}
	}
}

// TestSamplesThroughTheABI reads the answers of data handles.
func TestSamplesThroughTheABI(t *testing.T) {
	var table abi.Table
	feeds := abi.Feeds{Table: &table}
	sys, err := table.OpenSystem(`{"devices":"off"}`)
	if err != nil {
		t.Fatal(err)
	}
	folder := samples(t, 4)
	data := openData(t, feeds, sys, folder)
	if _, err := feeds.OpenLoader(sys, ""); !errs.Is(err, errs.Closed) {
		t.Errorf("a loader of a system: %v", err)
	}
	keys, err := feeds.Keys(data, []int64{2, 0})
	if err != nil || string(keys) != `["002.bin","000.bin"]` {
		t.Errorf("%s, %v", keys, err)
	}
	text, err := feeds.Sample(data, 3)
	var s struct {
		Parts []struct {
			Column string `json:"column"`
		} `json:"parts"`
	}
	if err != nil || json.Unmarshal(text, &s) != nil || len(s.Parts) != 1 {
		t.Fatalf("%s, %v", text, err)
	}
	read, err := feeds.StartSampleRead(data, 3, s.Parts[0].Column)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := table.Wait(read, -1); err != nil {
		t.Fatal(err)
	}
	if b, err := table.Report(read); err != nil || string(b) != "3;3;3;3;" {
		t.Errorf("%q, %v", b, err)
	}
	missing, err := feeds.StartData(sys, []string{folder + "/none"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := table.Wait(missing, -1); !errs.Is(err, errs.NotFound) {
		t.Errorf("data that is not there: %v", err)
	}
	if _, err := feeds.Sample(missing, 0); !errs.Is(err, errs.NotFound) {
		t.Errorf("a sample of data that is not there: %v", err)
	}
	for _, h := range []uint64{missing, read, data, sys} {
		if err := table.Release(h); err != nil {
			t.Error(err)
		}
	}
}
