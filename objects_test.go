// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/test/closing"
	"github.com/nebulaio/nebulaio/test/effort"
)

const (
	doorUser     = "objects-user"
	doorPassword = "objects-password-1"
)

// serve runs a server of ours with a door in this process, where the race
// detector sees it, and gives it a bucket. Only one gateway can live in a process.
func serve(t *testing.T) (endpoint, socket string) {
	t.Helper()
	endpoint, socket, _ = serveUntil(t, nil)
	return endpoint, socket
}

// serveUntil does what serve does with more variables, and also returns a function that ends the server.
func serveUntil(t *testing.T, more map[string]string) (endpoint, socket string, end func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "door.sock")
	vars := map[string]string{"NEBULAIO_ROOT_USER": doorUser, "NEBULAIO_ROOT_PASSWORD": doorPassword,
		"NEBULAIO_GPUDIRECT_ENABLED": "true",
		"NEBULAIO_GPUDIRECT_SOCKET":  socket, "NEBULAIO_GPUDIRECT_MAX_TRANSFER_SIZE": "2MiB"}
	maps.Copy(vars, more)
	c, err := config.Load(config.Inputs{Flags: map[string]string{"data": filepath.Join(t.TempDir(), "store"),
		"address": "127.0.0.1:0", "console_address": "127.0.0.1:0"},
		Env: func(name string) string { return vars[name] }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	started, ended := make(chan node.Started, 1), make(chan error, 1)
	log := &bytes.Buffer{}
	go func() {
		ended <- node.Run(ctx, node.Options{Config: c, Version: "test", Log: log,
			Started: func(s node.Started) { started <- s }})
	}()
	select {
	case s := <-started:
		endpoint = s.Endpoint
	case err := <-ended:
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v\n%s", err, log)
		}
	})
	t.Cleanup(end)
	m, err := minio.New(strings.TrimPrefix(endpoint, "http://"),
		&minio.Options{Creds: credentials.NewStaticV4(doorUser, doorPassword, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.MakeBucket(ctx, "box", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return endpoint, socket, end
}

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 3}).Read(b)
	return b
}

// TestObjects holds everything that can be done with objects against a whole
// server, through its door and over HTTP, to host memory and to a fake GPU.
func TestObjects(t *testing.T) {
	effort.Slow(t)
	endpoint, socket := serve(t)
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	sys := open(t, nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML, BufferPoolSize: 32 << 20})
	access := nebulaio.ClientOptions{Endpoint: endpoint, AccessKey: doorUser, SecretKey: doorPassword}
	client := func(t *testing.T, change func(*nebulaio.ClientOptions)) *nebulaio.Client {
		t.Helper()
		o := access
		if change != nil {
			change(&o)
		}
		c, err := sys.NewClient(o)
		return closing.AtEnd(t, c, err)
	}
	door := client(t, func(o *nebulaio.ClientOptions) { o.Door = "require" })
	http := client(t, func(o *nebulaio.ClientOptions) { o.Door = "off" })
	ways := map[string]*nebulaio.Client{"door": door, "http": http}

	t.Run("the door is found", func(t *testing.T) {
		c := client(t, nil)
		s := c.Status(t.Context())
		if s.Door != socket || s.Store == "" || s.Settings == nil || s.Settings.MaxTransferSize != 2<<20 ||
			s.Refusal != nil || s.Error != "" {
			t.Errorf("%+v", s)
		}
		if s := http.Status(t.Context()); s.Door != "" || s.Refusal == nil || s.Refusal.What != "door" {
			t.Errorf("%+v", s)
		}
	})
	t.Run("both ways give the same bytes", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for i, size := range []int{0, 1, 4095, 16 << 10, 16<<10 + 1, 1<<20 - 1, 1<<20 + 1, 2 << 20, 5<<20 + 11, 9 << 20} {
			data := randomBytes(uint64(i), size)
			for by, writer := range ways {
				key := fmt.Sprintf("same/%s-%d", by, size)
				src := memory(t, sys, []string{"host", "cuda:0"}[i%2], data)
				m, err := writer.StartWrite(t.Context(), nebulaio.ObjectWrite{Bucket: "box", Key: key, Src: ptrOf(src, size),
					Size: int64(size), Device: src.Device().ID, Metadata: map[string]string{"seed": "1"}})
				if err == nil {
					err = m.Wait()
				}
				if err != nil {
					t.Fatalf("write %s: %v", key, err)
				}
				if r := m.Report(); r.Via != by || r.ETag == "" || r.Bytes != int64(size) {
					t.Errorf("write %s: %+v", key, r)
				}
				for via, reader := range ways {
					for _, id := range []string{"host", "cuda:1"} {
						off := 0
						if size > 0 {
							off = rng.IntN(size)
						}
						for _, x := range [][2]int64{{0, -1}, {int64(off), -1}, {int64(off), int64(size-off) / 2}} {
							want := data[x[0]:]
							if x[1] >= 0 {
								want = want[:x[1]]
							}
							dst := memory(t, sys, id, bytes.Repeat([]byte{7}, len(want)+9))
							m, err := reader.StartRead(t.Context(), nebulaio.ObjectRead{Bucket: "box", Key: key, Off: x[0], Size: x[1],
								Dst: dst.Ptr(), DstSize: dst.Size(), Device: id})
							if err == nil {
								err = m.Wait()
							}
							if err != nil {
								t.Fatalf("read %s from %d via %s: %v", key, x[0], via, err)
							}
							got := make([]byte, len(want)+9)
							if err := dst.Read(got, 0); err != nil {
								t.Fatal(err)
							}
							if !bytes.Equal(got, append(append([]byte{}, want...), bytes.Repeat([]byte{7}, 9)...)) {
								t.Fatalf("read %s from %d, %d bytes, via %s to %s: other bytes", key, x[0], x[1], via, id)
							}
							if r := m.Report(); r.Via != via || r.Bytes != int64(len(want)) || r.Size != int64(size) || r.ETag == "" {
								t.Fatalf("read %s via %s: %+v", key, via, r)
							}
							if err := dst.Free(); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
			}
		}
	})
	t.Run("many, stat and list", func(t *testing.T) {
		for by, c := range ways {
			var reads []nebulaio.ObjectRead
			for i, size := range []int{0, 1, 4095, 16 << 10, 1<<20 + 1, 9 << 20} {
				dst := memory(t, sys, "cuda:0", make([]byte, size))
				reads = append(reads, nebulaio.ObjectRead{Bucket: "box", Key: fmt.Sprintf("same/door-%d", size), Size: -1,
					Dst: ptrOf(dst, size), DstSize: int64(size), Device: "cuda:0"})
				i0, err := c.Stat(t.Context(), "box", reads[i].Key, "")
				if err != nil || i0.Size != int64(size) || i0.ETag == "" || i0.Via != by || i0.CRC64 == "" {
					t.Errorf("%s: %+v %v", by, i0, err)
				}
				if size == 1<<20+1 {
					continue // read by the others too
				}
			}
			reads = reads[:4]
			m, err := c.StartReadMany(t.Context(), reads)
			if err == nil {
				err = m.Wait()
			}
			if err != nil || len(m.Report().Objects) != 4 || m.Report().Via != by {
				t.Errorf("%s: %v", by, err)
			}
			var keys []string
			after := ""
			for {
				p, err := c.List(t.Context(), nebulaio.ObjectList{Bucket: "box", Prefix: "same/", After: after, Limit: 3})
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range p.Objects {
					keys = append(keys, o.Key)
				}
				if after = p.Next; !p.Truncated {
					break
				}
			}
			if len(keys) != 20 {
				t.Errorf("%s lists %d: %v", by, len(keys), keys)
			}
			p, err := c.List(t.Context(), nebulaio.ObjectList{Bucket: "box", Delimiter: "/"})
			if err != nil || len(p.Prefixes) != 1 || p.Prefixes[0] != "same/" {
				t.Errorf("%s: %+v %v", by, p, err)
			}
		}
	})
	t.Run("what is wrong is said", func(t *testing.T) {
		dst := memory(t, sys, "host", make([]byte, 100))
		read := func(c *nebulaio.Client, key string, size int64) error {
			m, err := c.StartRead(t.Context(), nebulaio.ObjectRead{Bucket: "box", Key: key, Size: -1, Dst: dst.Ptr(),
				DstSize: size, Device: "host"})
			if err == nil {
				err = m.Wait()
			}
			return err
		}
		stranger := func(o *nebulaio.ClientOptions) { o.SecretKey = "not-the-secret-at-all" }
		for by, c := range map[string]*nebulaio.Client{"door": client(t, stranger),
			"http": client(t, func(o *nebulaio.ClientOptions) { stranger(o); o.Door = "off" })} {
			if err := read(c, "same/door-1", 100); !errs.Is(err, errs.Permission) {
				t.Errorf("a wrong secret via %s: %v", by, err)
			}
		}
		for by, c := range ways {
			if err := read(c, "missing", 100); !errs.Is(err, errs.NotFound) ||
				!strings.Contains(err.Error(), "s3://box/missing") {
				t.Errorf("a missing object via %s: %v", by, err)
			}
			if err := read(c, "same/door-4095", 100); !errs.Is(err, errs.Invalid) ||
				!strings.Contains(err.Error(), "4095 bytes are to be read and the buffer has 100") {
				t.Errorf("a small buffer via %s: %v", by, err)
			}
		}
		nobody := client(t, func(o *nebulaio.ClientOptions) { o.Endpoint = "http://127.0.0.1:1"; o.Retries = 1 })
		if err := read(nobody, "k", 100); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("no server: %v", err)
		}
		if _, err := sys.NewClient(nebulaio.ClientOptions{Endpoint: endpoint, Door: "ajar"}); !errs.Is(err, errs.Invalid) {
			t.Errorf("a bad door: %v", err)
		}
	})
	t.Run("models", func(t *testing.T) { modelsInBuckets(t, sys, access, ways) })
	t.Run("by name", func(t *testing.T) { objectsByName(t, sys, access) })
	t.Run("segments and pieces", func(t *testing.T) { piecesInBuckets(t, sys, access) })
	t.Run("training data", func(t *testing.T) { dataInBuckets(t, sys, access) })
	t.Run("errors are Go's own", func(t *testing.T) { goErrors(t, ways, client, sys) })
}

// memory is device memory that holds data.
func memory(t *testing.T, sys *nebulaio.System, device string, data []byte) *nebulaio.Memory {
	t.Helper()
	m, err := sys.Alloc(t.Context(), device, int64(max(1, len(data))))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Write(data, 0); err != nil {
		t.Fatal(err)
	}
	return m
}

// ptrOf is the address of memory, 0 where nothing of it is used.
func ptrOf(m *nebulaio.Memory, n int) nebulaio.Ptr {
	if n == 0 {
		return 0
	}
	return m.Ptr()
}

// modelsInBuckets saves a model to a bucket and loads it from there.
func modelsInBuckets(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions,
	ways map[string]*nebulaio.Client) {
	want := randomTensors(t, 5)
	for by, c := range ways {
		o := access
		if o.Door = "require"; by == "http" {
			o.Door = "off"
		}
		key := "models/" + by + "/model.safetensors"
		r, err := sys.Save(t.Context(), "s3://box/"+key, want, nebulaio.SaveOptions{Client: o})
		if err != nil || r.Save == nil || !r.Save.Durable {
			t.Fatalf("save via %s: %v %+v", by, err, r.Save)
		}
		for _, name := range []string{key, "models/" + by, "models/" + by + "/"} {
			src, err := c.OpenSource(t.Context(), "box", name, nebulaio.SourceOptions{Device: "cuda:0"})
			if err != nil {
				t.Fatalf("%s via %s: %v", name, by, err)
			}
			m, err := src.Load(t.Context(), nebulaio.SourceLoadOptions{Verify: by == "door"})
			if err != nil {
				t.Fatalf("%s via %s: %v", name, by, err)
			}
			for _, w := range want {
				got, err := m.Read(w.Name)
				if err != nil || !bytes.Equal(got, w.Bytes) {
					t.Errorf("%s of %s via %s: %v", w.Name, name, by, err)
				}
			}
			rep := m.Report()
			if rep.Path != "s3://box/"+name || rep.Bytes == 0 || by == "door" && rep.Verify == nil || by == "http" &&
				(len(rep.Refusals) == 0 || rep.Refusals[0].What != "door") {
				t.Errorf("%s via %s: %+v", name, by, rep)
			}
			if by == "http" {
				if _, err := src.Load(t.Context(), nebulaio.SourceLoadOptions{Verify: true}); !errs.Is(err, errs.NotFound) ||
					!strings.Contains(err.Error(), "model.safetensors.crc64nvme") {
					t.Errorf("verified without sums: %v", err)
				}
			}
			if err := m.Free(); err != nil {
				t.Error(err)
			}
			if err := src.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.OpenSource(t.Context(), "box", "models/nothing/",
			nebulaio.SourceOptions{Device: "host"}); !errs.Is(err, errs.NotFound) {
			t.Errorf("no model via %s: %v", by, err)
		}
		if _, err := c.OpenSource(t.Context(), "box", "models/nothing", nebulaio.SourceOptions{Device: "host"}); !errs.Is(err,
			errs.NotFound) {
			t.Errorf("no model via %s: %v", by, err)
		}
	}
	// A sharded one: an index and its files, put there as any tool would.
	index := map[string]any{"weight_map": map[string]string{}}
	for i, w := range want {
		shard := fmt.Sprintf("part-%d.safetensors", i)
		index["weight_map"].(map[string]string)[w.Name] = shard
		if _, err := sys.Save(t.Context(), "s3://box/sharded/"+shard, []nebulaio.SaveTensor{w},
			nebulaio.SaveOptions{Client: access}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	src := memory(t, sys, "host", text)
	m, err := ways["door"].StartWrite(t.Context(), nebulaio.ObjectWrite{Bucket: "box",
		Key: "sharded/model.safetensors.index.json", Src: src.Ptr(), Size: int64(len(text)), Device: "host"})
	if err == nil {
		err = m.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	for by, c := range ways {
		src, err := c.OpenSource(t.Context(), "box", "sharded", nebulaio.SourceOptions{Device: "host"})
		if err != nil {
			t.Fatalf("via %s: %v", by, err)
		}
		l, err := src.Load(t.Context(), nebulaio.SourceLoadOptions{})
		if err != nil || len(l.Names()) != len(want) || src.Index() != "s3://box/sharded/model.safetensors.index.json" {
			t.Fatalf("via %s: %v, index %q", by, err, src.Index())
		}
		for _, w := range want {
			if got, err := l.Read(w.Name); err != nil || !bytes.Equal(got, w.Bytes) {
				t.Errorf("%s via %s: %v", w.Name, by, err)
			}
		}
		if err := l.Free(); err != nil {
			t.Error(err)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
}

// objectsByName opens and makes objects and files by URL.
func objectsByName(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions) {
	data := randomBytes(77, 3<<20+5)
	at := strings.TrimPrefix(access.Endpoint, "http://")
	file := filepath.Join(t.TempDir(), "file")
	for _, url := range []string{"s3://box/named/one", "nebula://" + at + "/box/named/two", file} {
		o := nebulaio.OpenOptions{System: sys, ClientOptions: access, Device: "cuda:0"}
		w, err := nebulaio.Create(t.Context(), url, int64(len(data)),
			nebulaio.CreateOptions{System: o.System, ClientOptions: o.ClientOptions, Device: o.Device})
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		a, b := memory(t, sys, "cuda:0", data[:1<<20]), memory(t, sys, "cuda:1", data[1<<20:])
		if err := w.WriteFrom(t.Context(), b.Ptr(), b.Size(), 1<<20, nebulaio.PieceOptions{Device: "cuda:1"}); err != nil {
			t.Fatal(err)
		}
		if err := w.WriteFrom(t.Context(), a.Ptr(), a.Size(), 0, nebulaio.PieceOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(t.Context()); err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if err := w.Commit(t.Context()); !errs.Is(err, errs.Closed) {
			t.Errorf("%s, again: %v", url, err)
		}
		ob, err := nebulaio.Open(t.Context(), url, o)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if ob.Size() != int64(len(data)) || (ob.ETag() == "") != (url == file) || ob.URL() != url {
			t.Errorf("%s: %d bytes, ETag %q", url, ob.Size(), ob.ETag())
		}
		dst := memory(t, sys, "cuda:0", make([]byte, len(data)))
		for _, off := range []int64{0, 4097, int64(len(data)) - 1, int64(len(data)), int64(len(data)) + 5} {
			n, err := ob.Read(t.Context(), dst.Ptr(), dst.Size(), off)
			if off > int64(len(data)) {
				off = int64(len(data))
			}
			if err != nil || n != int64(len(data))-off {
				t.Fatalf("%s from %d: %d bytes, %v", url, off, n, err)
			}
			got := make([]byte, n)
			if err := dst.Read(got, 0); err != nil || !bytes.Equal(got, data[off:]) {
				t.Errorf("%s from %d: other bytes, %v", url, off, err)
			}
		}
		if url != file {
			// No object is read in the order of a stream: it has been read by the return, and the report says so.
			m, err := ob.StartRead(t.Context(), dst.Ptr(), dst.Size(), 0, nebulaio.MoveOptions{HasStream: true, InStream: true})
			if err != nil {
				t.Fatalf("%s: %v", url, err)
			}
			select {
			case <-m.Done():
			default:
				t.Errorf("%s: a read in a stream goes on", url)
			}
			if r := m.Report(); len(r.Refusals) == 0 || r.Refusals[0].What != "cufile" || m.Wait() != nil {
				t.Errorf("%s: %+v, %v", url, r.Refusals, m.Wait())
			}
		}
		if r := ob.Report(); r.Op != "read" || r.Via == "" {
			t.Errorf("%s: %+v", url, r)
		}
		if err := ob.Close(); err != nil {
			t.Error(err)
		}
	}
	if st, err := os.Stat(file); err != nil || st.Size() != int64(len(data)) {
		t.Error(err)
	}
	for _, url := range []string{"s3://box/named/short", filepath.Join(t.TempDir(), "short")} {
		w, err := nebulaio.Create(t.Context(), url, 10, nebulaio.CreateOptions{System: sys, ClientOptions: access,
			Device: "host"})
		if err != nil {
			t.Fatal(err)
		}
		piece := memory(t, sys, "host", randomBytes(1, 4))
		if err := w.WriteFrom(t.Context(), piece.Ptr(), 4, 0, nebulaio.PieceOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(t.Context()); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "4 bytes") ||
			!strings.Contains(err.Error(), "10") {
			t.Errorf("%s of 10 bytes with 4: %v", url, err)
		}
		if o, err := nebulaio.Open(t.Context(), url, nebulaio.OpenOptions{System: sys, ClientOptions: access}); err == nil {
			t.Errorf("%s is there", url)
			_ = o.Close()
		}
	}
	w, err := nebulaio.Create(t.Context(), "s3://box/named/none", 5,
		nebulaio.CreateOptions{System: sys, ClientOptions: access})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	for url, kind := range map[string]errs.Kind{"s3://box/named/none": errs.NotFound, "s3://box": errs.Invalid,
		"s3:///k": errs.Invalid, "": errs.Invalid, "nebula:///box/k": errs.Invalid, file + "-none": errs.NotFound} {
		if _, err := nebulaio.Open(t.Context(), url, nebulaio.OpenOptions{System: sys,
			ClientOptions: access}); errs.KindOf(err) != kind {
			t.Errorf("%q: %v", url, err)
		}
	}
}
