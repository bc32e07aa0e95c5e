// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/test/effort"
)

// cost runs fn and returns the bytes that it allocated in all, which is never
// less than what it held at once, and the time it took.
func cost(fn func()) (int64, time.Duration) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	fn()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc), took
}

// repeat joins pieces made by fn to a header of about n bytes.
func repeat(n int, fn func(i int) string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(fn(i))
	}
	b.WriteByte('}')
	return b.String()
}

// TestAttacks gives the parser headers of megabytes made to cost as much memory or
// time as they can. All allocations together stay within a small multiple of
// the header, and the time within what a hundred times as much could bear.
func TestAttacks(t *testing.T) {
	effort.SingleThreaded(t)
	const n = 2 << 20
	garbage := make([]byte, 10<<20)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(garbage)
	sum := 0
	for _, c := range []struct {
		name   string
		header string
		data   int
		mode   Mode
		want   string // "" for a legal header
	}{
		{"many names on one range", repeat(n, func(i int) string {
			return fmt.Sprintf(`"%d":%s`, i, entry("U8", "[4]",
				"[0,4]"))
		}), 4, Strict, "it overlaps 4 bytes"},
		{"many empty tensors", repeat(n, func(i int) string {
			return fmt.Sprintf(`"%x":%s`, i, entry("U8", "[0]",
				"[0,0]"))
		}), 0, Strict, ""},
		{"backwards", repeat(n, func(i int) string {
			return fmt.Sprintf(`"%x":%s`, i, entry("U8", "[1]", fmt.Sprintf("[%d,%d]", 200000-i, 200001-i)))
		}), 0, Strict, "data_offsets begin at"},
		{"ranks", repeat(n, func(i int) string {
			return fmt.Sprintf(`"%x":%s`, i, entry("U8", "["+strings.Repeat("0,", 63)+"0]", "[0,0]"))
		}), 0, Strict, ""},
		{"overflow shapes", repeat(n, func(i int) string {
			return fmt.Sprintf(`"%x":%s`, i, entry("U8", "["+strings.Repeat("281474976710655,", 63)+"2]", "[0,0]"))
		}), 0, Strict, "overflows 64 bits"},
		{"braces", "{" + strings.Repeat("{", n), 0, Strict, "expected a JSON string"},
		{"nested arrays", `{"a":{"shape":` + strings.Repeat("[", n), 0, Strict, "shape[0] is ["},
		{"nested tensors", strings.Repeat(`{"a":`, n/5), 0, Strict, `field "a" is unknown`},
		{"ignored nesting", `{"a":{"x":` + strings.Repeat(`{"a":`, n/5), 0, Lenient, "levels"},
		{"ignored objects", `{"a":{"x":[` + strings.Repeat(`{"a":0},`, n/8), 0, Lenient, "expected a JSON value"},
		{"ignored keys", `{"a":{` + repeat(n, func(i int) string { return fmt.Sprintf(`"%x":0`, i) })[1:], 0, Lenient,
			"ignored keys"},
		{"long ignored key", `{"a":{"` + strings.Repeat("k", n) + `":0`, 0, Lenient, "is too long"},
		{"huge number", `{"a":{"shape":[` + strings.Repeat("9", n) + `]}}`, 0, Strict, "shape[0] is 999"},
		{"many zeros", `{"a":{"shape":[` + strings.Repeat("0", n) + `]}}`, 0, Strict, "shape[0] is 000"},
		{"huge name", `{"` + strings.Repeat("n", n) + `":1}`, 0, Strict, "is too long"},
		{"huge escaped name", `{"` + strings.Repeat(`\u006e`, n/6) + `":1}`, 0, Strict, "is too long"},
		{"huge dtype", `{"a":{"dtype":"` + strings.Repeat("F", n) + `"}}`, 0, Strict, "dtype is"},
		{"huge metadata value", `{"__metadata__":{"k":"` + strings.Repeat("v", n) + `"}}`, 0, Strict, ""},
		{"metadata entries", `{"__metadata__":` + repeat(n, func(i int) string { return fmt.Sprintf(`"%x":""`, i) }) + `}`, 0,
			Strict, "expected at most 65536 entries"},
		{"spaces", "{}" + strings.Repeat(" ", n), 0, Strict, ""},
		{"only spaces", strings.Repeat(" ", n), 0, Lenient, "expected {"},
		{"garbage", string(garbage), 0, Strict, "expected UTF-8"},
		{"garbage of ASCII", "{" + strings.Map(func(r rune) rune { return r&0x5f | 0x20 }, string(garbage[:n])), 0, Strict,
			"expected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := file(c.header, c.data)
			var err error
			used, took := cost(func() { _, err = parseBytes(b, c.mode) })
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error is %.300v, expected it to contain %q", err, c.want)
			}
			if err != nil && len(err.Error()) > 2000 {
				t.Errorf("the error text has %d bytes", len(err.Error()))
			}
			if limit := int64(7 * len(b)); used > limit {
				t.Errorf("allocated %d bytes for a file of %d, expected at most %d", used, len(b), limit)
			}
			sum += int(used)
			t.Logf("%.1f times the file, %v", float64(used)/float64(len(b)), took)
		})
	}
	if sum == 0 {
		t.Error("nothing was measured")
	}
}

// TestTensorLimit goes one past the number of tensors.
func TestTensorLimit(t *testing.T) {
	effort.SingleThreaded(t)
	if testing.Short() {
		t.Skip("makes a header of 60 MB")
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range MaxTensors + 1 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	b.WriteByte('}')
	whole := file(b.String(), 0)
	var err error
	used, took := cost(func() { _, err = parseBytes(whole, Strict) })
	if err == nil || !strings.Contains(err.Error(), `tensor "f4240" is one too many`) ||
		!strings.Contains(err.Error(), "expected at most 1000000 tensors") {
		t.Errorf("error is %v", err)
	}
	if used > 7*int64(len(whole)) {
		t.Errorf("allocated %d bytes for a file of %d", used, len(whole))
	}
	t.Logf("%.1f times the file, %v", float64(used)/float64(len(whole)), took)
}

// hole is a file of any size without content.
type hole struct{ head []byte }

func (h hole) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(h.head)) {
		copy(p, h.head[off:])
	}
	return len(p), nil
}

// TestHeaderLengthLies checks that no length makes the parser allocate what is
// not in the file.
func TestHeaderLengthLies(t *testing.T) {
	for _, n := range []uint64{17, 1 << 20, MaxHeader, MaxHeader + 1, 1 << 31, 1 << 62, 1<<63 - 1, 1 << 63, 1<<63 + 8,
		1<<64 - 8, 1<<64 - 1} {
		b := binary.LittleEndian.AppendUint64(nil, n)
		var err error
		used, _ := cost(func() { _, err = Parse(hole{b}, 24, "m.safetensors", Strict) })
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), fmt.Sprintf("the header length is %d bytes", n)) {
			t.Errorf("length %d: error is %v", n, err)
		}
		if used > 64<<10 {
			t.Errorf("length %d: allocated %d bytes", n, used)
		}
	}
	// The longest legal header of a real file is read once and given up at its
	// first byte.
	b := binary.LittleEndian.AppendUint64(nil, MaxHeader)
	var err error
	used, _ := cost(func() { _, err = Parse(hole{b}, 1<<40, "m.safetensors", Strict) })
	if !errs.Is(err, errs.Corrupt) || used > MaxHeader+MaxHeader/10 {
		t.Errorf("allocated %d bytes: %v", used, err)
	}
}
