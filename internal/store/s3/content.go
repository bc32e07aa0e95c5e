// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// kept is the checksum of a whole object that its server keeps.
type kept struct {
	algorithm string // "crc64nvme", "crc32c", "crc32"; empty: none that can be joined of pieces
	sum       uint64
}

// keptOf finds the checksum in a reply. The checksum of an object in parts may be one of the sums of its parts, which
// is ignored.
func keptOf(h http.Header) kept {
	if t := h.Get("x-amz-checksum-type"); t != "" && !strings.EqualFold(t, "FULL_OBJECT") {
		return kept{}
	}
	for _, algorithm := range []string{"crc64nvme", "crc32c", "crc32"} {
		b, err := base64.StdEncoding.DecodeString(h.Get("x-amz-checksum-" + algorithm))
		switch {
		case err != nil:
		case algorithm == "crc64nvme" && len(b) == 8:
			return kept{algorithm, binary.BigEndian.Uint64(b)}
		case algorithm != "crc64nvme" && len(b) == 4:
			return kept{algorithm, uint64(binary.BigEndian.Uint32(b))}
		}
	}
	return kept{}
}

// content compares what is read of an object with the checksum of the whole. If every byte is read once, in ranges of
// any order, the last range gives the result. The reader sums its bytes while they are in its core's cache.
type content struct {
	kept
	size   int64
	add    func(sum uint64, p []byte) uint64
	behind func(sum uint64, n int64) uint64

	mu    sync.Mutex
	sum   uint64
	read  []stretch // in order, apart from each other
	right int       // how often the whole was read and found to be right
	twice bool      // some bytes came twice: the whole cannot be told any more
}

type stretch struct{ lo, hi int64 }

// mostStretches limits the ranges that are remembered of an object that is read in pieces.
const mostStretches = 1 << 16

// newContent returns nil if there is nothing to compare with.
func newContent(k kept, size int64, join *checksum.Joiner) *content {
	c := &content{kept: k, size: size}
	switch {
	case size == 0 || k.algorithm == "":
		return nil
	case k.algorithm == "crc64nvme":
		c.behind = join.After
		c.add = func(sum uint64, p []byte) uint64 { return join.After(sum, int64(len(p))) ^ checksum.Of(p) }
	default:
		polynomial := uint32(crc32.IEEE)
		if k.algorithm == "crc32c" {
			polynomial = crc32.Castagnoli
		}
		table, join := crc32.MakeTable(polynomial), checksum.NewJoiner32(polynomial)
		c.behind = func(sum uint64, n int64) uint64 { return uint64(join.After(uint32(sum), n)) }
		c.add = func(sum uint64, p []byte) uint64 { return uint64(crc32.Update(uint32(sum), table, p)) }
	}
	return c
}

// took records that [lo, hi) was read, with its sum. An error of kind Corrupt means that the whole differs from its
// checksum.
func (c *content) took(name string, lo, hi int64, sum uint64) error {
	if c == nil || lo == hi {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.read, lo, func(s stretch, lo int64) int {
		if s.lo < lo {
			return -1
		}
		return 1
	})
	if c.twice = c.twice || i > 0 && c.read[i-1].hi > lo || i < len(c.read) && c.read[i].lo < hi ||
		len(c.read) >= mostStretches; c.twice {
		c.read = nil
		return nil
	}
	c.sum ^= c.behind(sum, c.size-hi)
	if i > 0 && c.read[i-1].hi == lo {
		i--
		c.read[i].hi = hi
	} else {
		c.read = slices.Insert(c.read, i, stretch{lo, hi})
	}
	if i+1 < len(c.read) && c.read[i+1].lo == hi {
		c.read[i].hi = c.read[i+1].hi
		c.read = slices.Delete(c.read, i+1, i+2)
	}
	if c.read[0] != (stretch{0, c.size}) {
		return nil
	}
	got := c.sum
	c.sum, c.read = 0, nil
	if got == c.kept.sum {
		c.right++
		return nil
	}
	return errs.New(errs.Corrupt, "get", name, fmt.Sprintf("the content differs from the checksum that the server "+
		"keeps: its %s is %x, expected %x", c.algorithm, got, c.kept.sum)).
		WithFix("read it again; if it differs again, the object is damaged on the server: store it anew from a good copy")
}

// note describes what was compared.
func (c *content) note() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.right > 0:
		return "the content was compared with the server's " + c.algorithm + " of the whole"
	case c.twice:
		return "the content was not compared with the server's " + c.algorithm +
			" of the whole: some bytes were read more than once"
	}
	return "the content was not compared with the server's " + c.algorithm + " of the whole: a part of it was read"
}
