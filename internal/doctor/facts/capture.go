// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// CaptureVersion is the version of the captures that Write writes and the highest version that Load accepts.
const CaptureVersion = 1

// Bounds of a capture that Load reads. A capture may come from anyone.
const (
	maxFiles = 20000
	maxBytes = 64 << 20
)

// metaFile is meta.json of a capture.
type metaFile struct {
	Version int                 `json:"version"`
	Meta    Meta                `json:"meta"`
	Links   map[string]string   `json:"links,omitempty"`
	Dirs    map[string][]string `json:"dirs,omitempty"`
	Denied  []string            `json:"denied,omitempty"` // there, and could not be read
}

// Captured summarises a capture that Write has written.
type Captured struct {
	Files  int      `json:"files"`
	Denied []string `json:"denied"` // paths that exist but could not be read
}

// Write writes the recorded files and the facts m to the path out. If the name out ends in .tar, Write writes a tar
// file, else a new or empty directory. If Write fails, it removes the incomplete tar file. If out is a directory that
// is not empty, the error has the kind Invalid; if out is an existing tar file, it has the kind IO.
func (r *Recorder) Write(out string, m Meta) (*Captured, error) {
	k := r.kept
	if b, ok := k.Files["/proc/cmdline"]; ok {
		// A command line may carry what is nobody's business.
		k.Files["/proc/cmdline"] = []byte(strings.Join(BootOptions(string(b)), " ") + "\n")
	}
	denied := slices.Sorted(maps.Keys(k.Denied))
	meta, err := json.MarshalIndent(metaFile{Version: CaptureVersion, Meta: m, Links: k.Links, Dirs: k.Dirs,
		Denied: denied}, "", " ")
	if err != nil {
		return nil, errs.Wrap("capture", out, err)
	}
	files := maps.Clone(k.Files)
	files["/meta.json"] = meta
	if strings.HasSuffix(out, ".tar") {
		err = writeTar(out, files)
	} else {
		err = writeDir(out, files)
	}
	if err != nil {
		return nil, err
	}
	return &Captured{Files: len(files), Denied: denied}, nil
}

func writeDir(out string, files map[string][]byte) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return errs.Wrap("capture", out, err)
	}
	if there, err := os.ReadDir(out); err != nil {
		return errs.Wrap("capture", out, err)
	} else if len(there) > 0 {
		return errs.New(errs.Invalid, "capture", out,
			"is not empty; expected a new directory").WithFix("name a directory that does not exist")
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		to := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return errs.Wrap("capture", to, err)
		}
		if err := os.WriteFile(to, files[name], 0o644); err != nil {
			return errs.Wrap("capture", to, err)
		}
	}
	return nil
}

func writeTar(out string, files map[string][]byte) (err error) {
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return errs.Wrap("capture", out, err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = errs.Wrap("capture", out, cerr)
		}
		if err != nil {
			_ = os.Remove(out) // half a capture is none
		}
	}()
	w := tar.NewWriter(f)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o644,
			Size: int64(len(files[name]))}); err != nil {
			return errs.Wrap("capture", out, err)
		}
		if _, err := w.Write(files[name]); err != nil {
			return errs.Wrap("capture", out, err)
		}
	}
	if err := w.Close(); err != nil {
		return errs.Wrap("capture", out, err)
	}
	return nil
}

// Load reads a capture, which is a directory or a tar file, into memory. Load accepts captures with at most 20000
// files and 64 MiB. Symbolic links in a capture describe links of the captured machine and are never followed on this
// one. If meta.json is missing or invalid, or the capture is too large, the error has the kind Corrupt. A capture of
// a newer version is an error of kind Unsupported.
func Load(from string) (Tree, Meta, error) {
	r := NewRecord()
	st, err := os.Stat(from)
	if err == nil && st.IsDir() {
		err = r.loadDir(from)
	} else if err == nil {
		err = r.loadTar(from)
	}
	if err != nil {
		var e *errs.Error
		if errors.As(err, &e) {
			return nil, Meta{}, err
		}
		return nil, Meta{}, errs.Wrap("read capture", from, err)
	}
	var m metaFile
	b, ok := r.Files["/meta.json"]
	if !ok {
		return nil, Meta{}, errs.New(errs.Corrupt, "read capture", from, "has no meta.json").
			WithFix("make one on the machine in question: nebulaio doctor capture OUT.tar PATH")
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, Meta{}, &errs.Error{Kind: errs.Corrupt, Op: "read capture", Name: from, Msg: "meta.json does not parse",
			Err: err}
	}
	if m.Version > CaptureVersion {
		return nil, Meta{}, errs.New(errs.Unsupported, "read capture", from,
			"is of a newer version").WithFix("update nebulaio")
	}
	delete(r.Files, "/meta.json")
	maps.Copy(r.Links, m.Links)
	maps.Copy(r.Dirs, m.Dirs)
	for _, p := range m.Denied {
		r.Denied[p] = true
	}
	return r, m.Meta, nil
}

func (r *Record) keep(from, name string, src io.Reader, total *int64) error {
	b, err := io.ReadAll(io.LimitReader(src, maxRead))
	if err != nil {
		return err
	}
	if *total += int64(len(b)); *total > maxBytes || len(r.Files) >= maxFiles {
		return errs.New(errs.Corrupt, "read capture", from, "is larger than 20000 files or 64 MiB")
	}
	r.Files[path.Clean("/"+name)] = b
	return nil
}

func (r *Record) loadDir(from string) error {
	var total int64
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		name := path.Clean("/" + filepath.ToSlash(rel))
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			if !path.IsAbs(to) {
				to = path.Join(path.Dir(name), to)
			}
			r.Links[name] = to
		case d.Type().IsRegular():
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()
			return r.keep(from, name, f, &total)
		}
		return nil
	})
}

func (r *Record) loadTar(from string) error {
	// A pipe without a writer would wait in open, where no signal ends it.
	f, err := os.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var total int64
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &errs.Error{Kind: errs.Corrupt, Op: "read capture", Name: from, Msg: "is no tar", Err: err}
		}
		if h.Typeflag == tar.TypeReg {
			if err := r.keep(from, h.Name, tr, &total); err != nil {
				return err
			}
		}
	}
}
