// SPDX-License-Identifier: Apache-2.0

package megatron_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/megatron"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// Golden files with the uint16 sequences [1,2,3] and [4,5], one in each document.
const (
	goldenBin = "01000200030004000500"
	goldenIdx = "4d4d49444944580000010000000000000008020000000000000003000000000000000300000002000000" +
		"00000000000000000600000000000000000000000000000001000000000000000200000000000000"
)

// open parses an index in memory.
func open(idx []byte, binSize int64, o megatron.Options) (*megatron.Index, error) {
	return megatron.Open(bytes.NewReader(idx), int64(len(idx)), "x.idx", "x.bin", binSize, o)
}

// unhex decodes a golden file.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// contents returns the bytes of each sequence.
func contents(table *sample.Table, bin []byte) [][]byte {
	all := make([][]byte, table.Len())
	for i := range all {
		e, _ := table.Part(i, 0)
		all[i] = bin[e.Offset : e.Offset+e.Size]
	}
	return all
}

func TestGoldenFiles(t *testing.T) {
	var bin, idx bytes.Buffer
	w, err := megatron.NewWriter(&bin, "x.bin", format.U16, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, tokens := range [][]byte{{1, 0, 2, 0, 3, 0}, {4, 0, 5, 0}} {
		if err := w.Add(tokens, 0); err != nil {
			t.Fatal(err)
		}
		w.EndDocument()
	}
	if err := w.WriteIndex(&idx, "x.idx"); err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(bin.Bytes()) != goldenBin || hex.EncodeToString(idx.Bytes()) != goldenIdx {
		t.Errorf("bin %x\nidx %x", bin.Bytes(), idx.Bytes())
	}
}

// TestFilesOfMegatron reads files that megatron-core 0.16.1 wrote with its IndexedDatasetBuilder: add_item,
// end_document, add_document and, for merged, add_index. The file expected.json has the content that its IndexedDataset
// read. Both ran with numpy 2.4.6 and a stub for torch, which the two classes use only for type names.
func TestFilesOfMegatron(t *testing.T) {
	raw, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var files map[string]struct {
		DType     string
		Documents []int64
		Sequences []string
		Modes     []int8
	}
	if err := json.Unmarshal(raw, &files); err != nil || len(files) != 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	dtypes := map[string]format.DType{"uint8": format.U8, "int8": format.I8, "int16": format.I16, "int32": format.I32,
		"int64": format.I64, "uint16": format.U16}
	for name, want := range files {
		idx, err := os.ReadFile(filepath.Join("testdata", name+".idx"))
		if err != nil {
			t.Fatal(err)
		}
		bin, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
		if err != nil {
			t.Fatal(err)
		}
		x, err := open(idx, int64(len(bin)), megatron.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if x.DType != dtypes[want.DType] || !x.Contiguous || !slices.Equal(x.Documents, want.Documents) ||
			!slices.Equal(x.Modes, want.Modes) || (x.Modes == nil) != (want.Modes == nil) {
			t.Errorf("%s: %+v, expected %+v", name, x, want)
		}
		got := contents(x.Table, bin)
		if len(got) != len(want.Sequences) {
			t.Fatalf("%s: %d sequences, expected %d", name, len(got), len(want.Sequences))
		}
		for i, b := range got {
			if hex.EncodeToString(b) != want.Sequences[i] {
				t.Errorf("%s, sequence %d: %x, expected %s", name, i, b, want.Sequences[i])
			}
		}
		bin2, idx2 := rewrite(t, x, bin)
		if !bytes.Equal(bin, bin2) || !bytes.Equal(idx, idx2) {
			t.Errorf("%s: our writer writes %x and %x", name, bin2, idx2)
		}
	}
}

// rewrite writes the sequences of x to a new .bin file and a new .idx file, and returns the bytes of both.
func rewrite(t testing.TB, x *megatron.Index, bin []byte) (newBin, newIdx []byte) {
	t.Helper()
	var b, i bytes.Buffer
	w, err := megatron.NewWriter(&b, "y.bin", x.DType, x.Modes != nil)
	if err != nil {
		t.Fatal(err)
	}
	next := 1
	for at := 0; ; at++ {
		for next < len(x.Documents) && x.Documents[next] == int64(at) {
			w.EndDocument()
			next++
		}
		if at == x.Table.Len() {
			break
		}
		mode := int8(0)
		if x.Modes != nil {
			mode = x.Modes[at]
		}
		e, _ := x.Table.Part(at, 0)
		if err := w.Add(bin[e.Offset:e.Offset+e.Size], mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteIndex(&i, "y.idx"); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), i.Bytes()
}

// TestSequencesComeBack writes random datasets and reads them back. One of them is larger than the pieces in which
// Open reads.
func TestSequencesComeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	dtypes := []format.DType{format.U8, format.I8, format.I16, format.I32, format.I64, format.U16}
	for round := range 60 {
		dtype, multimodal := dtypes[round%6], round%4 == 1
		count := rng.IntN(50)
		if round == 1 {
			count = 140_000
		}
		var bin, idx bytes.Buffer
		w, err := megatron.NewWriter(&bin, "x.bin", dtype, multimodal)
		if err != nil {
			t.Fatal(err)
		}
		documents, modes := []int64{0}, []int8(nil)
		var ends []int
		for i := range count {
			tokens := make([]byte, rng.IntN(5)*dtype.Bits()/8)
			for j := range tokens {
				tokens[j] = byte(rng.Uint32())
			}
			mode := int8(0)
			if multimodal {
				mode = int8(rng.Uint32())
				modes = append(modes, mode)
			}
			if err := w.Add(tokens, mode); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, bin.Len())
			for rng.IntN(3) == 0 || i == count-1 && documents[len(documents)-1] != int64(count) {
				w.EndDocument()
				documents = append(documents, int64(i+1))
			}
		}
		if err := w.WriteIndex(&idx, "x.idx"); err != nil {
			t.Fatal(err)
		}
		x, err := open(idx.Bytes(), int64(bin.Len()), megatron.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if x.DType != dtype || !x.Contiguous || !slices.Equal(x.Documents, documents) || !slices.Equal(x.Modes, modes) ||
			x.Table.Len() != count || x.Table.File() != "x.bin" || x.Table.Size() != int64(bin.Len()) {
			t.Fatalf("round %d: %d sequences of %s, documents %v, expected %v", round, x.Table.Len(), x.DType, x.Documents,
				documents)
		}
		start := 0
		for i, end := range ends {
			if e, ok := x.Table.Part(i, 0); !ok || e.Offset != int64(start) || e.Size != int64(end-start) {
				t.Fatalf("round %d, sequence %d: %v, expected %d to %d", round, i, e, start, end)
			}
			start = end
		}
	}
}

// patch returns the golden index with other bytes at an offset.
func patch(t testing.TB, at int, b ...byte) []byte {
	idx := unhex(t, goldenIdx)
	copy(idx[at:], b)
	return idx
}

// le returns an integer of eight bytes.
func le(v int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(v)) }

func TestDamagedIndexesAreRefused(t *testing.T) {
	long := patch(t, 17, 5) // int64: a sequence of 2^30 tokens has 8 GiB
	binary.LittleEndian.PutUint32(long[34:], 1<<30)
	binary.LittleEndian.PutUint64(long[50:], 1<<33)
	for _, c := range []struct {
		name string
		idx  []byte
		bin  int64
		kind errs.Kind
		says string
	}{
		{"empty", nil, 10, errs.Corrupt, "the index has 0 bytes, expected at least 34"},
		{"half a header", unhex(t, goldenIdx)[:33], 10, errs.Corrupt, "33 bytes, expected at least 34"},
		{"magic", patch(t, 0, 'X'), 10, errs.Corrupt, `begins with "XMIDIDX\x00\x00", expected "MMIDIDX\x00\x00"`},
		{"version", patch(t, 9, 2), 10, errs.Unsupported, "version 2, expected 1"},
		{"dtype 0", patch(t, 17, 0), 10, errs.Corrupt, "dtype code is 0, expected 1 to 8"},
		{"dtype 9", patch(t, 17, 9), 10, errs.Corrupt, "dtype code is 9"},
		{"dtype 6", patch(t, 17, 6), 10, errs.Unsupported, "dtype code is 6, which is F64 in Megatron-core"},
		{"dtype 7", patch(t, 17, 7), 10, errs.Unsupported, "dtype code is 7, which is F32"},
		{"2^60 sequences", patch(t, 18, le(1<<60)...), 10, errs.Corrupt, "1152921504606846976 sequences"},
		{"2^63 sequences", patch(t, 18, le(math.MinInt64)...), 10, errs.Corrupt, "9223372036854775808 sequences"},
		{"2^60 documents", patch(t, 26, le(1<<60)...), 10, errs.Corrupt, "1152921504606846976 document indices"},
		{"too many of both", patch(t, 18, append(le(4), le(6)...)...), 10, errs.Corrupt, "expected 130 for 4 sequences"},
		{"no document", patch(t, 18, append(le(4), le(0)...)...), 10, errs.Corrupt, "no document indices"},
		{"one byte more", append(patch(t, 0), 0), 10, errs.Corrupt, "83 bytes, expected 82 for 2 sequences and 3 document"},
		{"one byte less", patch(t, 0)[:81], 10, errs.Corrupt, "has 81 bytes"},
		{"negative length", patch(t, 34, 0xff, 0xff, 0xff, 0xff), 10, errs.Corrupt, "sequence 0 has -1 tokens"},
		{"negative pointer", patch(t, 50, le(-2)...), 10, errs.Corrupt, "sequence 1 has 4 bytes at offset -2"},
		{"pointer outside", patch(t, 50, le(7)...), 10, errs.Corrupt, "4 bytes at offset 7 of x.bin, which has 10 bytes"},
		{"huge pointer", patch(t, 50, le(math.MaxInt64)...), 10, errs.Corrupt, "offset 9223372036854775807"},
		{"8 GiB", long, 1 << 40, errs.Unsupported, "sequence 0 has 8589934592 bytes, expected at most 4294967295"},
		{"short bin", patch(t, 0), 9, errs.Corrupt, "sequence 1 has 4 bytes at offset 6 of x.bin, which has 9 bytes"},
		{"long bin", patch(t, 0), 11, errs.Corrupt, "ends at offset 10 of x.bin, expected its end at 11"},
		{"first document", patch(t, 58, 1), 10, errs.Corrupt, "document index 0 is 1, expected 0"},
		{"documents run back", patch(t, 66, append(le(2), le(1)...)...), 10, errs.Corrupt,
			"document index 2 is 1, expected 2 to 2"},
		{"document outside", patch(t, 66, 3), 10, errs.Corrupt, "document index 1 is 3, expected 0 to 2"},
		{"last document", patch(t, 74, 1), 10, errs.Corrupt, "last document index is 1, expected 2"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := open(c.idx, c.bin, megatron.Options{})
		runtime.ReadMemStats(&after)
		if after.TotalAlloc-before.TotalAlloc > 64<<10 {
			t.Errorf("%s: %d bytes were allocated", c.name, after.TotalAlloc-before.TotalAlloc)
		}
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), "read Megatron index x.idx: ") ||
			!strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" {
			t.Errorf("%s: %v of kind %v, expected %q", c.name, err, errs.KindOf(err), c.says)
		}
	}
	idx := unhex(t, goldenIdx)
	for cut := headerEnd; cut < len(idx); cut += 8 { // the file is shorter than its size
		_, err := megatron.Open(bytes.NewReader(idx[:cut]), int64(len(idx)), "x.idx", "x.bin", 10, megatron.Options{})
		if !errs.Is(err, errs.IO) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

// headerEnd is the size of the header of an .idx file.
const headerEnd = 34

func TestDuplicatesShareTokens(t *testing.T) {
	idx := patch(t, 50, 0) // both sequences begin at offset 0
	x, err := open(idx, 10, megatron.Options{})
	if err != nil || x.Contiguous {
		t.Fatalf("%+v, %v", x, err)
	}
	if got := contents(x.Table, unhex(t, goldenBin)); !bytes.Equal(got[1], []byte{1, 0, 2, 0}) {
		t.Errorf("sequence 1 is %x", got[1])
	}
}

func TestFloatsAreReadIfAllowed(t *testing.T) {
	for code, want := range map[byte]format.DType{6: format.F64, 7: format.F32} {
		idx := patch(t, 17, code)
		binary.LittleEndian.PutUint64(idx[50:], uint64(3*want.Bits()/8))
		x, err := open(idx, int64(5*want.Bits()/8), megatron.Options{AllowFloat: true})
		if err != nil || x.DType != want || !x.Contiguous {
			t.Errorf("code %d: %+v, %v", code, x, err)
		}
	}
}

// broken is a file that cannot be written.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWrongWritesAreRefused(t *testing.T) {
	for _, d := range []format.DType{"", format.F32, format.F64, format.U32, format.Bool} {
		if _, err := megatron.NewWriter(&bytes.Buffer{}, "x.bin", d, false); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", d, err)
		}
	}
	var bin, idx bytes.Buffer
	w, err := megatron.NewWriter(&bin, "x.bin", format.I32, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(make([]byte, 6), 0); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "multiple of 4") {
		t.Errorf("part of a token: %v", err)
	}
	if err := w.Add(nil, 1); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "its mode is 1") {
		t.Errorf("mode: %v", err)
	}
	if err := w.Add(make([]byte, 8), 0); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteIndex(&idx, "x.idx"); !errs.Is(err, errs.Invalid) || idx.Len() != 0 {
		t.Errorf("open document: %v", err)
	}
	w.EndDocument()
	if err := w.WriteIndex(broken{}, "x.idx"); err == nil || !strings.Contains(err.Error(), "x.idx: disk full") {
		t.Errorf("broken index: %v", err)
	}
	if err := w.WriteIndex(&idx, "x.idx"); err != nil {
		t.Fatal(err)
	}
	if x, err := open(idx.Bytes(), 8, megatron.Options{}); err != nil || x.Table.Len() != 1 || x.Contiguous != true {
		t.Errorf("%+v, %v", x, err)
	}
	w, _ = megatron.NewWriter(broken{}, "x.bin", format.I32, false)
	err = w.Add(make([]byte, 4), 0)
	if err == nil || !strings.Contains(err.Error(), "x.bin: disk full") || w.Add(nil, 0) != err ||
		w.WriteIndex(&idx, "x.idx") != err {
		t.Errorf("broken file: %v", err)
	}
}

// FuzzOpen checks that no index makes Open panic or return a sequence outside of the file. An accepted index that is
// written again is read as the same index.
func FuzzOpen(f *testing.F) {
	f.Add(unhex(f, goldenIdx), int64(10))
	f.Add(patch(f, 50, 0), int64(10))
	f.Add(patch(f, 17, 6), int64(40))
	f.Add(patch(f, 18, le(1<<60)...), int64(10))
	f.Add(append(patch(f, 0), 0xff, 1), int64(10))
	f.Add(append(patch(f, 0)[:18], make([]byte, 24)...), int64(10))
	f.Fuzz(func(t *testing.T, idx []byte, binSize int64) {
		binSize &= 1<<16 - 1
		x, err := open(idx, binSize, megatron.Options{AllowFloat: true})
		if err != nil {
			if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Unsupported || errs.FixOf(err) == "" {
				t.Fatalf("error is %v of kind %v", err, k)
			}
			return
		}
		n, d := x.Table.Len(), len(x.Documents)
		if size := headerEnd + 12*n + 8*d + len(x.Modes); size != len(idx) || x.Documents[0] != 0 ||
			x.Documents[d-1] != int64(n) || !slices.IsSorted(x.Documents) || x.Modes != nil && len(x.Modes) != n {
			t.Fatalf("%d bytes: %+v", len(idx), x)
		}
		total := int64(0)
		for i := range n {
			e, ok := x.Table.Part(i, 0)
			if !ok || e.Offset < 0 || e.Size < 0 || e.Offset+e.Size > binSize || e.Size%int64(x.DType.Bits()/8) != 0 {
				t.Fatalf("sequence %d is %v of %d bytes", i, e, binSize)
			}
			total += e.Size
		}
		if x.Contiguous && total != binSize {
			t.Fatalf("%d of %d bytes are contiguous", total, binSize)
		}
		if x.DType == format.F32 || x.DType == format.F64 || total > 1<<20 {
			return
		}
		bin := make([]byte, binSize)
		for i := range bin {
			bin[i] = byte(i * 7)
		}
		bin2, idx2 := rewrite(t, x, bin)
		y, err := open(idx2, int64(len(bin2)), megatron.Options{})
		if err != nil || !y.Contiguous || y.DType != x.DType || !slices.Equal(y.Documents, x.Documents) ||
			!slices.Equal(y.Modes, x.Modes) || !slices.EqualFunc(contents(y.Table, bin2), contents(x.Table, bin), bytes.Equal) {
			t.Fatalf("written again: %+v, %v, expected %+v", y, err, x)
		}
		if x.Contiguous && (!bytes.Equal(idx, idx2) || !bytes.Equal(bin, bin2)) {
			t.Fatalf("written again: %x, expected %x", idx2, idx)
		}
	})
}
