// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// coder writes or reads the fields of a message, so that one piece of code serves both directions. After the first
// error it does nothing more.
type coder struct {
	b      []byte // the bytes written so far, or the bytes left to read
	what   Type
	writes bool
	err    error
}

func (c *coder) fail(msg string) {
	if c.err == nil {
		op := "read door message"
		if c.writes {
			op = "make door message"
		}
		c.err = errs.New(errs.Invalid, op, c.what.String(), msg)
	}
}

// take returns the next n bytes to read; nil after an error.
func (c *coder) take(n int) []byte {
	if c.err != nil {
		return nil
	}
	if len(c.b) < n {
		c.fail(fmt.Sprintf("ends %d bytes early", n-len(c.b)))
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

func (c *coder) u8(v *uint8) {
	if c.writes {
		c.b = append(c.b, *v)
	} else if b := c.take(1); b != nil {
		*v = b[0]
	}
}

func (c *coder) u16(v *uint16) {
	if c.writes {
		c.b = binary.LittleEndian.AppendUint16(c.b, *v)
	} else if b := c.take(2); b != nil {
		*v = binary.LittleEndian.Uint16(b)
	}
}

func (c *coder) u32(v *uint32) {
	if c.writes {
		c.b = binary.LittleEndian.AppendUint32(c.b, *v)
	} else if b := c.take(4); b != nil {
		*v = binary.LittleEndian.Uint32(b)
	}
}

func (c *coder) u64(v *uint64) {
	if c.writes {
		c.b = binary.LittleEndian.AppendUint64(c.b, *v)
	} else if b := c.take(8); b != nil {
		*v = binary.LittleEndian.Uint64(b)
	}
}

func (c *coder) i64(v *int64) {
	u := uint64(*v)
	if c.u64(&u); !c.writes {
		*v = int64(u)
	}
}

func (c *coder) bool(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	c.u8(&b)
	if b > 1 {
		c.fail(fmt.Sprintf("has %d where 0 or 1 is expected", b))
	}
	if !c.writes {
		*v = b == 1
	}
}

// time codes a time as nanoseconds since 1970. The zero time is coded as the smallest int64.
func (c *coder) time(v *time.Time) {
	const zero = -1 << 63
	n := int64(zero)
	if !v.IsZero() {
		n = v.UnixNano()
	}
	c.i64(&n)
	if c.writes {
		return
	}
	if *v = (time.Time{}); n != zero {
		*v = time.Unix(0, n).UTC()
	}
}

func (c *coder) span(v *time.Duration) {
	n := int64(*v)
	if c.i64(&n); !c.writes {
		*v = time.Duration(n)
	}
}

func (c *coder) raw(v []byte) {
	if c.writes {
		c.b = append(c.b, v...)
	} else {
		copy(v, c.take(len(v)))
	}
}

// text codes a text as its length and its bytes.
func (c *coder) text(v *string, most int) {
	n := c.count(len(*v), most, 1, "bytes of text")
	if c.writes {
		c.b = append(c.b, *v...)
	} else {
		*v = string(c.take(n))
	}
}

// count codes the number of entries that follow, each at least size bytes long. A number that is too large for the
// rest of the packet is refused before anything is allocated.
func (c *coder) count(n, most, size int, what string) int {
	v := uint32(n)
	c.u32(&v)
	if c.err != nil {
		return 0
	}
	if int64(v) > int64(most) {
		c.fail(fmt.Sprintf("has %d %s, expected at most %d", v, what, most))
		return 0
	}
	if !c.writes && int(v) > len(c.b)/size {
		c.fail(fmt.Sprintf("tells of %d %s and has %d bytes left", v, what, len(c.b)))
		return 0
	}
	return int(v)
}

// list codes a list. Each entry takes at least size bytes.
func list[T any](c *coder, v *[]T, most, size int, what string, each func(*T)) {
	n := c.count(len(*v), most, size, what)
	if !c.writes {
		*v = nil
		if n > 0 && c.err == nil {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		if c.err != nil {
			return
		}
		each(&(*v)[i])
	}
}

func (c *coder) blob(v *[]byte, most int, what string) {
	n := c.count(len(*v), most, 1, what)
	if c.writes {
		c.b = append(c.b, *v...)
	} else if b := c.take(n); len(b) > 0 {
		*v = append([]byte(nil), b...)
	}
}

func (c *coder) sums(v *[]uint64) { list(c, v, MaxSums, 8, "sums", c.u64) }
