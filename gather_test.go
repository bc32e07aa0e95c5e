// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
)

// withFakeGPUs returns a system with two GPUs, and the devices that have memory.
func withFakeGPUs(t *testing.T) (*nebulaio.System, []string) {
	t.Helper()
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	return open(t, nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML, BufferPoolSize: 32 << 20,
		WriteBlockSize: 64 << 10}), []string{"host", "cuda:0", "cuda:1"}
}

// pieceOf copies data to memory of a device.
func pieceOf(t *testing.T, sys *nebulaio.System, device string, data []byte) nebulaio.Piece {
	t.Helper()
	m := memory(t, sys, device, data)
	t.Cleanup(func() { _ = m.Free() })
	return nebulaio.Piece{Ptr: ptrOf(m, len(data)), Size: int64(len(data)), Device: device}
}

func TestPiecesOfSeveralDevicesAreOneFile(t *testing.T) {
	sys, devices := withFakeGPUs(t)
	path := filepath.Join(t.TempDir(), "a.bin")
	var want []byte
	var pieces []nebulaio.Piece
	for i, n := range []int{5000, 0, 3 << 20, 1, 70_000, 64 << 10} {
		data := randomBytes(uint64(i), n)
		want = append(want, data...)
		pieces = append(pieces, pieceOf(t, sys, devices[i%3], data))
	}
	pieces = append(pieces, nebulaio.Piece{Bytes: []byte("tail")}, nebulaio.Piece{Bytes: []byte{}})
	want = append(want, "tail"...)
	for _, plain := range []bool{false, true} {
		last := int64(0)
		r, err := sys.WritePieces(t.Context(), path, pieces, nebulaio.WriteOptions{NoChecksums: plain,
			Streams: map[string]uint64{"cuda:0": 0}, Progress: func(done, _ int64) { last = done }})
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the file has %d bytes, expected %d: %v", len(got), len(want), err)
		}
		if sum := fmt.Sprintf("%016x", checksum.Of(want)); r.CRC64NVME != sum || r.Pieces != len(pieces) ||
			r.Via != "file" || r.Op != "write" || !r.Save.Durable && !strings.Contains(fmt.Sprint(r.Notes), "memory") {
			t.Errorf("crc64nvme %s, expected %s: %+v", r.CRC64NVME, sum, r)
		}
		if last != int64(len(want)) {
			t.Errorf("progress ended at %d of %d", last, len(want))
		}
		if s, err := checksum.Read(path, int64(len(want))); (err == nil) == plain {
			t.Errorf("without checksums %v: %v", plain, err)
		} else if err == nil && s.Whole() != checksum.Of(want) {
			t.Errorf("the sidecar joins to %016x", s.Whole())
		}
	}
}

func TestAFileOfNoBytes(t *testing.T) {
	sys := open(t, nebulaio.Options{Devices: nebulaio.DevicesOff})
	path := filepath.Join(t.TempDir(), "empty")
	for _, pieces := range [][]nebulaio.Piece{nil, {{Device: "host"}}} {
		r, err := sys.WritePieces(t.Context(), path, pieces, nebulaio.WriteOptions{})
		if err != nil || r.CRC64NVME != "0000000000000000" {
			t.Fatalf("%q %v", r.CRC64NVME, err)
		}
		if st, err := os.Stat(path); err != nil || st.Size() != 0 {
			t.Fatal(st, err)
		}
		_, err = sys.Gather(t.Context(), []string{path}, []nebulaio.GatherSegment{{}}, nebulaio.GatherOptions{Device: "host",
			Verify: true})
		if err != nil {
			t.Error(err)
		}
	}
}

// rowsOf returns the wanted bytes of a segment in the plainest way.
func rowsOf(content []byte, s nebulaio.GatherSegment) []byte {
	part := content[s.Offset : s.Offset+s.Size]
	if s.Stride == 0 {
		return part
	}
	var out []byte
	for i, b := range part {
		if int64(i)%s.Stride < s.Width {
			out = append(out, b)
		}
	}
	return out
}

// drawSegments draws segments of files at random, into memory behind at.
func drawSegments(rng *rand.Rand, files [][]byte, count int) (all []nebulaio.GatherSegment, size int64) {
	for i := range count {
		s := nebulaio.GatherSegment{File: rng.IntN(len(files)), Label: fmt.Sprintf("t%d", i)}
		n := int64(len(files[s.File]))
		s.Offset = rng.Int64N(n + 1)
		s.Size = min(n-s.Offset, []int64{0, 1, 300, 5000, 100_000, n}[rng.IntN(6)])
		if rng.IntN(2) == 0 {
			s.Stride = 1 + rng.Int64N([]int64{8, 5000, 200_000}[rng.IntN(3)])
			s.Width = 1 + rng.Int64N(s.Stride)
		}
		s.Ptr = nebulaio.Ptr(size) // relative
		size += int64(len(rowsOf(files[s.File], s))) + rng.Int64N(3)
		all = append(all, s)
	}
	return all, size
}

// TestSegmentsArriveAsAPlainReadingGivesThem gathers random segments, which overlap in the files, to host memory and
// to a GPU, with and without verification.
func TestSegmentsArriveAsAPlainReadingGivesThem(t *testing.T) {
	sys, devices := withFakeGPUs(t)
	dir := t.TempDir()
	var files [][]byte
	var names []string
	for i, n := range []int{2<<20 + 17, 1, 700_000, 1 << 20} {
		files, names = append(files, randomBytes(uint64(i), n)), append(names, filepath.Join(dir, fmt.Sprint(i)))
		if _, err := sys.WritePieces(t.Context(), names[i], []nebulaio.Piece{{Bytes: files[i]}},
			nebulaio.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 17))
		segments, size := drawSegments(rng, files, 1+rng.IntN(40))
		device := devices[seed%2]
		dst := memory(t, sys, device, bytes.Repeat([]byte{0xa5}, int(size)+1))
		for i := range segments {
			segments[i].Ptr += dst.Ptr()
		}
		o := nebulaio.GatherOptions{Device: device, Verify: seed >= 3, HasStream: seed%3 == 0,
			Route: []nebulaio.Route{nebulaio.RouteAuto, nebulaio.RouteBuffered}[seed/2%2]}
		r, err := sys.Gather(t.Context(), names, segments, o)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		total := int64(0)
		for _, s := range segments {
			want := rowsOf(files[s.File], s)
			got := make([]byte, len(want))
			if err := dst.Read(got, int64(s.Ptr-dst.Ptr())); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("seed %d: segment %+v differs: %v", seed, s, err)
			}
			total += int64(len(want))
		}
		if r.Bytes != total || r.Segments != len(segments) || r.Op != "gather" || r.Via != "file" ||
			(r.Verify != nil) != o.Verify || r.Device.ID != device {
			t.Errorf("seed %d: %d bytes, expected %d: %+v", seed, r.Bytes, total, r)
		}
		if err := dst.Free(); err != nil {
			t.Error(err)
		}
	}
}

// TestSmallSegmentsAreReadTogether: thousands of tensors are some reads.
func TestSmallSegmentsAreReadTogether(t *testing.T) {
	sys, devices := withFakeGPUs(t)
	data := randomBytes(1, 8<<20)
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, device := range devices[:2] {
		dst := memory(t, sys, device, make([]byte, len(data)))
		var segments []nebulaio.GatherSegment
		for off := int64(0); off < int64(len(data)); off += 1024 {
			segments = append(segments, nebulaio.GatherSegment{Offset: off, Size: 512, Ptr: dst.Ptr() + nebulaio.Ptr(off/2)},
				nebulaio.GatherSegment{Offset: off + 700})
		}
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(segments), func(i, k int) {
			segments[i], segments[k] = segments[k], segments[i]
		})
		r, err := sys.Gather(t.Context(), []string{path}, segments, nebulaio.GatherOptions{Device: device})
		if err != nil {
			t.Fatal(err)
		}
		chunks := int64(0)
		for _, route := range r.Routes {
			chunks += route.Chunks
		}
		if chunks > 64 {
			t.Errorf("%s: %d segments took %d reads", device, len(segments), chunks)
		}
		if err := dst.Free(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnInvalidGatherIsRefused(t *testing.T) {
	sys := open(t, nebulaio.Options{Devices: nebulaio.DevicesOff})
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	const most = int64(1) << 62
	for name, c := range map[string]struct {
		files []string
		s     nebulaio.GatherSegment
		o     nebulaio.GatherOptions
		kind  errs.Kind
		says  string
	}{
		"no file": {nil, nebulaio.GatherSegment{}, nebulaio.GatherOptions{}, errs.Invalid, "names file 0"},
		"negative file": {[]string{path}, nebulaio.GatherSegment{File: -1}, nebulaio.GatherOptions{}, errs.Invalid,
			"names file -1"},
		"past the end": {[]string{path}, nebulaio.GatherSegment{Offset: 101, Label: "w"}, nebulaio.GatherOptions{},
			errs.Invalid, `segment 0 ("w") of ` + path},
		"too long": {[]string{path}, nebulaio.GatherSegment{Offset: 99, Size: 2, Ptr: 4096}, nebulaio.GatherOptions{},
			errs.Invalid, "the file has 100 bytes"},
		"overflow": {[]string{path}, nebulaio.GatherSegment{Offset: most, Size: most, Ptr: 1}, nebulaio.GatherOptions{},
			errs.Invalid, "2^62"},
		"negative": {[]string{path}, nebulaio.GatherSegment{Offset: -1, Size: 1, Ptr: 1}, nebulaio.GatherOptions{},
			errs.Invalid, "offset -1"},
		"no address": {[]string{path}, nebulaio.GatherSegment{Size: 1}, nebulaio.GatherOptions{}, errs.Invalid,
			"address 0x0"},
		"address at end": {[]string{path}, nebulaio.GatherSegment{Size: 2, Ptr: ^nebulaio.Ptr(0)}, nebulaio.GatherOptions{},
			errs.Invalid, "address 0xffffffffffffffff"},
		"width": {[]string{path}, nebulaio.GatherSegment{Size: 2, Ptr: 4096, Width: 3, Stride: 2},
			nebulaio.GatherOptions{}, errs.Invalid, "3 bytes out of every 2"},
		"no width": {[]string{path}, nebulaio.GatherSegment{Size: 2, Ptr: 4096, Stride: 2}, nebulaio.GatherOptions{},
			errs.Invalid, "0 bytes out of every 2"},
		"rows": {[]string{path}, nebulaio.GatherSegment{Size: most, Ptr: 4096, Width: 1, Stride: 1 << 20},
			nebulaio.GatherOptions{}, errs.Invalid, "rows that are read one by one"},
		"missing": {[]string{filepath.Join(dir, "b")}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{}, errs.NotFound,
			filepath.Join(dir, "b")},
		"a folder": {[]string{dir}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{}, errs.Invalid, dir},
		"unnamed":  {[]string{""}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{}, errs.Invalid, "is empty"},
		"device":   {[]string{path}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{Device: "tpu"}, errs.Invalid, "tpu"},
		"no GPU": {[]string{path}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{Device: "cuda:9"}, errs.NotFound,
			"cuda:9"},
		"route": {[]string{path}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{Route: "fast"}, errs.Invalid, "fast"},
		"cache": {[]string{path}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{Cache: "never"}, errs.Invalid, "never"},
		"unproven": {[]string{path}, nebulaio.GatherSegment{},
			nebulaio.GatherOptions{Route: nebulaio.RouteCuFile, Verify: true}, errs.Invalid, "cannot be verified"},
		"no sums": {[]string{path}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{Verify: true}, errs.NotFound,
			"has no checksums"},
		"bucket": {[]string{"s3://box"}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{}, errs.Invalid,
			"names no object"},
		"servers": {[]string{"s3://a/b", "nebula://h:1/a/b"}, nebulaio.GatherSegment{}, nebulaio.GatherOptions{},
			errs.Invalid, "another server"},
	} {
		if c.o.Device == "" {
			c.o.Device = "host"
		}
		_, err := sys.Gather(t.Context(), c.files, []nebulaio.GatherSegment{c.s}, c.o)
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, expected %v with %q", name, err, c.kind, c.says)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sys.StartGather(ended, nil, nil, nebulaio.GatherOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r, err := sys.Gather(t.Context(), []string{path, "not opened"}, nil, nebulaio.GatherOptions{Device: "host"})
	if text, _ := json.Marshal(r); err != nil || bytes.Contains(text, []byte("null")) {
		t.Errorf("no segment: %v %s", err, text)
	}
}

func TestAnInvalidWriteLeavesTheOldFile(t *testing.T) {
	sys := open(t, nebulaio.Options{Devices: nebulaio.DevicesOff})
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := nebulaio.Piece{Bytes: []byte("x")}
	for name, c := range map[string]struct {
		piece nebulaio.Piece
		o     nebulaio.WriteOptions
		kind  errs.Kind
		says  string
	}{
		"negative": {nebulaio.Piece{Size: -1, Device: "host"}, nebulaio.WriteOptions{}, errs.Invalid,
			"piece 1 has -1 bytes"},
		"huge":       {nebulaio.Piece{Size: 1 << 62, Ptr: 1, Device: "host"}, nebulaio.WriteOptions{}, errs.Invalid, "2^62"},
		"no address": {nebulaio.Piece{Size: 1, Device: "host"}, nebulaio.WriteOptions{}, errs.Invalid, "address 0x0"},
		"no device":  {nebulaio.Piece{Size: 1, Ptr: 1}, nebulaio.WriteOptions{}, errs.Invalid, `piece's device is ""`},
		"auto": {nebulaio.Piece{Size: 1, Ptr: 1, Device: "auto"}, nebulaio.WriteOptions{}, errs.Invalid,
			"expected host, cuda or cuda:N"},
		"no GPU": {nebulaio.Piece{Size: 1, Ptr: 1, Device: "cuda:0"}, nebulaio.WriteOptions{}, errs.NotFound, "cuda:0"},
		"route":  {good, nebulaio.WriteOptions{Route: "fast"}, errs.Invalid, "fast"},
		"cufile": {good, nebulaio.WriteOptions{Route: nebulaio.RouteCuFile}, errs.Invalid, "cufile"},
		"stream": {good, nebulaio.WriteOptions{Streams: map[string]uint64{"x": 1}}, errs.Invalid, "x"},
	} {
		_, err := sys.WritePieces(t.Context(), path, []nebulaio.Piece{good, c.piece}, c.o)
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, expected %v with %q", name, err, c.kind, c.says)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sys.StartWritePieces(ended, path, nil, nebulaio.WriteOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("%q %v", b, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

// piecesInBuckets writes pieces to a bucket and gathers segments from there, through the door and over HTTP.
func piecesInBuckets(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions) {
	local := filepath.Join(t.TempDir(), "local")
	data := randomBytes(9, 9<<20+5)
	if _, err := sys.WritePieces(t.Context(), local, []nebulaio.Piece{{Bytes: data[:77]}},
		nebulaio.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	vfstest.Hold(t, local, 0, 77) // read past the page cache, the file would be refused cuFile
	for _, door := range []string{"require", "off"} {
		o := access
		o.Door = door
		via := map[string]string{"require": "door", "off": "http"}[door]
		for _, size := range []int{0, 1, 1<<20 + 1, len(data)} { // one request, and several parts
			url := fmt.Sprintf("s3://box/pieces/%s/%d", via, size)
			pieces := []nebulaio.Piece{pieceOf(t, sys, "cuda:0", data[:size/2]), pieceOf(t, sys, "host", data[size/2:size])}
			r, err := sys.WritePieces(t.Context(), url, pieces, nebulaio.WriteOptions{Client: o})
			if err != nil {
				t.Fatalf("%s: %v", url, err)
			}
			if sum := fmt.Sprintf("%016x", checksum.Of(data[:size])); r.CRC64NVME != sum || r.Via != via || r.ETag == "" {
				t.Errorf("%s: crc64nvme %s, expected %s, via %s", url, r.CRC64NVME, sum, r.Via)
			}
			dst := memory(t, sys, "cuda:0", make([]byte, size+77))
			segments := []nebulaio.GatherSegment{
				{File: 1, Size: 77, Ptr: dst.Ptr() + nebulaio.Ptr(size)},
				{File: 0, Offset: int64(size / 3), Size: int64(size - size/3), Ptr: dst.Ptr() + nebulaio.Ptr(size/3), Label: "end"},
				{File: 0, Size: int64(size / 3), Ptr: dst.Ptr()}}
			g, err := sys.Gather(t.Context(), []string{url, local}, segments,
				nebulaio.GatherOptions{Device: "cuda:0", Verify: true, Client: o})
			if err != nil {
				t.Fatalf("gather %s: %v", url, err)
			}
			got := make([]byte, size+77)
			if err := dst.Read(got, 0); err != nil || !bytes.Equal(got[:size], data[:size]) ||
				!bytes.Equal(got[size:], data[:77]) {
				t.Errorf("%s arrives otherwise: %v", url, err)
			}
			// What the door reads past the page cache is packed, and cuFile is refused for it.
			others := slices.DeleteFunc(slices.Clone(g.Refusals), func(x nebulaio.Refusal) bool { return x.What == "cufile" })
			if g.Via != via || g.Verify == nil || (len(others) == 0) == (via == "http") {
				t.Errorf("gather %s: via %s, %+v, %+v", url, g.Via, g.Verify, g.Refusals)
			}
			if err := dst.Free(); err != nil {
				t.Error(err)
			}
		}
		url := "s3://box/pieces/" + via + "/plain"
		if _, err := sys.WritePieces(t.Context(), url, []nebulaio.Piece{{Bytes: data[:5]}}, nebulaio.WriteOptions{Client: o,
			NoChecksums: true}); err != nil {
			t.Fatal(err)
		}
		_, err := sys.Gather(t.Context(), []string{url}, []nebulaio.GatherSegment{{}}, nebulaio.GatherOptions{Device: "host",
			Verify: true, Client: o})
		if (via == "door") != (err == nil) || err != nil && !errs.Is(err, errs.NotFound) {
			t.Errorf("no KEY.crc64nvme via %s: %v", via, err)
		}
		_, err = sys.Gather(t.Context(), []string{"s3://box/missing"}, []nebulaio.GatherSegment{{}},
			nebulaio.GatherOptions{Device: "host", Client: o})
		if !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), "s3://box/missing") {
			t.Errorf("a missing object via %s: %v", via, err)
		}
	}
	// Sums that are not those of the object are damage: the file and the label are named.
	o := access
	o.Door = "off"
	other := &checksum.Sums{Size: 5, Block: checksum.DefaultBlock, Blocks: []uint64{1}}
	put(t, sys, access, map[string]string{"pieces/http/plain.crc64nvme": string(other.Encode())})
	dst := memory(t, sys, "host", make([]byte, 8))
	defer dst.Free()
	_, err := sys.Gather(t.Context(), []string{"s3://box/pieces/http/plain"},
		[]nebulaio.GatherSegment{{Size: 5, Ptr: dst.Ptr(),
			Label: "model.w"}}, nebulaio.GatherOptions{Device: "host", Verify: true, Client: o})
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), `tensor "model.w"`) ||
		!strings.Contains(err.Error(), "pieces/http/plain") {
		t.Errorf("damage: %v", err)
	}
}

// TestASystemStaysOpenDuringAGather: a gather of a server that does not answer keeps the system open, and can be
// cancelled.
func TestASystemStaysOpenDuringAGather(t *testing.T) {
	asked, over := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-over // not the request's context: a server notices that a client left only after it has read the body
	}))
	defer server.Close()
	defer close(over)
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		t.Fatal(err)
	}
	access := nebulaio.ClientOptions{Endpoint: server.URL, AccessKey: "a", SecretKey: "b", Door: "off"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, err := sys.StartGather(ctx, []string{"s3://b/k"}, []nebulaio.GatherSegment{{}},
		nebulaio.GatherOptions{Device: "host", Client: access})
	if err != nil {
		t.Fatal(err)
	}
	write, err := sys.StartWritePieces(ctx, "s3://b/k", []nebulaio.Piece{{Bytes: []byte("x")}}, nebulaio.WriteOptions{
		Client: access})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := sys.Close(); !errs.Is(err, errs.Invalid) {
		t.Errorf("close: %v", err)
	}
	cancel()
	for name, wait := range map[string]func() error{"gather": read.Wait, "write": write.Wait} {
		if err := wait(); !errors.Is(err, context.Canceled) || !errs.Is(err, errs.Cancelled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := write.Report(); r.CRC64NVME != "" || r.Error == "" {
		t.Errorf("%+v", r)
	}
	if r := read.Report(); r.Error == "" || r.Bytes != 0 || r.Via != "" {
		t.Errorf("%+v", r)
	}
	if err := sys.Close(); err != nil {
		t.Error(err)
	}
}
