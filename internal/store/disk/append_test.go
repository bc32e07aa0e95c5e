// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

const testDirectory = "base--z1--x-s3"

// appended appends data and returns the description of the longer object.
func appended(t *testing.T, s *Store, key string, off int64, data []byte) object.Info {
	t.Helper()
	i, err := s.Append(t.Context(), object.Append{Bucket: testDirectory, Key: key, Offset: off, Size: int64(len(data)),
		Body: bytes.NewReader(data)})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// wantHanded compares what a handle hands out with data.
func wantHanded(t *testing.T, h object.Handle, data []byte) {
	t.Helper()
	if i := h.Info(); i.Size != int64(len(data)) || i.CRC64 != checksum.Of(data) {
		t.Errorf("the handle has %d bytes with the sum %x, expected %d with %x", i.Size, i.CRC64, len(data),
			checksum.Of(data))
	}
	sums, err := h.Sums(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for n := range record.BlocksOf(int64(len(data))) {
		block := data[n*record.BlockSize : min((n+1)*record.BlockSize, int64(len(data)))]
		if n >= int64(len(sums)) || sums[n] != checksum.Of(block) {
			t.Fatalf("block %d of %d bytes has another sum", n, len(data))
		}
	}
	f, err := h.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(f, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the file has other bytes: %v", err)
	}
}

// TestHandlesOfAGrowingObject appends while clients of the door have the object open. Each handle keeps its length, its
// bytes and its sums.
func TestHandlesOfAGrowingObject(t *testing.T) {
	s := openReal(t, filepath.Join(t.TempDir(), "s"))
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: testDirectory})
	all := storetest.Bytes(1, 10<<20)
	at := []int{6000, 6001, 900_000, 3 << 20, 3<<20 + 5, 9<<20 + 77, 10 << 20} // crosses blocks, and sums that need chunks
	last := 0
	var handles []object.Handle
	for _, end := range at {
		appended(t, s, "log", int64(last), all[last:end])
		last = end
		h, err := s.Handle(t.Context(), object.Ref{Bucket: testDirectory, Key: "log"})
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	for i, h := range handles {
		wantHanded(t, h, all[:at[i]])
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := s.Scrub(t.Context(), ScrubOptions{}); err != nil || r.Damaged > 0 {
		t.Errorf("scrub: %+v, %v", r, err)
	}
}

// TestLayoutOfADirectoryBucket: content above 4 KiB has a file with whole pages, in an ordinary bucket it is inline.
func TestLayoutOfADirectoryBucket(t *testing.T) {
	s := openReal(t, filepath.Join(t.TempDir(), "s"))
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: testDirectory})
	makeBucket(t, s, object.Bucket{Name: "plain"})
	for _, bucket := range []string{testDirectory, "plain"} {
		for _, n := range []int{4096, 4097} {
			put := object.Put{Bucket: bucket, Key: "k", Size: int64(n), Body: bytes.NewReader(storetest.Bytes(2, n))}
			if _, err := s.Put(t.Context(), put); err != nil {
				t.Fatal(err)
			}
			h, err := s.Handle(t.Context(), object.Ref{Bucket: bucket, Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			_, inline := h.Inline()
			if want := bucket == "plain" || n <= object.DirectoryInline; inline != want {
				t.Errorf("%d bytes in %s: inline %t, expected %t", n, bucket, inline, want)
			}
			if !inline {
				var st syscall.Stat_t
				if err := syscall.Stat(h.Path(), &st); err != nil || st.Size != int64(n) || st.Blocks*512 < 8192 {
					t.Errorf("the file has %d bytes in %d blocks, expected %d in two pages: %v", st.Size, st.Blocks, n, err)
				}
			}
			_ = h.Close()
		}
	}
	// A copy from an ordinary bucket gets the layout of the directory bucket, and its ETag.
	i, err := s.Copy(t.Context(), object.Copy{From: object.Ref{Bucket: "plain", Key: "k"}, Bucket: testDirectory,
		Key: "copy"})
	if err != nil || i.ETag != object.CRC64ETag(i.CRC64, i.Size, 1) {
		t.Errorf("the copy has the ETag %q: %v", i.ETag, err)
	}
	h, err := s.Handle(t.Context(), object.Ref{Bucket: testDirectory, Key: "copy"})
	if err != nil {
		t.Fatal(err)
	}
	if _, inline := h.Inline(); inline {
		t.Error("a copy of 4097 bytes is inline")
	}
	_ = h.Close()
}

// TestALeftoverOfAnAppend leaves bytes behind the end of a file, as a crash in the middle of an append does. A check
// finds nothing wrong, a backup leaves them out, and the next append overwrites them.
func TestALeftoverOfAnAppend(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openReal(t, dir)
	makeBucket(t, s, object.Bucket{Name: testDirectory})
	data := storetest.Bytes(3, 100_000)
	appended(t, s, "log", 0, data)
	h, err := s.Handle(t.Context(), object.Ref{Bucket: testDirectory, Key: "log"})
	if err != nil {
		t.Fatal(err)
	}
	id, err := datafile.ParseID(filepath.Base(h.Path()))
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Close()
	closed(t, s)
	path := s.files.Path(id)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(storetest.Bytes(4, 5000)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Check(t.Context(), Options{Dir: dir}, check.Options{})
	if err != nil || r.Found > 0 {
		t.Fatalf("check: %+v, %v", r.Problems, err)
	}
	s = openReal(t, dir)
	defer closed(t, s)
	to := filepath.Join(t.TempDir(), "backup")
	if _, err := s.Backup(t.Context(), backup.Options{To: to, Verify: true}); err != nil {
		t.Fatal(err)
	}
	appended(t, s, "log", int64(len(data)), []byte("tail"))
	_, got, err := storetest.Read(t.Context(), s, object.Ref{Bucket: testDirectory, Key: "log"})
	if err != nil || !bytes.Equal(got, append(data, "tail"...)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestTokensOfRenamesAreForgotten: a token counts for at least an hour, and old tokens are removed.
func TestTokensOfRenamesAreForgotten(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := openReal(t, filepath.Join(t.TempDir(), "s"), func(o *Options) { o.Now = func() time.Time { return now } })
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: testDirectory})
	rename := func(from, to, token string) {
		t.Helper()
		if err := s.Rename(t.Context(), object.Rename{Bucket: testDirectory, From: from, To: to, Token: token}); err != nil {
			t.Fatal(err)
		}
	}
	appended(t, s, "a", 0, []byte("x"))
	rename("a", "b", "one")
	now = now.Add(time.Hour)
	rename("a", "b", "one") // done before
	for range 3 {
		now = now.Add(2 * time.Hour)
		rename("b", "a", now.String())
		rename("a", "b", now.String()+"back")
	}
	names, err := s.RecordNames(t.Context(), tokenKind)
	if err != nil || len(names) != 2 {
		t.Errorf("%d tokens, expected those of the last hour: %q, %v", len(names), names, err)
	}
}

// TestOldContentAfterAnAppend reads content that was opened before an append, whose sums are too many for the record
// and were rewritten by the append. A scrub and a backup run across appends, and find no damage.
func TestOldContentAfterAnAppend(t *testing.T) {
	s := openReal(t, filepath.Join(t.TempDir(), "s"))
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: testDirectory})
	all := storetest.Bytes(5, 10<<20+500_000)
	old := all[:10<<20+1000]
	appended(t, s, "log", 0, old)
	ref := object.Ref{Bucket: testDirectory, Key: "log"}
	fresh, err := s.Open(t.Context(), ref) // whose blocks were not compared yet
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := storetest.Read(t.Context(), s, ref); err != nil {
		t.Fatal(err)
	}
	known, err := s.Open(t.Context(), ref) // whose blocks were all compared
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for size := len(old); ; size += 1000 {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if size+1000 > len(all) {
				done <- nil
				return
			}
			if _, err := s.Append(t.Context(), object.Append{Bucket: testDirectory, Key: "log", Offset: int64(size), Size: 1000,
				Body: bytes.NewReader(all[size : size+1000])}); err != nil {
				done <- err
				return
			}
		}
	}()
	for n := range 3 {
		if r, err := s.Scrub(t.Context(), ScrubOptions{}); err != nil || r.Damaged > 0 {
			t.Errorf("scrub: %+v, %v", r, err)
		}
		to := filepath.Join(t.TempDir(), fmt.Sprint("backup", n))
		if _, err := s.Backup(t.Context(), backup.Options{To: to, Verify: true}); err != nil {
			t.Errorf("backup: %v", err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, c := range []object.Content{fresh, known} {
		for _, open := range []func(object.Range) (object.Body, error){c.Section, c.(object.Stricter).Strict} {
			body, err := open(object.Range{Off: 9 << 20, N: int64(len(old) - 9<<20)})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			if err != nil || !bytes.Equal(got, old[9<<20:]) {
				t.Errorf("%d bytes of the old tail: %v", len(got), err)
			}
			_ = body.Close()
		}
		_ = c.Close()
	}
}
