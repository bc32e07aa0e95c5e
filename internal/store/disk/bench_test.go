// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

func openDir(tb testing.TB, dir string) *Store {
	tb.Helper()
	s, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// streams runs work b.N times on n goroutines.
func streams(b *testing.B, n int, work func(i int64) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := work(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkPut4K compares durable small objects with the plain way: a file, its MD5, fsync of file and directory.
func BenchmarkPut4K(b *testing.B) {
	data := content1(4096, 1)
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("store/%d", n), func(b *testing.B) {
			s := openDir(b, b.TempDir())
			makeBucket(b, s, object.Bucket{Name: "b"})
			before := s.fence.Syncs.Load()
			streams(b, n, func(i int64) error {
				_, err := s.Put(context.Background(), object.Put{Bucket: "b", Key: fmt.Sprintf("k%08d", i), Size: 4096,
					Body: bytes.NewReader(data)})
				return err
			})
			b.ReportMetric(float64(s.fence.Syncs.Load()-before)/float64(b.N), "syncs/op")
			closed(b, s)
		})
		b.Run(fmt.Sprintf("plain/%d", n), func(b *testing.B) {
			dir := b.TempDir()
			streams(b, n, func(i int64) error {
				md5.Sum(data)
				f, err := os.Create(filepath.Join(dir, fmt.Sprintf("k%08d", i)))
				if err != nil {
					return err
				}
				if _, err := f.Write(data); err != nil {
					return err
				}
				if err := f.Sync(); err != nil {
					return err
				}
				if err := f.Close(); err != nil {
					return err
				}
				d, err := os.Open(dir)
				if err != nil {
					return err
				}
				defer d.Close()
				return d.Sync()
			})
		})
	}
}

func BenchmarkGet4K(b *testing.B) {
	s := openDir(b, b.TempDir())
	makeBucket(b, s, object.Bucket{Name: "b"})
	for i := range 1000 {
		putBytes(b, s, "b", fmt.Sprintf("k%08d", i), content1(4096, i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		readAll(b, s, object.Ref{Bucket: "b", Key: fmt.Sprintf("k%08d", i%1000)})
	}
	b.StopTimer()
	closed(b, s)
}

// cpu is what this process has used: on a busy machine the only figure that means something.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMillion measures a first page, a page in the middle, and reopening, with many keys in one bucket:
// NEBULAIO_KEYS of them.
func BenchmarkMillion(b *testing.B) {
	keys := 100000
	if v := os.Getenv("NEBULAIO_KEYS"); v != "" {
		if _, err := fmt.Sscan(v, &keys); err != nil {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	s := openDir(b, dir)
	makeBucket(b, s, object.Bucket{Name: "b"})
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < keys; i += 64 {
				putBytes(b, s, "b", fmt.Sprintf("one/dir%03d/k%08d", i%1000, i), content1(100, i))
			}
		})
	}
	wg.Wait()
	if err := s.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false); err != nil {
		b.Fatal(err)
	}
	for _, l := range []object.List{
		{Bucket: "b"}, {Bucket: "b", Delimiter: "/"}, {Bucket: "b", Prefix: "one/", Delimiter: "/"},
		{Bucket: "b", After: "one/dir500/"}, {Bucket: "b", Versions: true},
	} {
		b.Run(fmt.Sprintf("list/prefix=%s,delimiter=%s,after=%s,versions=%v", l.Prefix, l.Delimiter, l.After, l.Versions),
			func(b *testing.B) {
				before := cpu()
				for range b.N {
					if _, err := s.List(context.Background(), l); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-us/op")
			})
	}
	b.Run("reopen", func(b *testing.B) {
		for range b.N {
			closed(b, s)
			s = openDir(b, dir)
		}
	})
	closed(b, s)
}
