// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// extended is what extended headers say of the next member.
type extended struct {
	present bool // whether an extended header waits for its member
	named   bool // whether path replaces the name of the header
	path    string
	size    int64 // -1 if the size is that of the header
	sparse  bool  // whether the data has holes
	pax     bool  // whether there was a PAX header
}

// parse takes over what the body of a PAX header says of the next member. The result is the reason why the body is
// damaged, or "".
func (x *extended) parse(body []byte) string {
	for len(body) > 0 && body[0] != 0 {
		digits, _, ok := bytes.Cut(body[:min(len(body), 20)], []byte{' '})
		n, err := strconv.Atoi(string(digits))
		if !ok || err != nil || n <= len(digits)+1 || n > len(body) || body[n-1] != '\n' {
			return fmt.Sprintf("the PAX record %.60q does not end after its length", body)
		}
		key, value, ok := bytes.Cut(body[len(digits)+1:n-1], []byte{'='})
		if !ok || len(key) == 0 {
			return fmt.Sprintf("the PAX record %.60q has no key", body[:n])
		}
		if why := x.set(key, value); why != "" {
			return why
		}
		body = body[n:]
	}
	return ""
}

// set takes over one record of a PAX header. The result is the reason why the record is damaged, or "".
func (x *extended) set(key, value []byte) string {
	switch {
	case bytes.HasPrefix(key, []byte("GNU.sparse.")):
		x.sparse = true
	case len(value) == 0: // an empty value restores the field of the header
	case string(key) == "path":
		if bytes.IndexByte(value, 0) >= 0 {
			return fmt.Sprintf("the PAX path %.200q has a NUL", value)
		}
		x.named, x.path = true, string(bytes.TrimRight(value, "/"))
	case string(key) == "size":
		n, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil {
			return fmt.Sprintf("the PAX size is %.40q, expected a number of bytes", value)
		}
		x.size = int64(n)
	}
	return ""
}

// paxRecord returns one line of a PAX header. The length at its start counts itself.
func paxRecord(key, value string) string {
	rest := len(key) + len(value) + len(" =\n")
	n := rest + len(strconv.Itoa(rest))
	n = rest + len(strconv.Itoa(n))
	return strconv.Itoa(n) + " " + key + "=" + value + "\n"
}

// commentRecord returns a PAX comment of exactly n bytes. The number n must be at least 12.
func commentRecord(n int) string {
	const key = "comment"
	spaces := n - len(strconv.Itoa(n)) - len(key) - len(" =\n")
	return strconv.Itoa(n) + " " + key + "=" + strings.Repeat(" ", spaces) + "\n"
}
