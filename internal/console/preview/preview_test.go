// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
)

// reads serves an object from memory, and counts what is read of it.
type reads struct {
	content []byte
	bytes   int64
	n       int
}

func (r *reads) read(_ context.Context, off, n int64) (io.ReadCloser, error) {
	r.n++
	r.bytes += n
	if off < 0 || n < 1 || off+n > int64(len(r.content)) {
		return nil, fmt.Errorf("%d bytes at %d of %d", n, off, len(r.content))
	}
	return io.NopCloser(bytes.NewReader(r.content[off : off+n])), nil
}

func of(t *testing.T, key string, content []byte) (*Result, *reads) {
	t.Helper()
	src := &reads{content: content}
	r, err := Of(t.Context(), KindOf(key, "", int64(len(content))), key, int64(len(content)), src.read)
	if err != nil {
		t.Fatal(err)
	}
	return r, src
}

func safetensorsFile(n int, data int) []byte {
	var h strings.Builder
	h.WriteString(`{"__metadata__":{"format":"pt"}`)
	for i := range n {
		fmt.Fprintf(&h, `,"t%05d":{"dtype":"F32","shape":[1,%d],"data_offsets":[%d,%d]}`, i, data/4, i*data, (i+1)*data)
	}
	h.WriteString("}")
	b := binary.LittleEndian.AppendUint64(nil, uint64(h.Len()))
	return append(append(b, h.String()...), make([]byte, n*data)...)
}

func TestTensorsAreReadFromTheHeaderAlone(t *testing.T) {
	file := safetensorsFile(3, 4<<20)
	r, src := of(t, "models/a.safetensors", file)
	if r.Kind != SafeTensors || r.Total != 3 || r.Parameters != 3<<20 || r.Truncated || r.Metadata["format"] != "pt" ||
		fmt.Sprint(r.Tensors[1].Shape) != fmt.Sprint([]int64{1, 1 << 20}) {
		t.Errorf("%+v", r)
	}
	if src.bytes > blockSize {
		t.Errorf("%d bytes were read", src.bytes)
	}
	if r, _ := of(t, "many.safetensors", safetensorsFile(MaxTensors+5, 4)); len(r.Tensors) != MaxTensors || !r.Truncated ||
		r.Total != MaxTensors+5 {
		t.Errorf("%d of %d", len(r.Tensors), r.Total)
	}
}

func TestAHostileHeaderIsRefusedBeforeItIsRead(t *testing.T) {
	for _, n := range []uint64{MaxHeader + 1, 99_000_000, 1 << 63, 1<<64 - 1} {
		r, src := of(t, "h.safetensors", append(binary.LittleEndian.AppendUint64(nil, n), make([]byte, 1<<20)...))
		if r.Kind != None || !strings.Contains(r.Why, "header") || src.bytes > blockSize {
			t.Errorf("%d: %+v, %d bytes read", n, r, src.bytes)
		}
	}
	// The file is as long as its header says.
	read := int64(0)
	const size = 200 << 20
	r, err := Of(t.Context(), SafeTensors, "h.safetensors", size,
		func(_ context.Context, off, n int64) (io.ReadCloser, error) {
			read += n
			b := make([]byte, n)
			if off == 0 {
				binary.LittleEndian.PutUint64(b, MaxHeader+1)
			}
			return io.NopCloser(bytes.NewReader(b)), nil
		})
	if err != nil || r.Kind != None || read > blockSize {
		t.Errorf("%+v %v, %d bytes read", r, err, read)
	}
	for _, content := range []string{"", "1234567", "12345678", string(binary.LittleEndian.AppendUint64(nil, 2)) + "[]"} {
		if r, _ := of(t, "h.safetensors", []byte(content)); r.Kind != None || r.Why == "" {
			t.Errorf("%q: %+v", content, r)
		}
	}
}

// archive returns a tar file with samples of two parts.
func archive(t *testing.T, n, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		for _, ext := range []string{"jpg", "txt"} {
			err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("s%05d.%s", i, ext), Size: int64(size), Mode: 0o644})
			if err == nil {
				_, err = w.Write(make([]byte, size))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSamplesOfAnArchive(t *testing.T) {
	r, _ := of(t, "train-0001.tar", archive(t, 3, 100))
	if r.Kind != Pack || r.Format != "tar" || r.Total != 3 || r.Truncated || r.Samples[2].Key != "s00002" ||
		fmt.Sprint(r.Samples[0].Fields) != "[{jpg 100} {txt 100}]" {
		t.Errorf("%+v", r)
	}
	if r, _ := of(t, "a.tar", archive(t, MaxSamples+1, 1)); len(r.Samples) != MaxSamples || !r.Truncated ||
		r.Total != MaxSamples+1 {
		t.Errorf("%d of %d", len(r.Samples), r.Total)
	}
}

func TestALargeArchiveShowsItsFirstSamples(t *testing.T) {
	r, src := of(t, "a.tar", archive(t, 60, 300<<10))
	if r.Kind != Pack || r.Total != -1 || !r.Truncated || len(r.Samples) == 0 || len(r.Samples) >= 60 {
		t.Errorf("%d samples of %d, %s", len(r.Samples), r.Total, r.Why)
	}
	if src.bytes > MaxRead || src.n > mostRequests {
		t.Errorf("%d bytes in %d reads", src.bytes, src.n)
	}
}

func TestRecordsOfTFRecord(t *testing.T) {
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, io.Discard, "a.tfrecord")
	if err := errors.Join(w.Add([]byte("one")), w.Add([]byte("three")), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if r, _ := of(t, "a.tfrecord", b.Bytes()); r.Kind != Pack || r.Total != 2 || r.Samples[1].Fields[0].Bytes != 5 {
		t.Errorf("%+v", r)
	}
	if r, _ := of(t, "a.tfrecord", b.Bytes()[:b.Len()-3]); r.Kind != None || r.Why == "" {
		t.Errorf("a damaged file: %+v", r)
	}
}

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	long := strings.Repeat("a", MaxText-1) + "é" + "rest"
	r, _ := of(t, "a.txt", []byte(long))
	if r.Kind != Text || !r.Truncated || r.Text != strings.Repeat("a", MaxText-1) {
		t.Errorf("%d bytes, %v", len(r.Text), r.Truncated)
	}
	for _, content := range []string{"\xff\xfe", "a\x00b"} {
		if r, _ := of(t, "a.txt", []byte(content)); r.Kind != None {
			t.Errorf("%q: %+v", content, r)
		}
	}
	if r, _ := of(t, "a.bin", []byte("x")); r.Kind != None {
		t.Errorf("%+v", r)
	}
}

func TestAFailedReadIsAnError(t *testing.T) {
	gone := errors.New("gone")
	for _, key := range []string{"a.safetensors", "a.tar", "a.txt", "a.tfrecord", "a.mds"} {
		_, err := Of(t.Context(), KindOf(key, "", 100), key, 100,
			func(context.Context, int64, int64) (io.ReadCloser, error) { return nil, gone })
		if !errors.Is(err, gone) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func FuzzPreviewsAreBounded(f *testing.F) {
	f.Add("a.safetensors", safetensorsFile(2, 4))
	f.Add("a.tar", make([]byte, 1024))
	f.Add("a.mds", []byte{2, 0, 0, 0, 12, 0, 0, 0, 14, 0, 0, 0})
	f.Add("a.tfrecord", []byte("1234567890123456"))
	f.Add("a.txt", []byte("text"))
	f.Fuzz(func(t *testing.T, key string, content []byte) {
		src := &reads{content: content}
		r, err := Of(t.Context(), KindOf(key, "", int64(len(content))), key, int64(len(content)), src.read)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Tensors) > MaxTensors || len(r.Samples) > MaxSamples || len(r.Text) > MaxText ||
			src.bytes > MaxRead || src.n > mostRequests || r.Kind == None && r.Why == "" {
			t.Fatalf("%+v", r)
		}
	})
}
