// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// cpu is the processor time that the process, or the thread, has used.
func cpu(t testing.TB, who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFill counts the processor's seconds for a GiB of durable content, the body coming from memory.
func BenchmarkFill(b *testing.B) {
	const size = 64 << 20
	data := noise(size, 1)
	for _, md5 := range []bool{false, true} {
		for _, streams := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("md5=%v/streams=%d", md5, streams), func(b *testing.B) {
				f := open(b, Options{FS: vfs.Default, Dir: b.TempDir()})
				var ids, left atomic.Int64
				left.Store(int64(b.N))
				b.SetBytes(size)
				begin := cpu(b, unix.RUSAGE_SELF)
				var all sync.WaitGroup
				for range streams {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							w, err := f.Create(ID(ids.Add(1)), size)
							if err == nil {
								_, err = w.Fill(context.Background(), struct{ io.Reader }{bytes.NewReader(data)}, size, md5)
							}
							if err == nil {
								err = w.Sync(context.Background())
							}
							if err == nil {
								err = w.Abort()
							}
							if err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric((cpu(b, unix.RUSAGE_SELF)-begin).Seconds()/(float64(b.N)*size/(1<<30)), "cpu-s/GiB")
			})
		}
	}
}

// pipe returns the two ends of a TCP connection over loopback.
func pipe(t testing.TB) (server, client *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); c.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

// BenchmarkSend counts the processor's microseconds for ranges of a file that go through a socket, on the sending side;
// "bare" is the same with nothing but the standard library.
func BenchmarkSend(b *testing.B) {
	const size = 64 << 20
	data := noise(size, 1)
	for _, n := range []int64{128 << 10, 1 << 20, 64 << 20} {
		for _, kind := range []string{"bare", "first", "always", "never", "read"} {
			b.Run(fmt.Sprintf("%s/%dK", kind, n>>10), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				policy := Policy(kind)
				if kind == "bare" || kind == "read" {
					policy = VerifyNever
				}
				f := open(b, Options{FS: vfs.Default, Dir: b.TempDir(), Verify: policy})
				out := write(b, f, 1, data)
				if err := f.Flush(); err != nil {
					b.Fatal(err)
				}
				server, client := pipe(b)
				received := make(chan int64)
				go func() {
					k, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{client}, make([]byte, 256<<10))
					received <- k
				}()
				file, err := os.Open(f.Path(1))
				if err != nil {
					b.Fatal(err)
				}
				defer file.Close()
				w := bufio.NewWriterSize(server, 4096)
				send := func(off int64) {
					io.WriteString(w, "HTTP/1.1 206 Partial Content\r\n\r\n")
					if kind == "bare" {
						if err := w.Flush(); err != nil {
							b.Fatal(err)
						}
						if _, err := file.Seek(off, io.SeekStart); err != nil {
							b.Fatal(err)
						}
						if _, err := w.ReadFrom(&io.LimitedReader{R: file, N: n}); err != nil {
							b.Fatal(err)
						}
						return
					}
					r, err := f.OpenRead(1, size, func() ([]uint64, error) { return out.Sums, nil })
					if err != nil {
						b.Fatal(err)
					}
					body, err := r.Section(off, n)
					if err != nil {
						b.Fatal(err)
					}
					if kind == "read" {
						_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{body}, make([]byte, 256<<10))
					} else {
						_, err = body.WriteTo(w)
					}
					if err != nil {
						b.Fatal(err)
					}
					body.Close()
					r.Close()
				}
				for off := int64(0); off < size; off += n {
					send(off)
				}
				b.SetBytes(n)
				begin := cpu(b, unix.RUSAGE_THREAD)
				b.ResetTimer()
				for i := range b.N {
					send(int64(i) * n % size)
				}
				w.Flush()
				server.Close()
				<-received
				b.ReportMetric(float64((cpu(b, unix.RUSAGE_THREAD)-begin).Microseconds())/float64(b.N), "cpu-µs/op")
			})
		}
	}
}
