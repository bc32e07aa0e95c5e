// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// files is a small store over real files, of the test's own: what the door does
// is tested apart from what a store does.
type files struct {
	dir    string
	inline int

	mu      sync.Mutex
	objects map[string]*file
	next    int
	handles int // open ones
	drafts  int
	direct  error // of every Open past the page cache
	damaged string
}

type file struct {
	info object.Info
	data []byte // where it is inline
	path string
	sums []uint64
}

func newFiles(t testing.TB) *files {
	return &files{dir: t.TempDir(), inline: 16 << 10, objects: map[string]*file{}}
}

func (s *files) put(bucket, key string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &file{info: object.Info{Bucket: bucket, Key: key, Version: object.NullVersion, Size: int64(len(data)),
		ETag: "etag-" + key, Modified: time.Unix(1700000000, 5).UTC(), CRC64: sumOf(data)}}
	for off := 0; off < len(data); off += object.SumBlock {
		f.sums = append(f.sums, sumOf(data[off:min(off+object.SumBlock, len(data))]))
	}
	if len(data) <= s.inline {
		f.data = data
	} else {
		f.path = s.name()
		if err := os.WriteFile(f.path, data, 0o600); err != nil {
			panic(err)
		}
	}
	s.objects[bucket+"/"+key] = f
}

func (s *files) name() string {
	s.next++
	return filepath.Join(s.dir, fmt.Sprintf("f%d", s.next))
}

func sumOf(b []byte) uint64 { return checksum.Of(b) }

func (s *files) find(ref object.Ref) (*file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ref.Bucket != "b" {
		return nil, object.Fail("open", ref.Bucket, object.ErrNoSuchBucket, "")
	}
	f := s.objects[ref.Bucket+"/"+ref.Key]
	switch {
	case f == nil:
		return nil, object.Fail("open", ref.Bucket+"/"+ref.Key, object.ErrNoSuchKey, "")
	case ref.Version != "" && ref.Version != object.NullVersion:
		return nil, object.Fail("open", ref.Bucket+"/"+ref.Key, object.ErrNoSuchVersion, ref.Version)
	case ref.Key == s.damaged:
		return nil, object.Fail("open", ref.Bucket+"/"+ref.Key, object.ErrDamaged, "a block")
	}
	return f, nil
}

func (s *files) Stat(_ context.Context, ref object.Ref) (object.Info, error) {
	f, err := s.find(ref)
	if err != nil {
		return object.Info{}, err
	}
	return f.info, nil
}

func (s *files) List(_ context.Context, l object.List) (object.Page, error) {
	if l.Bucket != "b" {
		return object.Page{}, object.Fail("list", l.Bucket, object.ErrNoSuchBucket, "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var p object.Page
	if l.Limit == 0 {
		l.Limit = 1000
	}
	var keys []string
	for _, f := range s.objects {
		keys = append(keys, f.info.Key)
	}
	slices.Sort(keys)
	seen := map[string]bool{}
	for _, k := range keys {
		if !strings.HasPrefix(k, l.Prefix) || k <= l.After {
			continue
		}
		name := ""
		if l.Delimiter != "" {
			if i := strings.Index(k[len(l.Prefix):], l.Delimiter); i >= 0 {
				name = k[:len(l.Prefix)+i+len(l.Delimiter)]
				if name == l.After || seen[name] {
					continue
				}
			}
		}
		if len(p.Objects)+len(p.Prefixes) == l.Limit {
			p.Truncated = true
			break
		}
		if name != "" {
			seen[name] = true
			p.Prefixes = append(p.Prefixes, name)
			p.Next = name
			continue
		}
		p.Objects = append(p.Objects, s.objects["b/"+k].info)
		p.Next = k
	}
	if !p.Truncated {
		p.Next = ""
	}
	return p, nil
}

type fileHandle struct {
	s     *files
	f     *file
	once  sync.Once
	spill string
}

func (s *files) Handle(_ context.Context, ref object.Ref) (object.Handle, error) {
	f, err := s.find(ref)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.handles++
	s.mu.Unlock()
	return &fileHandle{s: s, f: f}, nil
}

func (h *fileHandle) Info() object.Info      { return h.f.info }
func (h *fileHandle) Inline() ([]byte, bool) { return h.f.data, h.f.path == "" }
func (h *fileHandle) Sums(first, n int64) ([]uint64, error) {
	return h.f.sums[first : first+n], nil
}
func (h *fileHandle) Path() string { return h.f.path }
func (h *fileHandle) Open(direct bool) (*os.File, error) {
	path := h.f.path
	if path == "" {
		if h.spill == "" {
			h.s.mu.Lock()
			h.spill = h.s.name()
			h.s.mu.Unlock()
			if err := os.WriteFile(h.spill, h.f.data, 0o600); err != nil {
				return nil, err
			}
		}
		path = h.spill
	}
	return h.s.openFile(path, os.O_RDONLY, direct)
}

// refuseDirect lets every Open past the page cache fail from now on.
func (s *files) refuseDirect(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.direct = err
}

func (s *files) openFile(path string, flags int, direct bool) (*os.File, error) {
	s.mu.Lock()
	refused := s.direct
	s.mu.Unlock()
	if direct && refused != nil {
		return nil, refused
	}
	if direct {
		flags |= unix.O_DIRECT
	}
	fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, 0)
	if direct && errors.Is(err, syscall.EINVAL) {
		return nil, errs.New(errs.Unsupported, "open", path, "no O_DIRECT here")
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (h *fileHandle) Close() error {
	h.once.Do(func() {
		h.s.mu.Lock()
		h.s.handles--
		h.s.mu.Unlock()
		if h.spill != "" {
			_ = os.Remove(h.spill)
		}
	})
	return nil
}

type fileDraft struct {
	s    *files
	d    object.Draft
	path string
	over bool
}

func (s *files) NewDraft(_ context.Context, d object.Draft) (object.Drafting, error) {
	if d.Bucket != "b" {
		return nil, object.Fail("create", d.Bucket, object.ErrNoSuchBucket, "")
	}
	if d.Key == "full" {
		return nil, object.Fail("create", d.Key, object.ErrNoSpace, "")
	}
	var first []byte
	if d.From != nil {
		f, err := d.From.Open(false)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if first, err = io.ReadAll(f); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.name()
	if err := os.WriteFile(path, first, 0o600); err != nil {
		return nil, err
	}
	s.drafts++
	return &fileDraft{s: s, d: d, path: path}, nil
}

func (d *fileDraft) Open(direct bool) (*os.File, error) {
	if d.d.Grows {
		return d.s.openFile(d.path, os.O_RDWR, direct)
	}
	return d.s.openFile(d.path, os.O_WRONLY, direct)
}
func (d *fileDraft) Reserved() int64 {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.d.Size
}
func (d *fileDraft) Copied() int64 { return 0 }
func (d *fileDraft) Grow(_ context.Context, size int64) error {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.d.Size = max(d.d.Size, size)
	return nil
}
func (d *fileDraft) Path() string { return d.path }
func (d *fileDraft) Commit(_ context.Context, sealed object.Sealed) (object.Info, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return object.Info{}, err
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return object.Info{}, object.Fail("commit", d.d.Key, object.ErrWriterLeft, "")
	}
	data, err := os.ReadFile(d.path)
	if err != nil {
		return object.Info{}, err
	}
	blocks := (sealed.Size + object.SumBlock - 1) / object.SumBlock
	if int64(len(data)) < sealed.Size || int64(len(sealed.Sums)) != blocks || sumOf(data[:sealed.Size]) != sealed.CRC64 {
		return object.Info{}, object.Fail("commit", d.d.Key, object.ErrInvalidSums, "")
	}
	if d.d.Condition.IfNoneMatch == "*" {
		if _, err := d.s.find(object.Ref{Bucket: d.d.Bucket, Key: d.d.Key}); err == nil {
			d.end()
			return object.Info{}, object.Fail("commit", d.d.Key, object.ErrPrecondition, "")
		}
	}
	d.s.put(d.d.Bucket, d.d.Key, data[:sealed.Size])
	d.end()
	return d.s.Stat(context.Background(), object.Ref{Bucket: d.d.Bucket, Key: d.d.Key})
}

func (d *fileDraft) end() {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if !d.over {
		d.over = true
		d.s.drafts--
		_ = os.Remove(d.path)
	}
}

func (d *fileDraft) Abort() error { d.end(); return nil }

func (d *fileDraft) Remains() bool { return false }

// held is what clients have: open handles and drafts.
func (s *files) held() (handles, drafts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handles, s.drafts
}

// rules allow everything but what lies under secret/ and beyond bucket b, and writing to readonly/.
type rules struct{}

func (rules) Authorize(_ context.Context, a object.Access) error {
	if a.Bucket != "b" {
		return object.Fail("authorize", a.Bucket, object.ErrNoSuchBucket, "")
	}
	if strings.HasPrefix(a.Key, "secret/") || a.Action == object.ActionPut && strings.HasPrefix(a.Key, "readonly/") ||
		a.Action == object.ActionList && a.Account == "blind" {
		return errs.New(errs.Permission, string(a.Action), a.Bucket+"/"+a.Key, "is not allowed for "+a.Account)
	}
	return nil
}

func (rules) JudgeWrite() object.Judge { return nil }

func (rules) Describe(_ context.Context, _ string, d object.Description) (map[string]string, error) {
	if strings.ContainsAny(d.ContentType, "\r\n") {
		return nil, errs.New(errs.Invalid, "describe", d.ContentType, "is no content type")
	}
	out := map[string]string{"content-type": d.ContentType}
	for k, v := range d.Metadata {
		out["meta-"+k] = v
	}
	return out, nil
}

// damage makes an object one that cannot be opened.
func (s *files) damage(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damaged = key
}
