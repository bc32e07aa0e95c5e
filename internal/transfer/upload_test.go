// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// memUpload keeps what is sent to it. A part may have to be sent several times.
type memUpload struct {
	parallel int
	// again says how often a part is taken half and asked for anew; fail, if
	// not nil, what it then ends with.
	again func(number int) (times int, fail error)
	abort error
	stuck chan struct{} // if not nil, parts wait for it in the middle

	mu      sync.Mutex
	began   bool
	parts   map[int][]byte
	whole   []byte
	ended   string
	waiting int
}

func (m *memUpload) Name() string    { return "s3://b/k" }
func (m *memUpload) Parallel() int   { return m.parallel }
func (m *memUpload) Notes() []string { return []string{"a note of the upload"} }

func (m *memUpload) Begin(context.Context) error {
	m.began, m.parts = true, map[int][]byte{}
	return nil
}

func (m *memUpload) Whole(ctx context.Context, size int64, open func() (vfs.Blocks, error)) error {
	b, err := open()
	if err != nil {
		return err
	}
	defer b.Close()
	m.whole, err = takeBlocks(b, size, size)
	m.ended = "whole"
	return err
}

// takeBlocks reads up to n of size bytes.
func takeBlocks(b vfs.Blocks, size, n int64) ([]byte, error) {
	out := make([]byte, 0, size)
	for int64(len(out)) < n {
		p, err := b.Next()
		if err != nil {
			return out, err
		}
		out = append(out, p...)
	}
	if n == size {
		if _, err := b.Next(); err != io.EOF {
			return out, fmt.Errorf("behind the last block: %v", err)
		}
	}
	return out, nil
}

func (m *memUpload) Part(ctx context.Context, number int, size, block int64, open func() (vfs.Blocks, error)) error {
	times, fail := 0, error(nil)
	if m.again != nil {
		times, fail = m.again(number)
	}
	for i := 0; ; i++ {
		b, err := open()
		if err != nil {
			return err
		}
		n := size
		if i < times {
			n = size / 2
		}
		data, err := takeBlocks(b, size, n)
		if m.stuck != nil {
			m.mu.Lock()
			m.waiting++
			m.mu.Unlock()
			select {
			case <-m.stuck:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		b.Close()
		switch {
		case err != nil:
			return err
		case i < times && fail != nil:
			return fail
		case i < times:
			continue
		}
		m.mu.Lock()
		m.parts[number] = data
		m.mu.Unlock()
		return nil
	}
}

func (m *memUpload) Complete(context.Context) error {
	for i := 1; i <= len(m.parts); i++ {
		if m.parts[i] == nil {
			return fmt.Errorf("part %d is missing", i)
		}
		m.whole = append(m.whole, m.parts[i]...)
	}
	m.ended = "complete"
	return nil
}

func (m *memUpload) Abort(context.Context) error {
	if m.began && m.ended == "" {
		m.ended = "aborted"
	}
	return m.abort
}

// memory puts data on a device.
func memory(t *testing.T, to target, data []byte) device.Buffer {
	b := alloc(t, to.dev, int64(len(data)))
	copy(to.read(b.Ptr(), int64(len(data))), data)
	return b
}

func TestUploadSendsWhatLiesOnDevices(t *testing.T) {
	all := targets(t)
	for _, size := range []int64{1, units.MiB, vfs.MostWhole, vfs.MostWhole + 1, 19*units.MiB + 99} {
		data := noise(size, 31)
		for name, to := range all {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				e := newEngine(t, Options{Poison: true})
				b := memory(t, to, data)
				m := &memUpload{parallel: 3, again: func(n int) (int, error) { return n % 2, nil }}
				u, err := e.StartUpload(context.Background(), UploadRequest{To: m,
					Sources: []Source{{Len: size, Device: to.dev, Ptr: b.Ptr()}}, Sums: true})
				if err != nil {
					t.Fatal(err)
				}
				if err := u.Wait(); err != nil {
					t.Fatal(err)
				}
				if s := u.Sums(); s.Whole() != checksum.Of(data) || s.Blocks[0] != checksum.Of(data[:min(size, s.Block)]) {
					t.Errorf("the sums of %d blocks are not those of the object", len(s.Blocks))
				}
				to.idle()
				if !bytes.Equal(m.whole, data) {
					t.Fatal("other bytes arrived")
				}
				want := "complete"
				if size <= vfs.MostWhole {
					want = "whole"
				}
				done, total := u.Progress()
				r := u.Report()
				if m.ended != want || done != size || total != size || len(r.Routes) != 1 ||
					r.Routes[0].Route != report.RouteTakenNetwork || r.Routes[0].Bytes != size {
					t.Errorf("%s, %d of %d, %+v", m.ended, done, total, r.Routes)
				}
				if r.Direction != "save" || r.Engine.StagingUsed != (name != "in place") || r.Limiting == "none" ||
					len(r.Save.Sources) != 1 || !strings.Contains(fmt.Sprint(r.Notes), "a note of the upload") {
					t.Errorf("%+v", r)
				}
				if len(e.main.network.pairs) != e.main.network.paired {
					t.Errorf("%d of %d pairs of slots came back", len(e.main.network.pairs), e.main.network.paired)
				}
			})
		}
	}
}

func TestUploadOfManySources(t *testing.T) {
	data := noise(20*units.MiB+5, 32)
	all := targets(t)
	e := newEngine(t, Options{Poison: true})
	gpu := memory(t, all["gpu"], data)
	cpu := memory(t, all["in place"], data)
	var sources []Source
	for off, i := int64(0), 0; off < int64(len(data)); i++ {
		n := min(int64(len(data))-off, []int64{17, 3_000_000, 999_999, 1}[i%4])
		s := Source{Off: off, Len: n, Data: data[off : off+n]}
		switch i % 3 {
		case 0:
			s = Source{Off: off, Len: n, Device: all["gpu"].dev, Ptr: gpu.Ptr() + device.Ptr(off)}
		case 1:
			s = Source{Off: off, Len: n, Device: all["in place"].dev, Ptr: cpu.Ptr() + device.Ptr(off)}
		}
		sources = append(sources, s)
		off += n
	}
	m := &memUpload{parallel: 2}
	u, err := e.StartUpload(context.Background(), UploadRequest{To: m, Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Wait(); err != nil || !bytes.Equal(m.whole, data) {
		t.Fatalf("%v, %d bytes", err, len(m.whole))
	}
	if r := u.Report(); len(r.Save.Sources) != 3 || r.Device.Kind != report.CUDADevice {
		t.Errorf("%+v of %+v", r.Save.Sources, r.Device)
	}
}

func TestUploadOfNothing(t *testing.T) {
	e := newEngine(t, Options{})
	m := &memUpload{parallel: 2}
	u, err := e.StartUpload(context.Background(), UploadRequest{To: m})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Wait(); err != nil || m.ended != "whole" || len(m.whole) != 0 {
		t.Errorf("%v, %s", err, m.ended)
	}
	u.Report()
	if _, err := e.StartUpload(context.Background(), UploadRequest{To: m,
		Sources: []Source{{Off: 5, Len: 1, Data: []byte{1}}}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a hole: %v", err)
	}
}

func TestUploadThatFailsIsAborted(t *testing.T) {
	size := int64(26 * units.MiB)
	refused := errs.New(errs.Permission, "put part 3 of", "s3://b/k", "no")
	for name, to := range targets(t) {
		for _, abort := range []error{nil, errors.New("the server is gone")} {
			e := newEngine(t, Options{Poison: true})
			b := memory(t, to, noise(size, 33))
			m := &memUpload{parallel: 4, abort: abort, again: func(n int) (int, error) {
				if n == 3 {
					return 1, refused
				}
				return 0, nil
			}}
			u, err := e.StartUpload(context.Background(), UploadRequest{To: m,
				Sources: []Source{{Len: size, Device: to.dev, Ptr: b.Ptr()}}})
			if err != nil {
				t.Fatal(err)
			}
			err = u.Wait()
			to.idle()
			if !errs.Is(err, errs.Permission) || !errors.Is(err, refused) || m.ended != "aborted" {
				t.Errorf("%s: %v, %s", name, err, m.ended)
			}
			if abort != nil && (!errors.Is(err, abort) || !strings.Contains(err.Error(), "could not be taken back") ||
				errs.FixOf(err) == "") {
				t.Errorf("%s: %v", name, err)
			}
			if r := u.Report(); r.Error == "" {
				t.Error("a report without the error")
			}
			if len(e.main.network.pairs) != e.main.network.paired {
				t.Errorf("%s: %d of %d pairs of slots came back", name, len(e.main.network.pairs), e.main.network.paired)
			}
		}
	}
}

func TestUploadIsCancelled(t *testing.T) {
	size := int64(26 * units.MiB)
	for name, to := range targets(t) {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, Options{Poison: true})
			b := memory(t, to, noise(size, 34))
			m := &memUpload{parallel: 4, stuck: make(chan struct{})}
			ctx, cancel := context.WithCancel(context.Background())
			u, err := e.StartUpload(ctx, UploadRequest{To: m, Sources: []Source{{Len: size, Device: to.dev, Ptr: b.Ptr()}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); !errs.Is(err, errs.Invalid) {
				t.Errorf("closed while it ran: %v", err)
			}
			cancel()
			if err := u.Wait(); !errs.Is(err, errs.Cancelled) ||
				!strings.Contains(err.Error(), "upload s3://b/k after "+units.Bytes(u.Report().Bytes)) {
				t.Errorf("got %v, the report has %d bytes", err, u.Report().Bytes)
			}
			to.idle()
			if m.ended == "complete" {
				t.Error("it was completed")
			}
		})
	}
}

func TestAClosedEngineUploadsNothing(t *testing.T) {
	h := host.New()
	e := newEngine(t, Options{})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	b := alloc(t, h, 10)
	if _, err := e.StartUpload(context.Background(), UploadRequest{To: &memUpload{parallel: 1},
		Sources: []Source{{Len: 10, Device: h, Ptr: b.Ptr()}}}); !errs.Is(err, errs.Closed) {
		t.Errorf("got %v", err)
	}
}

func TestPartsAreWholeBlocksWithinBounds(t *testing.T) {
	for _, size := range []int64{vfs.MostWhole + 1, 100 * units.MiB, units.GiB, 700 * units.GiB, 5 << 40} {
		for _, conns := range []int{0, 1, 16, 64} {
			part := partOf(size, conns)
			if part%netBlock != 0 || part < leastPart || (size+part-1)/part > mostParts || part > mostPart &&
				(size+part-netBlock-1)/(part-netBlock) <= mostParts {
				t.Errorf("%d over %d: parts of %d", size, conns, part)
			}
		}
	}
}

func TestUploadWhenTheDeviceFails(t *testing.T) {
	size := int64(12 * units.MiB)
	data := noise(size, 35)
	for name, fail := range map[string]func(g *fakegpu.GPU){
		"queue copy": fakegpu.FailingCall("cuMemcpyDtoHAsync_v2", 5, fakegpu.InvalidValue),
		"copy":       fakegpu.FailingCopy(6, fakegpu.LaunchFailed, false),
		"record":     fakegpu.FailingCall("cuEventRecord", 3, fakegpu.InvalidValue),
		"make mark":  fakegpu.FailingCall("cuEventCreate", 1, fakegpu.OutOfMemory),
	} {
		t.Run(name, func(t *testing.T) {
			g, d := fakegpu.OpenOne(t)
			e := newEngine(t, Options{Poison: true})
			b := memory(t, target{d, g.Bytes, g.CheckIdle}, data)
			fail(g)
			m := &memUpload{parallel: 2}
			u, err := e.StartUpload(context.Background(), UploadRequest{To: m,
				Sources: []Source{{Len: size, Device: d, Ptr: b.Ptr()}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Wait(); err == nil || !strings.Contains(err.Error(), "s3://b/k from cuda:0") || m.ended != "aborted" {
				t.Errorf("%v, %s", err, m.ended)
			}
			g.CheckIdle()
			if len(e.main.network.pairs) != e.main.network.paired {
				t.Errorf("%d of %d pairs of slots came back", len(e.main.network.pairs), e.main.network.paired)
			}
		})
	}
}
