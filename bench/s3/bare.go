// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/md5"
	"encoding/hex"
	"flag"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// bareServer is the baseline for the other targets: net/http, the file system and the check of the signature, and
// nothing else. An object is a file named like its key, written unnamed and then linked to its name. There is no
// metadata.
type bareServer struct {
	root   string
	keys   credentials
	md5    bool // compute ETags as S3 defines them
	sync   bool // fdatasync each file
	dirs   bool // fsync the directory
	buffer sync.Pool
}

// runBare runs the sub-command with which the benchmark starts itself as a server.
func runBare(args []string) error {
	flags := flag.NewFlagSet("bare", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:0", "address to listen on")
	s := &bareServer{keys: rootKeys}
	flags.StringVar(&s.root, "data", "", "directory")
	flags.BoolVar(&s.md5, "md5", false, "compute the MD5 of written objects")
	flags.BoolVar(&s.sync, "sync", false, "fdatasync each file")
	flags.BoolVar(&s.dirs, "sync-dir", false, "fsync the directory of each written file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	return http.Serve(l, s)
}

func (s *bareServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !verify(s.keys, r) {
		http.Error(w, "the signature does not match", http.StatusForbidden)
		return
	}
	bucket, key, object := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if strings.Contains(key, "/") || strings.HasPrefix(key, ".") || strings.HasPrefix(bucket, ".") || bucket == "" {
		http.Error(w, "names here are plain", http.StatusBadRequest)
		return
	}
	dir := filepath.Join(s.root, bucket)
	var err error
	switch {
	case r.Method == http.MethodPut && !object:
		err = os.Mkdir(dir, 0o755)
	case r.Method == http.MethodPut:
		err = s.put(w, r, dir, key)
	case r.Method == http.MethodDelete:
		if err = os.Remove(filepath.Join(dir, key)); err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		err = s.get(w, r, filepath.Join(dir, key))
	default:
		http.Error(w, r.Method, http.StatusMethodNotAllowed)
	}
	if os.IsNotExist(err) {
		http.Error(w, err.Error(), http.StatusNotFound)
	} else if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s *bareServer) get(w http.ResponseWriter, r *http.Request, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream") // else ServeContent reads the start to guess it
	http.ServeContent(w, r, "", st.ModTime(), f)               // sendfile
	return nil
}

func (s *bareServer) put(w http.ResponseWriter, r *http.Request, dir, key string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), key)
	defer f.Close()
	var sum hash.Hash
	out := io.Writer(f)
	if s.md5 {
		sum = md5.New()
		out = io.MultiWriter(sum, f)
	}
	buf, _ := s.buffer.Get().(*[]byte)
	if buf == nil {
		b := make([]byte, 256<<10)
		buf = &b
	}
	defer s.buffer.Put(buf)
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, r.Body, *buf); err != nil {
		return err
	}
	if s.sync {
		if err := unix.Fdatasync(fd); err != nil {
			return err
		}
	}
	if err := link(fd, filepath.Join(dir, key)); err != nil {
		return err
	}
	if s.dirs {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		if err := d.Sync(); err != nil {
			return err
		}
	}
	if sum != nil {
		w.Header().Set("ETag", `"`+hex.EncodeToString(sum.Sum(nil))+`"`)
	}
	return nil
}

// link gives an unnamed file its name and replaces any file of that name.
func link(fd int, path string) error {
	from := fmt.Sprintf("/proc/self/fd/%d", fd)
	err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	if err != unix.EEXIST {
		return err
	}
	aside := path + "~" + fmt.Sprint(fd)
	if err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, aside, unix.AT_SYMLINK_FOLLOW); err != nil {
		return err
	}
	return os.Rename(aside, path)
}
