// SPDX-License-Identifier: Apache-2.0

// Package accesslog collects the access logs of buckets in files, and delivers them as objects.
//
// A line is appended to a file before it is delivered, so that the end of the process loses no line. There is one file
// for each source bucket and target. The first line of a file names the source bucket and the target.
package accesslog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Target is where the lines of a source bucket are delivered.
type Target struct {
	Source string `json:"source"` // bucket that clients ask for
	Owner  string `json:"owner"`  // owner of the bucket Source
	Region string `json:"region"`
	Bucket string `json:"bucket"` // bucket that gets the objects
	Prefix string `json:"prefix"`
	// Partitioned puts the owner, the region, the source and the date into the keys of the objects.
	Partitioned bool `json:"partitioned,omitempty"`
	// EventTime makes the date in the keys that of the requests, without a time of day.
	EventTime bool `json:"event_time,omitempty"`
}

// Options are the place and the limits of a Log.
type Options struct {
	Dir string // directory of the files, which is created
	// Interval is the time between two deliveries.
	Interval time.Duration
	// MaxSize is the size in bytes at which a file is delivered early; 0 means 32 MiB.
	MaxSize int64
	// Put writes an object with a key to the bucket of a target. If the error of Put wraps ErrGone or ErrDenied, the lines
	// are dropped.
	Put func(ctx context.Context, t Target, key string, body []byte) error
	// Dropped, if not nil, is called with the number of lines that could not be delivered.
	Dropped func(t Target, lines int, why error)
	// Failed, if not nil, is called with errors after which the Log tries again.
	Failed func(error)
	Now    func() time.Time // nil means time.Now
}

// ErrGone means that the target of a log cannot get objects any more, because it does not exist.
var ErrGone = errors.New("the target bucket cannot be written")

// ErrDenied means that the target bucket does not allow the delivery of the log.
var ErrDenied = errors.New("the target bucket refuses the access log")

// Log collects lines and delivers them. All methods are safe for concurrent use.
type Log struct {
	o    Options
	mu   sync.Mutex
	open map[Target]*spool
	full chan struct{} // gets a value when a file is large
	busy sync.Mutex    // one delivery at a time
}

// spool is the file to which the lines of one target are appended.
type spool struct {
	file *os.File
	size int64
}

const (
	spoolSuffix = ".log"
	readySuffix = ".ready" // of a file that gets no more lines
	// mostKept is the largest number of files that wait for one delivery.
	mostKept = 64
)

// Open opens the directory of a log. Files that an earlier process left are delivered by Run.
func Open(o Options) (*Log, error) {
	const op = "open access logs"
	if o.MaxSize <= 0 {
		o.MaxSize = 32 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Log{o: o, open: map[Target]*spool{}, full: make(chan struct{}, 1)}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, errs.Wrap(op, o.Dir, err)
	}
	names, err := filepath.Glob(filepath.Join(o.Dir, "*"+spoolSuffix))
	if err != nil {
		return nil, errs.Wrap(op, o.Dir, err)
	}
	for _, name := range names {
		if err := os.Rename(name, readyName(name)); err != nil {
			return nil, errs.Wrap(op, name, err)
		}
	}
	return l, nil
}

// readyName returns a new name for a file that gets no more lines. The names sort by time.
func readyName(name string) string {
	return fmt.Sprintf("%s.%020d%s", strings.TrimSuffix(name, spoolSuffix), time.Now().UnixNano(), readySuffix)
}

// Add appends a line, without its line break.
func (l *Log) Add(t Target, line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.open[t]
	if s == nil {
		var err error
		if s, err = l.create(t); err != nil {
			return errs.Wrap("write access log", t.Source, err)
		}
		l.open[t] = s
	}
	n, err := s.file.Write(append(line, '\n'))
	s.size += int64(n)
	if s.size > l.o.MaxSize {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
	return errs.Wrap("write access log", t.Source, err)
}

// create begins a file with its target as the first line. The caller holds the lock.
func (l *Log) create(t Target) (*spool, error) {
	head, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	h := fnv.New128a()
	_, _ = h.Write(head) // never fails
	f, err := os.OpenFile(filepath.Join(l.o.Dir, hex.EncodeToString(h.Sum(nil))+spoolSuffix),
		os.O_WRONLY|os.O_CREATE|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(append(head, '\n')); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &spool{file: f}, nil
}

// Run delivers lines until ctx ends. What is collected then is delivered by the next Run.
func (l *Log) Run(ctx context.Context) {
	tick := time.NewTicker(l.o.Interval)
	defer tick.Stop()
	for {
		l.report(l.deliver(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.report(l.Flush(ctx, ""))
		case <-l.full:
			l.report(l.Flush(ctx, ""))
		}
	}
}

func (l *Log) report(err error) {
	if err != nil && l.o.Failed != nil {
		l.o.Failed(err)
	}
}

// Flush delivers the lines of a source bucket now, or of all buckets if source is empty.
func (l *Log) Flush(ctx context.Context, source string) error {
	l.mu.Lock()
	for t, s := range l.open {
		if source != "" && t.Source != source {
			continue
		}
		delete(l.open, t)
		name := s.file.Name()
		err := s.file.Close()
		if e := os.Rename(name, readyName(name)); err == nil {
			err = e
		}
		if err != nil {
			l.mu.Unlock()
			return errs.Wrap("deliver access log", name, err)
		}
	}
	l.mu.Unlock()
	return l.deliver(ctx)
}

// Close closes the files. The collected lines are delivered when the log is opened again.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first error
	for t, s := range l.open {
		delete(l.open, t)
		if err := s.file.Close(); err != nil && first == nil {
			first = errs.Wrap("close access log", t.Source, err)
		}
	}
	return first
}

// deliver makes an object of each file that gets no more lines. It returns the first error and tries all files.
func (l *Log) deliver(ctx context.Context) error {
	l.busy.Lock()
	defer l.busy.Unlock()
	names, err := filepath.Glob(filepath.Join(l.o.Dir, "*"+readySuffix))
	if err != nil {
		return errs.Wrap("deliver access log", l.o.Dir, err)
	}
	var first error
	for i, name := range names {
		err := l.deliverFile(ctx, name, len(names)-i > mostKept)
		if err != nil && first == nil {
			first = errs.Wrap("deliver access log", name, err)
		}
	}
	return first
}

// deliverFile makes an object of one file and removes the file. If the object cannot be written, the file stays for the
// next try, unless last is set.
func (l *Log) deliverFile(ctx context.Context, name string, last bool) error {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	head, body, _ := bytes.Cut(b, []byte{'\n'})
	var t Target
	if json.Unmarshal(head, &t) != nil || len(body) == 0 {
		return os.Remove(name) // a crash before the first line
	}
	if body[len(body)-1] != '\n' {
		body = append(body, '\n') // a crash cut the last line off
	}
	err = l.o.Put(ctx, t, t.Key(l.o.Now()), body)
	if err == nil || errors.Is(err, ErrGone) || errors.Is(err, ErrDenied) || last {
		if err != nil && l.o.Dropped != nil {
			l.o.Dropped(t, bytes.Count(body, []byte{'\n'}), err)
		}
		return os.Remove(name)
	}
	return err
}

// Key returns the key of a new object that is delivered at the given time. Each call returns another key.
func (t *Target) Key(now time.Time) string {
	now = now.UTC()
	var unique [8]byte
	_, _ = rand.Read(unique[:]) // never fails
	name := now.Format("2006-01-02-15-04-05-") + strings.ToUpper(hex.EncodeToString(unique[:]))
	if !t.Partitioned {
		return t.Prefix + name
	}
	if t.EventTime {
		name = now.Format("2006-01-02-00-00-00-") + strings.ToUpper(hex.EncodeToString(unique[:]))
	}
	return t.Prefix + t.Owner + "/" + t.Region + "/" + t.Source + "/" + now.Format("2006/01/02/") + name
}
