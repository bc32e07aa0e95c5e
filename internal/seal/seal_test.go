// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"crypto/md5"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/seal"
)

func stream(t testing.TB, key []byte, name string) *seal.Stream {
	t.Helper()
	s, err := seal.NewStream(key, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func content(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// opened decrypts all blocks of a stream of size bytes.
func opened(s *seal.Stream, sealed []byte, size int64) ([]byte, error) {
	var out []byte
	last := seal.Blocks(size) - 1
	for i := range seal.Blocks(size) {
		n := min(len(sealed), seal.Block+seal.Tag)
		var err error
		if out, err = s.Open(out, sealed[:n], i, i == last); err != nil {
			return nil, err
		}
		sealed = sealed[n:]
	}
	return out, nil
}

// TestContentOfEverySizeComesBack seals content around the limits of blocks, through readers of many kinds.
func TestContentOfEverySizeComesBack(t *testing.T) {
	key := seal.NewKey()
	for _, n := range []int{0, 1, 15, 16, seal.Block - 1, seal.Block, seal.Block + 1, 2*seal.Block - 1, 2 * seal.Block,
		5*seal.Block + 77} {
		b := content(n)
		sum := md5.Sum(b)
		for name, src := range map[string]io.Reader{"whole": bytes.NewReader(b),
			"halves":    iotest.HalfReader(bytes.NewReader(b)),
			"early end": iotest.DataErrReader(bytes.NewReader(b))} {
			s := stream(t, key, "a")
			r := seal.NewReader(src, s, true)
			sealed, err := io.ReadAll(r)
			if err != nil || int64(len(sealed)) != seal.Size(int64(n)) {
				t.Fatalf("%d bytes, %s: %d sealed bytes, expected %d: %v", n, name, len(sealed), seal.Size(int64(n)), err)
			}
			size, crc, m := r.Written()
			if size != int64(n) || crc != checksum.Of(b) || !bytes.Equal(m, sum[:]) {
				t.Errorf("%d bytes, %s: described as %d bytes, %x, %x", n, name, size, crc, m)
			}
			if got, err := opened(s, sealed, size); err != nil || !bytes.Equal(got, b) {
				t.Errorf("%d bytes, %s: %v", n, name, err)
			}
		}
	}
}

// TestRangesNeedOnlyTheirBlocks opens every range by the blocks that Span names.
func TestRangesNeedOnlyTheirBlocks(t *testing.T) {
	size := int64(3*seal.Block + 5)
	b := content(int(size))
	s := stream(t, seal.NewKey(), "a")
	sealed, err := io.ReadAll(seal.NewReader(bytes.NewReader(b), s, false))
	if err != nil {
		t.Fatal(err)
	}
	edges := []int64{0, 1, seal.Block - 1, seal.Block, seal.Block + 1, 3 * seal.Block, size - 1, size}
	for _, from := range edges {
		for _, to := range edges {
			if to < from {
				continue
			}
			at, n, first := seal.Span(from, to-from, size)
			if at < 0 || at+n > int64(len(sealed)) || n > 0 && n > (to-from)+2*seal.Block+4*seal.Tag {
				t.Fatalf("%d to %d: %d bytes at %d", from, to, n, at)
			}
			var got []byte
			for i, part := first, sealed[at:at+n]; len(part) > 0; i++ {
				k := min(len(part), seal.Block+seal.Tag)
				if got, err = s.Open(got, part[:k], i, i == seal.Blocks(size)-1); err != nil {
					t.Fatal(err)
				}
				part = part[k:]
			}
			if off := from - first*seal.Block; !bytes.Equal(got[off:off+to-from], b[from:to]) {
				t.Errorf("%d to %d is wrong", from, to)
			}
		}
	}
}

// TestChangedStreamsDoNotOpen flips bits, moves blocks, cuts the end and takes other keys.
func TestChangedStreamsDoNotOpen(t *testing.T) {
	const size = 3 * seal.Block
	key := seal.NewKey()
	s := stream(t, key, "a")
	sealed, err := io.ReadAll(seal.NewReader(bytes.NewReader(content(size)), s, false))
	if err != nil {
		t.Fatal(err)
	}
	const step = seal.Block + seal.Tag
	refused := func(what string, of *seal.Stream, b []byte, n int64) {
		t.Helper()
		if _, err := opened(of, b, n); err == nil {
			t.Errorf("%s: the stream opened", what)
		}
	}
	for _, at := range []int{0, 17, seal.Block, step - 1, step, len(sealed) - 1} {
		b := bytes.Clone(sealed)
		b[at] ^= 0x10
		refused("a flipped bit", s, b, size)
	}
	b := bytes.Clone(sealed)
	copy(b, sealed[step:2*step])
	copy(b[step:], sealed[:step])
	refused("swapped blocks", s, b, size)
	b = append(bytes.Clone(sealed[:step]), sealed[:2*step]...)
	refused("a repeated block", s, b, size)
	refused("a cut tail", s, sealed[:2*step], 2*seal.Block)
	refused("another key", stream(t, seal.NewKey(), "a"), sealed, size)
	refused("another stream of the same key", stream(t, key, "b"), sealed, size)
	salted, err := seal.NewStream(key, []byte("salt"), "a")
	if err != nil {
		t.Fatal(err)
	}
	refused("another salt", salted, sealed, size)
}

// TestAnErrorOfTheSourceEndsTheStream: a body that was cut off never becomes a shorter stream.
func TestAnErrorOfTheSourceEndsTheStream(t *testing.T) {
	broken := errors.New("cut off")
	src := io.MultiReader(bytes.NewReader(content(seal.Block+7)), iotest.ErrReader(broken))
	_, err := io.ReadAll(seal.NewReader(src, stream(t, seal.NewKey(), "a"), false))
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// TestWrappedKeysAreBound unwraps with another key, another text and changed bytes.
func TestWrappedKeysAreBound(t *testing.T) {
	key, secret := seal.NewKey(), seal.NewKey()
	w, err := seal.NewWrapper(key)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := w.Wrap(secret, "a", "bc")
	if got, err := w.Unwrap(wrapped, "a", "bc"); err != nil || !bytes.Equal(got, secret) {
		t.Fatal(err)
	}
	other, err := seal.NewWrapper(seal.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(wrapped)
	changed[20] ^= 1
	for name, unwrap := range map[string]func() ([]byte, error){
		"another text":  func() ([]byte, error) { return w.Unwrap(wrapped, "ab", "c") },
		"another key":   func() ([]byte, error) { return other.Unwrap(wrapped, "a", "bc") },
		"changed bytes": func() ([]byte, error) { return w.Unwrap(changed, "a", "bc") },
		"few bytes":     func() ([]byte, error) { return w.Unwrap(wrapped[:5], "a", "bc") },
	} {
		if _, err := unwrap(); err == nil {
			t.Errorf("%s: unwrapped", name)
		}
	}
	if _, err := seal.NewWrapper(key[:16]); err == nil {
		t.Error("a short key was accepted")
	}
}
