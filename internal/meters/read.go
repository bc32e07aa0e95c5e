// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxRead bounds the bytes that are read of one file. The rest of the file is ignored.
const maxRead = 4 << 20

// files reads the files of one machine: those below root. It reuses one buffer, because a view that refreshes every
// second reads hundreds of files. files is not safe for concurrent use.
type files struct {
	root string // "" for the running machine
	buf  []byte
}

func newFiles(root string) *files {
	if root == "/" {
		root = ""
	}
	return &files{root: root, buf: make([]byte, 64<<10)}
}

// read returns the content of a file, at most maxRead bytes. The bytes are valid until the next read. It calls the
// kernel directly, because files of package os cost three times as much for short files in /proc.
func (f *files) read(name string) ([]byte, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(f.root+name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK,
			0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	n := 0
	for {
		if n == len(f.buf) {
			if n >= maxRead {
				return f.buf[:n], nil
			}
			f.buf = append(f.buf, make([]byte, len(f.buf))...)
		}
		m, err := retry(func() (int, error) { return unix.Read(fd, f.buf[n:]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if m == 0 {
			return f.buf[:n], nil
		}
		n += m
	}
}

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// text returns the content of a small file without white space at both ends, or "" if the file cannot be read.
func (f *files) text(name string) string {
	b, err := f.read(name)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// number returns the number that a file holds, and false if the file does not hold exactly one.
func (f *files) number(name string) (uint64, bool) {
	b, err := f.read(name)
	if err != nil {
		return 0, false
	}
	return parseCount(bytes.TrimSpace(b))
}

// names lists a directory without an order, at most 64 Ki names.
func (f *files) names(dir string) ([]string, error) {
	d, err := os.Open(f.root + dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(1 << 16)
	if len(names) > 0 {
		err = nil // a directory of /proc may end early while processes end
	}
	return names, err
}

// link returns the last element of the target of a symbolic link, or "".
func (f *files) link(name string) string {
	to, err := os.Readlink(f.root + name)
	if err != nil {
		return ""
	}
	return to
}

// base returns the last element of a path that the kernel gave.
func base(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(path)
}

// parseCount parses a decimal number without a sign. It returns false for anything else, and for numbers above 2^64-1.
func parseCount(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := uint64(c - '0')
		if n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// counts parses white-space separated numbers into out, and returns how many it parsed before the first that is none.
func counts(b []byte, out []uint64) int {
	i := 0
	for w := range bytes.FieldsSeq(b) {
		if i == len(out) {
			break
		}
		n, ok := parseCount(w)
		if !ok {
			break
		}
		out[i] = n
		i++
	}
	return i
}

// grown returns by how much a counter has grown. Some counters of the kernel have 32 bits and start again at 0. Any
// other counter that shrinks was reset, so its growth is unknown and counts as 0.
func grown(now, before uint64) uint64 {
	if now >= before {
		return now - before
	}
	if before < 1<<32 && before-now > 1<<31 {
		return now + 1<<32 - before
	}
	return 0
}

// per returns the growth of a counter per second; 0 if no time has passed.
func per(now, before uint64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(grown(now, before)) / seconds
}

// part returns a/b, or 0 if b is 0.
func part(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// ago returns by how much a counter of seconds has grown per second.
func ago(now, before, seconds float64) float64 {
	if seconds <= 0 || now < before {
		return 0
	}
	return (now - before) / seconds
}
