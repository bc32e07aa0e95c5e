// SPDX-License-Identifier: Apache-2.0

// Package audit writes one line of JSON for each request to a file, and sends the lines to a webhook.
//
// The server writes the line of a request before it replies. So a client that has its reply finds the line in the log,
// even if the server was killed right afterwards.
package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Options are the place and the limits of a log.
type Options struct {
	// Path is the file to which lines are appended. Open creates a missing directory of Path.
	Path string
	// MaxSize is the size in bytes at which the file is rotated.
	MaxSize int64
	// Keep is the number of rotated files that are kept beside the file itself.
	Keep int
	// Dropped, if not nil, is called when a rotated file is removed that a Sender has not sent completely.
	Dropped func(path string)
}

// Log is a file of lines with rotation. All methods of Log are safe for concurrent use.
//
// A rotated file has the name of the log with a number behind it, such as audit.log.7. Higher numbers are newer.
type Log struct {
	o Options

	mu     sync.Mutex
	file   *os.File
	size   int64
	number int64 // that the current file gets when it is rotated
	sent   position
	sender bool          // whether a Sender reads the files
	grown  chan struct{} // closed when a line was written; nil while nobody waits
}

// position is a place in the files of a log.
type position struct {
	number int64
	offset int64
}

// Open opens a log, or creates it. The caller closes it.
func Open(o Options) (*Log, error) {
	const op = "open audit log"
	l := &Log{o: o}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o750); err != nil {
		return nil, errs.Wrap(op, o.Path, err)
	}
	numbers, err := l.rotated()
	if err != nil {
		return nil, errs.Wrap(op, o.Path, err)
	}
	l.number = 1
	if len(numbers) > 0 {
		l.number = numbers[len(numbers)-1] + 1
	}
	if err := l.openFile(); err != nil {
		return nil, errs.Wrap(op, o.Path, err)
	}
	return l, nil
}

// rotated returns the numbers of the rotated files, ascending.
func (l *Log) rotated() ([]int64, error) {
	entries, err := os.ReadDir(filepath.Dir(l.o.Path))
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(l.o.Path)+".")
		if n, err := strconv.ParseInt(rest, 10, 64); ok && err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func (l *Log) pathOf(number int64) string { return l.o.Path + "." + strconv.FormatInt(number, 10) }

// openFile opens the current file. A line that a crash cut off is ended, so that the next line stands alone.
func (l *Log) openFile() error {
	f, err := os.OpenFile(l.o.Path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is %s, expected a regular file", info.Mode().Type())
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	l.file, l.size = f, info.Size()
	if l.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, l.size-1); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if last[0] != '\n' {
		return l.append([]byte{'\n'})
	}
	return nil
}

// Write appends one line, without its line break. When Write returns nil, the line survives the end of the process. A
// power failure may lose the newest lines. If Write fails, the line may be in the file in part.
func (l *Log) Write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return errs.New(errs.Closed, "write audit log", l.o.Path, "the log is closed")
	}
	if l.size > 0 && l.size+int64(len(line))+1 > l.o.MaxSize {
		if err := l.rotate(); err != nil {
			return errs.Wrap("rotate audit log", l.o.Path, err)
		}
	}
	if err := l.append(append(line, '\n')); err != nil {
		return errs.Wrap("write audit log", l.o.Path, err)
	}
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
	return nil
}

// append writes bytes with one call. If the call writes only a part, the rest is cut off again.
func (l *Log) append(b []byte) error {
	n, err := l.file.Write(b)
	if err != nil && n > 0 {
		if e := l.file.Truncate(l.size); e != nil {
			l.size += int64(n) // a part of the line stays; the next line begins behind it
		}
		return err
	}
	l.size += int64(n)
	return err
}

// rotate gives the current file its number, begins a new file, and removes the oldest files.
func (l *Log) rotate() error {
	if err := os.Rename(l.o.Path, l.pathOf(l.number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old := l.file
	if err := l.openFile(); err != nil {
		l.file = old // the lines go to the renamed file until the next try
		l.number++
		return err
	}
	l.number++
	_ = old.Close() // every line was written with its own call, which has reported errors
	return l.prune()
}

// prune removes rotated files beyond Keep.
func (l *Log) prune() error {
	numbers, err := l.rotated()
	if err != nil {
		return err
	}
	for len(numbers) > l.o.Keep {
		n := numbers[0]
		numbers = numbers[1:]
		if l.sender && n >= l.sent.number && l.o.Dropped != nil {
			l.o.Dropped(l.pathOf(n))
		}
		if err := os.Remove(l.pathOf(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close closes the file. Later calls of Write fail.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
	return errs.Wrap("close audit log", l.o.Path, err)
}
