// SPDX-License-Identifier: Apache-2.0

package blocklatency

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// event is a tracepoint of the kernel: its number, and where its fields are in the context of a program.
type event struct {
	id                 uint64
	dev, sector, flags int16
}

// parseEvent reads the files id and format of a tracepoint. The fields differ from kernel to kernel in their offsets.
func parseEvent(name, id, format string) (event, error) {
	bad := func(why string) (event, error) {
		return event{}, errs.New(errs.Unsupported, "read", "tracepoint "+name, why)
	}
	var e event
	var err error
	if e.id, err = strconv.ParseUint(strings.TrimSpace(id), 10, 32); err != nil {
		return bad(fmt.Sprintf("its id is %.40q; expected a number", id))
	}
	for field, want := range map[string]struct {
		to   *int16
		size int
	}{"dev": {&e.dev, 4}, "sector": {&e.sector, 8}, "rwbs": {&e.flags, 0}} {
		offset, size, ok := fieldOf(format, field)
		switch {
		case !ok:
			return bad("it has no field " + field)
		case want.size > 0 && size != want.size, offset%max(want.size, 1) != 0:
			return bad(fmt.Sprintf("its field %s has %d bytes at offset %d; expected %d", field, size, offset, want.size))
		}
		*want.to = int16(offset)
	}
	return e, nil
}

// fieldOf returns the offset and size of a field in the text of a format, whose lines are such as
// "field:dev_t dev;	offset:8;	size:4;	signed:0;".
func fieldOf(format, name string) (offset, size int, ok bool) {
	for line := range strings.Lines(format) {
		text, found := strings.CutPrefix(strings.TrimSpace(line), "field:")
		if !found {
			continue
		}
		declaration, rest, _ := strings.Cut(text, ";")
		declaration, _, _ = strings.Cut(declaration, "[")
		words := strings.Fields(declaration)
		if len(words) == 0 || words[len(words)-1] != name {
			continue
		}
		for part := range strings.SplitSeq(rest, ";") {
			key, value, _ := strings.Cut(strings.TrimSpace(part), ":")
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > 1<<14 {
				continue
			}
			switch key {
			case "offset":
				offset, ok = n, true
			case "size":
				size = n
			}
		}
		// The first eight bytes belong to the tracer.
		return offset, size, ok && offset >= 8
	}
	return 0, 0, false
}
