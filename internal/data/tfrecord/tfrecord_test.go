// SPDX-License-Identifier: Apache-2.0

package tfrecord_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Golden records: an empty one, "hello", "123456789", and a tf.train.Example with the integers 1, 2 and 3.
const golden = "000000000000000029039807d8ea82a2" +
	"0500000000000000eab2043e68656c6c6fbb1f1c19" +
	"090000000000000037f97139313233343536373839e5b08ac7" +
	"100000000000000095fbfe180a0e0a0c0a016112071a050a030102038db9ec0a"

// goldenIndex is the index of the golden records.
const goldenIndex = "0 16\n16 21\n37 25\n62 32\n"

// unhex decodes hexadecimal text.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// open lists the records of a file in memory.
func open(file []byte, checkData bool) (*tfrecord.Shard, error) {
	return tfrecord.Open(bytes.NewReader(file), int64(len(file)), "x.tfrecord", tfrecord.Options{CheckData: checkData})
}

// openIndex lists the records of a file in memory by its index.
func openIndex(index string, file []byte) (*tfrecord.Shard, error) {
	return tfrecord.OpenIndex(strings.NewReader(index), int64(len(index)), "x.idx",
		bytes.NewReader(file), int64(len(file)), "x.tfrecord")
}

// contents returns the data of each record.
func contents(table *sample.Table, file []byte) [][]byte {
	all := make([][]byte, table.Len())
	for i := range all {
		e, _ := table.Part(i, 0)
		all[i] = file[e.Offset : e.Offset+e.Size]
	}
	return all
}

// write writes records and their index.
func write(t testing.TB, records [][]byte) (file []byte, index string) {
	t.Helper()
	var f, x bytes.Buffer
	w := tfrecord.NewWriter(&f, &x, "y.tfrecord")
	for _, r := range records {
		if err := w.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return f.Bytes(), x.String()
}

func TestGoldenRecords(t *testing.T) {
	file, index := write(t, [][]byte{{}, []byte("hello"), []byte("123456789"),
		unhex(t, "0a0e0a0c0a016112071a050a03010203")})
	if hex.EncodeToString(file) != golden || index != goldenIndex {
		t.Errorf("file %x\nindex %q", file, index)
	}
}

// TestFilesOfOthers reads files that others wrote. TensorFlow 2.21.0 wrote tensorflow.tfrecord with TFRecordWriter,
// and the package tfrecord 1.14.6 of PyPI wrote pip.tfrecord with its TFRecordWriter. The indexes are from tfrecord2idx
// of tfrecord 1.14.6, and expected.json has what TFRecordDataset of TensorFlow read.
func TestFilesOfOthers(t *testing.T) {
	raw, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var files map[string][]string
	if err := json.Unmarshal(raw, &files); err != nil || len(files) != 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for name, want := range files {
		file := readFile(t, name+".tfrecord")
		index := string(readFile(t, name+".idx"))
		scanned, err := open(file, true)
		if err != nil {
			t.Fatal(err)
		}
		indexed, err := openIndex(index, file)
		if err != nil || !reflect.DeepEqual(scanned.Table, indexed.Table) {
			t.Fatalf("%s: the index lists other records: %v", name, err)
		}
		got := contents(scanned.Table, file)
		if len(got) != len(want) {
			t.Fatalf("%s: %d records, expected %d", name, len(got), len(want))
		}
		for i, b := range got {
			if hex.EncodeToString(b) != want[i] {
				t.Errorf("%s, record %d: %x, expected %s", name, i, b, want[i])
			}
			if err := indexed.CheckData(i); err != nil {
				t.Errorf("%s, record %d: %v", name, i, err)
			}
		}
		var again bytes.Buffer
		if err := tfrecord.WriteIndex(&again, "y.idx", scanned.Table); err != nil || again.String() != index {
			t.Errorf("%s: our index is %q, expected %q: %v", name, again.String(), index, err)
		}
		if f, x := write(t, got); !bytes.Equal(f, file) || x != index {
			t.Errorf("%s: our writer writes %x and %q", name, f, x)
		}
	}
}

// readFile reads a file of testdata.
func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCompressedFilesAreRefused opens files that TensorFlow 2.21.0 wrote with the compression types GZIP and ZLIB.
func TestCompressedFilesAreRefused(t *testing.T) {
	for name, says := range map[string]string{"gzip": "is a GZIP stream", "zlib": "is a ZLIB stream"} {
		_, err := open(readFile(t, name+".tfrecord"), false)
		if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), says) ||
			!strings.Contains(errs.FixOf(err), "decompress") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRecordsComeBack writes random files and reads them back, by a scan and by the index. Some records are longer than
// the pieces in which Open reads.
func TestRecordsComeBack(t *testing.T) {
	rng, content := rand.New(rand.NewPCG(5, 6)), rand.NewChaCha8([32]byte{7})
	for round := range 40 {
		var records [][]byte
		for range rng.IntN(60) {
			size := rng.IntN(1 << (1 + round%12))
			if round > 37 && rng.IntN(8) == 0 {
				size = rng.IntN(3 << 20)
			}
			r := make([]byte, size)
			content.Read(r)
			records = append(records, r)
		}
		file, index := write(t, records)
		for _, check := range []bool{false, true} {
			s, err := open(file, check)
			if err != nil {
				t.Fatal(err)
			}
			if got := contents(s.Table, file); len(got) != len(records) ||
				!bytes.Equal(bytes.Join(got, []byte{1}), bytes.Join(records, []byte{1})) {
				t.Fatalf("round %d: other records", round)
			}
			x, err := openIndex(index, file)
			if err != nil || !reflect.DeepEqual(x.Table, s.Table) {
				t.Fatalf("round %d: the index lists other records: %v", round, err)
			}
			for i := range x.Table.Len() {
				if err := x.CheckData(i); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// header returns the first 12 bytes of a record with a length.
func header(length uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, length)
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return binary.LittleEndian.AppendUint32(b, (sum>>15|sum<<17)+0xa282ead8)
}

// patch returns the golden records with another byte at an offset.
func patch(t testing.TB, at int, b byte) []byte {
	file := unhex(t, golden)
	file[at] = b
	return file
}

// sparse is a file with a beginning and zeros after it.
type sparse []byte

func (s sparse) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	if at < int64(len(s)) {
		copy(b, s[at:])
	}
	return len(b), nil
}

func TestDamagedFilesAreRefused(t *testing.T) {
	whole := unhex(t, golden)
	for _, c := range []struct {
		name      string
		file      []byte
		checkData bool
		says      string
	}{
		{"half a header", whole[:11], false, "record 0 at offset 0: it has 11 bytes, expected at least 16"},
		{"cut after the header", whole[:28], false, "record 1 at offset 16: it has 12 bytes, expected at least 16"},
		{"cut in the data", whole[:60], false, "record 2 at offset 37: its data has 9 bytes, expected at most 7"},
		{"cut in the last CRC", whole[:93], false, "record 3 at offset 62: its data has 16 bytes, expected at most 15"},
		{"length", patch(t, 16, 6), false, "record 1 at offset 16: the masked CRC-32C of its length field 0600000000000000"},
		{"CRC of the length", patch(t, 24, 0), false, "expected 3e04b200"},
		{"2^60", append(header(1<<60), 0, 0, 0, 0), false, "its data has 1152921504606846976 bytes, expected at most 0"},
		{"2^64-1", append(header(1<<64-1), 0, 0, 0, 0), false, "its data has 18446744073709551615 bytes"},
		{"data", patch(t, 28, 'H'), true, "record 1 at offset 16: the masked CRC-32C of its data is"},
		{"CRC of the data", patch(t, 33, 0), true, "expected 191c1f00"},
		{"CRC of no data", patch(t, 12, 0), true, "is a282ead8, expected a282ea00"},
		{"zeros", make([]byte, 64), false, "record 0 at offset 0: the masked CRC-32C"},
		{"text", []byte("this is not a TFRecord file"), false, "record 0 at offset 0: the masked CRC-32C"},
		{"like ZLIB, but with a length in the file", append([]byte{0x78, 0x01}, make([]byte, 500)...), false, "CRC-32C"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := open(c.file, c.checkData)
		runtime.ReadMemStats(&after)
		if after.TotalAlloc-before.TotalAlloc > 64<<10 {
			t.Errorf("%s: %d bytes were allocated", c.name, after.TotalAlloc-before.TotalAlloc)
		}
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "scan TFRecord file x.tfrecord: ") ||
			!strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" {
			t.Errorf("%s: %v of kind %v, expected %q", c.name, err, errs.KindOf(err), c.says)
		}
	}
	if _, err := open(patch(t, 28, 'H'), false); err != nil {
		t.Errorf("data was checked without the option: %v", err)
	}
	if _, err := tfrecord.Open(bytes.NewReader(whole[:40]), 94, "x", tfrecord.Options{}); !errs.Is(err, errs.IO) {
		t.Errorf("a file that is shorter than its size: %v", err)
	}
	_, err := tfrecord.Open(sparse(header(1<<32)), 1<<40, "x", tfrecord.Options{})
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "4294967296 bytes, expected at most 4294967295") {
		t.Errorf("a record of 4 GiB: %v", err)
	}
}

func TestDamagedIndexesAreRefused(t *testing.T) {
	file := unhex(t, golden)
	for _, c := range []struct{ index, says string }{
		{"\n", `line 1: it is "\n", expected an offset and a size`},
		{"0 16\n\n", `line 2: it is "\n"`},
		{"0\n", `line 1: it is "0\n"`},
		{"0 16 1\n", `line 1`},
		{"0  16\n", `line 1`},
		{"0 -16\n", `line 1`},
		{"0 +16\n", `line 1`},
		{"0x0 16\n", `line 1`},
		{"0 99999999999999999999\n", `line 1`},
		{"0 16\n16 15\n", "line 2: the record has 15 bytes, expected at least 16"},
		{"0 95\n", "line 1: the record of 95 bytes at offset 0 ends after x.tfrecord, which has 94 bytes"},
		{"9000000000000000000 9000000000000000000\n", "ends after x.tfrecord"},
		{strings.Repeat("1", 3<<20), "line 1"},
	} {
		_, err := openIndex(c.index, file)
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "read TFRecord index x.idx: ") ||
			!strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" {
			t.Errorf("%.30q: %v, expected %q", c.index, err, c.says)
		}
	}
	for _, index := range []string{"", "0 16", "0 16\r\n16 21\r\n", "16 21\n0 16\n"} {
		if s, err := openIndex(index, file); err != nil || s.Table.Len() != strings.Count(index, " ") {
			t.Errorf("%q: %v", index, err)
		}
	}
	cut := "0 16\n"
	if _, err := tfrecord.OpenIndex(strings.NewReader(cut), 50, "x.idx", nil, 94, "x"); !errs.Is(err, errs.IO) {
		t.Errorf("an index that is shorter than its size: %v", err)
	}
	_, err := tfrecord.OpenIndex(strings.NewReader("0 4294967312\n"), 13, "x.idx", nil, 1<<40, "x")
	if !errs.Is(err, errs.Unsupported) {
		t.Errorf("a record of 4 GiB: %v", err)
	}
}

// TestCheckFindsAWrongIndex reads a file with indexes that do not belong to it.
func TestCheckFindsAWrongIndex(t *testing.T) {
	file := unhex(t, golden)
	s, err := openIndex("0 16\n16 22\n17 21\n37 25\n", file)
	if err != nil {
		t.Fatal(err)
	}
	for i, says := range []string{"", "record 1 at offset 16: its data has 5 bytes, and 6 bytes in the index",
		"record 2 at offset 17: the masked CRC-32C of its length field", ""} {
		for _, err := range []error{s.Check(i), s.CheckData(i)} {
			if (err == nil) != (says == "") ||
				err != nil && (!errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), says)) {
				t.Errorf("record %d: %v, expected %q", i, err, says)
			}
		}
	}
	s, _ = openIndex(goldenIndex, patch(t, 28, 'H'))
	if s.Check(1) != nil || !errs.Is(s.CheckData(1), errs.Corrupt) {
		t.Errorf("%v, %v", s.Check(1), s.CheckData(1))
	}
	s, _ = tfrecord.OpenIndex(strings.NewReader(goldenIndex), int64(len(goldenIndex)), "x.idx",
		bytes.NewReader(file[:20]), 94, "x")
	if !errs.Is(s.Check(1), errs.IO) || !errs.Is(s.CheckData(3), errs.IO) {
		t.Errorf("a file that is shorter than its size: %v, %v", s.Check(1), s.CheckData(3))
	}
}

// counting counts the reads of a file and their bytes.
type counting struct {
	io.ReaderAt
	reads, bytes int
}

func (c *counting) ReadAt(b []byte, at int64) (int, error) {
	c.reads++
	c.bytes += len(b)
	return c.ReaderAt.ReadAt(b, at)
}

// TestReadsAreFewAndSmall counts the reads of files with short and with long records.
func TestReadsAreFewAndSmall(t *testing.T) {
	for _, c := range []struct {
		name                         string
		size, count                  int
		checkData                    bool
		mostReads, mostBytesPerMille int
	}{
		{"short records", 100, 40_000, false, 12, 1000},
		{"long records", 1 << 20, 16, false, 17, 20},
		{"long records with data", 1 << 20, 16, true, 20, 1001},
	} {
		records := make([][]byte, c.count)
		for i := range records {
			records[i] = make([]byte, c.size)
		}
		file, _ := write(t, records)
		r := &counting{ReaderAt: bytes.NewReader(file)}
		s, err := tfrecord.Open(r, int64(len(file)), "x", tfrecord.Options{CheckData: c.checkData})
		if err != nil || s.Table.Len() != c.count {
			t.Fatal(err)
		}
		if most := len(file) / 1000 * c.mostBytesPerMille; r.reads > c.mostReads || r.bytes > most+1000 {
			t.Errorf("%s: %d reads, expected %d; %d bytes, expected %d", c.name, r.reads, c.mostReads, r.bytes, most)
		}
	}
}

// broken is a file that cannot be written.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestFailedWritesAreReported(t *testing.T) {
	w := tfrecord.NewWriter(broken{}, nil, "x.tfrecord")
	err := w.Add(make([]byte, 1<<20))
	if err == nil || err.Error() != "write TFRecord file x.tfrecord: disk full" || w.Add(nil) != err || w.Flush() != err {
		t.Errorf("a long record: %v", err)
	}
	w = tfrecord.NewWriter(broken{}, nil, "x.tfrecord")
	if err := w.Add(nil); err != nil {
		t.Errorf("a short record waits in memory: %v", err)
	}
	if err := w.Flush(); err == nil || err.Error() != "write TFRecord file x.tfrecord: disk full" || w.Add(nil) != err {
		t.Errorf("flush: %v", err)
	}
	w = tfrecord.NewWriter(&bytes.Buffer{}, broken{}, "x.tfrecord")
	if err := w.Add(nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err == nil || err.Error() != "write TFRecord file x.tfrecord: its index: disk full" {
		t.Errorf("index: %v", err)
	}
	s, err := open(unhex(t, golden), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := tfrecord.WriteIndex(broken{}, "x.idx", s.Table); err == nil ||
		err.Error() != "write TFRecord index x.idx: disk full" {
		t.Errorf("index: %v", err)
	}
}
