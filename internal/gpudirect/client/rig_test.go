// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	devices "github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

const (
	testKey    = "an-access-key"
	testSecret = "a-secret-of-some-length"
	testStore  = "store-under-test"
)

// judge allows everything but what lies under "forbidden/", and writes below "readonly/".
type judge struct{}

func (judge) Authorize(_ context.Context, a object.Access) error {
	if strings.HasPrefix(a.Key, "forbidden/") || a.Action == object.ActionPut && strings.HasPrefix(a.Key, "readonly/") {
		return errs.New(errs.Permission, string(a.Action), a.Bucket+"/"+a.Key, "a policy does not allow it")
	}
	return nil
}

func (judge) JudgeWrite() object.Judge { return nil }

func (judge) Describe(_ context.Context, _ string, d object.Description) (map[string]string, error) {
	out := map[string]string{"content-type": d.ContentType}
	for k, v := range d.Metadata {
		out["x-amz-meta-"+k] = v
	}
	return out, nil
}

// rig is a store with a door, and clients of it.
type rig struct {
	t        testing.TB
	store    *disk.Store
	socket   string
	settings server.Settings
	limits   server.Limits
	door     *server.Server
	serving  context.CancelFunc
	served   chan error

	gpu     *fakegpu.GPU // nil: host alone
	devices device.Set
	engine  *transfer.Engine
}

func newRig(t testing.TB, gpu bool, change ...func(*rig)) *rig {
	t.Helper()
	dir := t.TempDir()
	st, err := disk.Open(t.Context(), disk.Options{Dir: filepath.Join(dir, "data"), Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	r := &rig{t: t, store: st, socket: filepath.Join(dir, "door.sock"),
		settings: server.Settings{MaxTransferSize: 3 << 20, Async: true}}
	for _, f := range change {
		f(r)
	}
	if err := st.CreateBucket(t.Context(), object.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	o := devices.Options{Mode: device.Off}
	if gpu {
		r.gpu = fakegpu.Build(t, fakegpu.Options{Devices: 2})
		o = devices.Options{CUDALibraries: []string{r.gpu.CUDA}, NVMLLibraries: []string{r.gpu.NVML}}
	}
	if r.devices, err = devices.New(o); err != nil {
		t.Fatal(err)
	}
	if r.engine, err = transfer.New(transfer.Options{PoolSize: 16 << 20, Poison: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.engine.Close(); err != nil {
			t.Error(err)
		}
		_ = r.devices.Close()
	})
	r.serve()
	t.Cleanup(r.stop)
	return r
}

// serve opens the door.
func (r *rig) serve() {
	r.t.Helper()
	s, err := server.New(server.Options{Store: r.store, StoreID: testStore, Authorizer: judge{}, Settings: r.settings,
		Limits: r.limits, Drain: time.Second,
		Secret: func(k string) (string, bool) { return testSecret, k == testKey }})
	if err != nil {
		r.t.Fatal(err)
	}
	l, err := server.Listen(r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.door = s
	ctx, cancel := context.WithCancel(context.Background())
	r.serving, r.served = cancel, make(chan error, 1)
	go func() { r.served <- s.Serve(ctx, l) }()
}

// stop closes the door.
func (r *rig) stop() {
	if r.serving != nil {
		r.serving()
		<-r.served
		r.serving = nil
	}
}

func (r *rig) client(change ...func(*Options)) *Client {
	r.t.Helper()
	o := Options{Endpoint: "http://127.0.0.1:1", AccessKey: testKey, SecretKey: testSecret, Door: r.socket, Device: "auto",
		Devices: r.devices, Engine: r.engine}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return c
}

// content is n bytes that differ from everything else.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 7}).Read(b)
	return b
}

func (r *rig) put(key string, data []byte) object.Info {
	r.t.Helper()
	i, err := r.store.Put(r.t.Context(), object.Put{Bucket: "b", Key: key, Size: int64(len(data)),
		Body: bytes.NewReader(data)})
	if err != nil {
		r.t.Fatal(err)
	}
	return i
}

// memory is device memory that is looked at by the test.
type memory struct {
	t   testing.TB
	dev device.Device
	buf device.Buffer
}

func (r *rig) alloc(id string, n int) *memory {
	r.t.Helper()
	dev, err := r.devices.Open(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := dev.Alloc(int64(max(n, 1)))
	if err != nil {
		r.t.Fatal(err)
	}
	m := &memory{r.t, dev, b}
	m.set(bytes.Repeat([]byte{0xEE}, max(n, 1)))
	r.t.Cleanup(func() { _ = b.Free() })
	return m
}

func (m *memory) ptr() device.Ptr { return m.buf.Ptr() }

func (m *memory) set(p []byte) {
	m.t.Helper()
	m.queue(func(q device.Queue) error { return q.CopyIn(m.ptr(), p) })
}

func (m *memory) get(n int) []byte {
	m.t.Helper()
	out := make([]byte, n)
	if n > 0 {
		m.queue(func(q device.Queue) error { return q.CopyOut(out, m.ptr()) })
	}
	return out
}

func (m *memory) queue(f func(device.Queue) error) {
	m.t.Helper()
	q, err := m.dev.NewQueue()
	if err != nil {
		m.t.Fatal(err)
	}
	defer q.Close()
	if err := f(q); err != nil {
		m.t.Fatal(err)
	}
	if err := q.Drain(); err != nil {
		m.t.Fatal(err)
	}
}

// read reads a range to fresh memory of the device.
func (r *rig) read(c *Client, rd Read, room int) ([]byte, report.Object, error) {
	r.t.Helper()
	id := rd.Device
	if id == "" {
		id = "auto"
	}
	mem := r.alloc(id, room)
	rd.Bucket, rd.Dst, rd.DstSize = "b", mem.ptr(), int64(room)
	if room == 0 {
		rd.Dst = 0
	}
	m, err := c.StartRead(r.t.Context(), rd)
	if err != nil {
		return nil, report.Object{}, err
	}
	err = m.Wait()
	rep := m.Report()
	return mem.get(int(rep.Bytes)), rep, err
}

// descriptors counts this process's open files, of those that lie below dir or are sockets of it.
func descriptors(t testing.TB, below string) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range all {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, below) {
			n++
		}
	}
	return n
}

// eventually waits for what other goroutines bring about.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
		time.Sleep(time.Millisecond)
	}
}

// together runs n goroutines.
func together(n int, f func(i int)) {
	var g sync.WaitGroup
	for i := range n {
		g.Go(func() { f(i) })
	}
	g.Wait()
}
