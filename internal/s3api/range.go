// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// askedRange is what a well-formed Range header asks for.
type askedRange struct {
	first int64 // -1 in bytes=-n
	last  int64 // -1 in bytes=a-; the number of bytes in bytes=-n
}

// readRange reads a header of the form bytes=a-b, bytes=a- or bytes=-n. S3 ignores any other Range header, and sends
// the whole object. So readRange returns false for several ranges, for other units, and for numbers that have a sign,
// a space or more than 63 bits.
func readRange(header string) (r askedRange, ok bool) {
	text, ok := strings.CutPrefix(header, "bytes=")
	first, last, both := strings.Cut(text, "-")
	if !ok || !both || first == "" && last == "" {
		return r, false
	}
	if r.first, ok = position(first); ok {
		r.last, ok = position(last)
	}
	return r, ok && (r.first < 0 || r.last < 0 || r.first <= r.last)
}

// position reads a number that consists of digits, or returns -1 for no digits. The function strconv.ParseInt alone
// would also accept a sign.
func position(digits string) (n int64, ok bool) {
	if digits == "" {
		return -1, true
	}
	if strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil
}

// of returns the range of an object with the given size, and whether the reply is partial. It returns false if the
// object has no byte in the range.
func (r askedRange) of(size int64) (found object.Range, partial, ok bool) {
	switch {
	case r.first < 0 && r.last == 0 || r.first >= size:
		return object.Range{}, false, false
	case r.first < 0 && size == 0:
		return object.Range{}, false, true // the last bytes of nothing are the whole object
	case r.first < 0:
		n := min(r.last, size)
		return object.Range{Off: size - n, N: n}, true, true
	case r.last < 0 || r.last >= size:
		return object.Range{Off: r.first, N: size - r.first}, true, true
	}
	return object.Range{Off: r.first, N: r.last - r.first + 1}, true, true
}

// pickRange returns the range of an object that a Range header selects.
func pickRange(size int64, header string) (picked, error) {
	p := picked{Range: object.Range{N: size}}
	asked, ok := readRange(header)
	if !ok {
		return p, nil
	}
	if p.Range, p.partial, ok = asked.of(size); !ok {
		return p, s3err.GetInvalidRangeErr(strings.Clone(header), size)
	}
	return p, nil
}

// expecting returns a context that tells the store which range a Range header asks for. The last bytes of an object
// tell nothing: pick handles them when the size of the object is known.
func expecting(ctx context.Context, header *string) context.Context {
	if header == nil {
		return ctx
	}
	asked, ok := readRange(*header)
	if !ok || asked.first < 0 {
		return ctx
	}
	r := object.Range{Off: asked.first, N: -1}
	if asked.last >= 0 {
		if asked.last-asked.first == math.MaxInt64 {
			return ctx // the length has more than 63 bits
		}
		r.N = asked.last - asked.first + 1
	}
	return object.ExpectRange(ctx, r)
}
