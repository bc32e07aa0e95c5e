// SPDX-License-Identifier: Apache-2.0

package transfer_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Benchmarks of the network route beside bare TCP streams. The servers run in
// another process, so that the CPU seconds are the reader's. NEBULAIO_BENCH_DEVICE
// names a device (host), NEBULAIO_BENCH_MIB the size (256).
//
//	go test ./internal/transfer -run '^$' -bench Network -benchtime 20x

const benchServing = "NEBULAIO_BENCH_SERVE"

// TestServeBenchmarks is the servers' process; it ends with its standard input.
func TestServeBenchmarks(t *testing.T) {
	path := os.Getenv(benchServing)
	if path == "" {
		t.Skip("only as a child of the benchmarks")
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go http.Serve(web, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		w.Header().Set("ETag", `"one"`)
		http.ServeContent(w, r, "", time.Time{}, f)
	}))
	go func() {
		for {
			c, err := bare.Accept()
			if err != nil {
				return
			}
			go sendBare(c.(*net.TCPConn), path)
		}
	}()
	fmt.Printf("\nserving %s %s\n", web.Addr(), bare.Addr())
	io.Copy(io.Discard, os.Stdin)
}

// sendBare sends ranges with sendfile: 16 bytes ask for one.
func sendBare(c *net.TCPConn, path string) {
	defer c.Close()
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	for {
		var ask [16]byte
		if _, err := io.ReadFull(c, ask[:]); err != nil {
			return
		}
		off, n := binary.LittleEndian.Uint64(ask[:8]), binary.LittleEndian.Uint64(ask[8:])
		if _, err := f.Seek(int64(off), io.SeekStart); err != nil {
			return
		}
		if _, err := io.CopyN(c, f, int64(n)); err != nil {
			return
		}
	}
}

type benchEnd struct {
	web, bare string
	size      int64
}

func serveBench(b *testing.B) benchEnd {
	size := int64(256)
	if s := os.Getenv("NEBULAIO_BENCH_MIB"); s != "" {
		if _, err := fmt.Sscan(s, &size); err != nil {
			b.Fatal(err)
		}
	}
	size *= units.MiB
	path := filepath.Join(b.TempDir(), "object")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	block := make([]byte, units.MiB)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for at := int64(0); at < size; at += int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	f.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServeBenchmarks$", "-test.v")
	cmd.Env = append(os.Environ(), benchServing+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	end := benchEnd{size: size}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "serving "); ok {
			end.web, end.bare, _ = strings.Cut(rest, " ")
			break
		}
	}
	if end.web == "" {
		b.Fatal("the servers do not say where they listen")
	}
	go io.Copy(io.Discard, out)
	return end
}

func benchDevice(b *testing.B) device.Device {
	id := os.Getenv("NEBULAIO_BENCH_DEVICE")
	if id == "" {
		id = "host"
	}
	set, err := open.New(open.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { set.Close() })
	d, err := set.Open(context.Background(), id)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// spent is this process's CPU time.
func spent() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func measured(b *testing.B, size int64, do func()) {
	do() // connections, staging
	b.SetBytes(size)
	cpu := spent()
	for b.Loop() {
		do()
	}
	b.ReportMetric((spent()-cpu).Seconds()/float64(b.N)/(float64(size)/float64(units.GiB)), "cpu-s/GiB")
}

func BenchmarkNetwork(b *testing.B) {
	end := serveBench(b)
	for _, conns := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("bare/ring/%d", conns), func(b *testing.B) { benchBare(b, end, conns, units.MiB) })
		b.Run(fmt.Sprintf("engine/nowhere/%d", conns), func(b *testing.B) { benchEngine(b, end, conns, nowhere{}) })
		b.Run(fmt.Sprintf("bare/memory/%d", conns), func(b *testing.B) { benchBare(b, end, conns, end.size/int64(conns)) })
		b.Run(fmt.Sprintf("engine/device/%d", conns), func(b *testing.B) { benchEngine(b, end, conns, benchDevice(b)) })
	}
}

// benchBare reads with so many streams into so much memory each, over and over: what TCP gives here.
func benchBare(b *testing.B, end benchEnd, conns int, room int64) {
	share := end.size / int64(conns)
	streams := make([]net.Conn, conns)
	for i := range streams {
		c, err := net.Dial("tcp", end.bare)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		streams[i] = c
	}
	bufs := make([][]byte, conns)
	for i := range bufs {
		bufs[i] = make([]byte, room)
	}
	measured(b, share*int64(conns), func() {
		var wg sync.WaitGroup
		for i, c := range streams {
			wg.Go(func() {
				var ask [16]byte
				binary.LittleEndian.PutUint64(ask[:8], uint64(int64(i)*share))
				binary.LittleEndian.PutUint64(ask[8:], uint64(share))
				if _, err := c.Write(ask[:]); err != nil {
					b.Error(err)
					return
				}
				for left := share; left > 0; {
					at := (share - left) % room
					n, err := c.Read(bufs[i][at:min(at+left, at+units.MiB, room)])
					if left -= int64(n); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// benchEngine reads an object over HTTP to the device.
func benchEngine(b *testing.B, end benchEnd, conns int, d device.Device) {
	e, err := transfer.New(transfer.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	c, err := s3.New(s3.Options{Endpoint: "http://" + end.web, AccessKey: "a", SecretKey: "b", Connections: conns})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	o, err := c.Open(context.Background(), "b", "k", "")
	if err != nil {
		b.Fatal(err)
	}
	mem, err := d.Alloc(end.size)
	if err != nil {
		b.Fatal(err)
	}
	defer mem.Free()
	f := o.File()
	measured(b, end.size, func() {
		t, err := e.Start(context.Background(), transfer.Request{Device: d, Files: []*vfs.File{f},
			Segments: []transfer.Segment{{Len: end.size, Dst: mem.Ptr()}}})
		if err == nil {
			err = t.Err()
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}

// nowhere is a device that takes copies and does nothing: what is left is the engine's own work.
type nowhere struct{}

func (nowhere) Info() device.Info                     { return device.Info{ID: "nowhere", Kind: "none"} }
func (nowhere) Alloc(n int64) (device.Buffer, error)  { return noBuffer(n), nil }
func (nowhere) Register([]byte) (func() error, error) { return func() error { return nil }, nil }
func (nowhere) NewQueue() (device.Queue, error)       { return nowhere{}, nil }
func (nowhere) Close() error                          { return nil }
func (nowhere) CopyIn(device.Ptr, []byte) error       { return nil }
func (nowhere) CopyOut([]byte, device.Ptr) error      { return nil }
func (nowhere) NewMark() (device.Mark, error)         { return noMark{}, nil }
func (nowhere) After(uint64) error                    { return nil }
func (nowhere) Drain() error                          { return nil }

type noMark struct{}

func (noMark) Record() error       { return nil }
func (noMark) Wait() error         { return nil }
func (noMark) Done() (bool, error) { return true, nil }
func (noMark) Close() error        { return nil }

type noBuffer int64

func (noBuffer) Ptr() device.Ptr { return 1 << 20 }
func (b noBuffer) Size() int64   { return int64(b) }
func (noBuffer) Free() error     { return nil }
