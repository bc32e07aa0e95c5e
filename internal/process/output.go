// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// ImageName is the name of the image in the folder or below the prefix of a dump.
const ImageName = "process.nebulaio"

// Place is where an image is: a folder, or an object.
type Place struct {
	folder      string // empty for an object
	bucket, key string
	url         string
	client      nebulaio.ClientOptions
}

// ParsePlace reads the destination of a dump or the source of a restore: a folder, s3://BUCKET/KEY, or
// s3://BUCKET/PREFIX/ with a slash at its end.
func ParsePlace(name string, client nebulaio.ClientOptions) (Place, error) {
	bad := func(why string) (Place, error) {
		return Place{}, errs.New(errs.Invalid, "use", fmt.Sprintf("%q", name), why+"; expected a folder or s3://BUCKET/KEY")
	}
	if name == "" {
		return bad("is empty")
	}
	rest, remote := strings.CutPrefix(name, "s3://")
	if !remote {
		if scheme, _, ok := strings.Cut(name, "://"); ok {
			return bad("the scheme " + scheme + " is not known")
		}
		return Place{folder: name}, nil
	}
	bucket, key, _ := strings.Cut(rest, "/")
	if bucket == "" {
		return bad("names no bucket")
	}
	if key == "" || strings.HasSuffix(key, "/") {
		key += ImageName
	}
	return Place{bucket: bucket, key: key, url: "s3://" + bucket + "/" + key, client: client}, nil
}

// String returns the path or URL of the image.
func (p Place) String() string {
	if p.folder != "" {
		return filepath.Join(p.folder, ImageName)
	}
	return p.url
}

// output receives an image. The image has its name after Commit; after Abort nothing is left.
type output interface {
	io.Writer
	Commit() error
	Abort()
	Routes() Routes
}

// Sizes of the blocks that are written at once, and their number.
const (
	fileBlock   = 8 << 20
	fileBlocks  = 4
	partSize    = 64 << 20 // an upload has at most 10,000 parts: 625 GiB
	partBlocks  = 3
	mostParts   = 10_000
	abandonTime = 10 * time.Second
)

// create begins the image of a dump.
func (p Place) create(ctx context.Context, sys *nebulaio.System) (output, error) {
	if p.folder != "" {
		return createFile(ctx, sys, p.folder)
	}
	endpoint := p.client.Endpoint
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	o := p.client
	c, err := s3.New(s3.Options{Endpoint: endpoint, Region: o.Region, AccessKey: o.AccessKey, SecretKey: o.SecretKey,
		SessionToken: o.SessionToken, Connections: o.Connections, CAFile: o.CAFile, InsecureTLS: o.InsecureTLS,
		Timeout: o.Timeout, Retries: o.Retries})
	if err != nil {
		return nil, err
	}
	up, err := c.NewUpload(s3.Put{Bucket: p.bucket, Key: p.key})
	if err == nil {
		// A wrong bucket or server must be known before the process is touched. A user who may write need not be
		// allowed to list.
		if _, err = c.List(ctx, s3.Listing{Bucket: p.bucket, Prefix: p.key}); errs.Is(err, errs.Permission) {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	u := &uploadOutput{ctx: ctx, c: c, up: up, parts: map[int]int64{}}
	if u.blocks, err = newBlocks(ctx, partSize, partBlocks, u.send); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return u, nil
}

// fileOutput is an image in a folder. The engine writes its blocks.
type fileOutput struct {
	*blocks
	folder, temp string
	lock         *os.File // temp, locked: a file without a lock is left by a killed dump
	made         []string // folders that did not exist, the innermost first
	file         *nebulaio.File
	done         bool

	mu     sync.Mutex
	routes Routes
}

func createFile(ctx context.Context, sys *nebulaio.System, folder string) (output, error) {
	f := &fileOutput{folder: folder, routes: Routes{}}
	for dir := filepath.Clean(folder); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || !errors.Is(err, os.ErrNotExist) {
			break
		}
		f.made = append(f.made, dir)
	}
	fail := func(err error) (output, error) {
		f.Abort()
		return nil, errs.Wrap("create", filepath.Join(folder, ImageName), errs.WithoutPath(err))
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return fail(err)
	}
	// An image has the memory of a process, with its secrets: only its owner may read it.
	t, err := os.CreateTemp(folder, "."+ImageName+"-*.tmp")
	if err != nil {
		return fail(err)
	}
	f.temp, f.lock = t.Name(), t
	if err := unix.Flock(int(t.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fail(err)
	}
	sweep(folder, f.temp)
	if f.file, err = sys.OpenFile(f.temp, nebulaio.FileOptions{Write: true, Device: "host"}); err != nil {
		return fail(err)
	}
	if f.blocks, err = newBlocks(ctx, fileBlock, fileBlocks, f.send); err != nil {
		return fail(err)
	}
	return f, nil
}

// sweep removes files that killed dumps have left in a folder. Nobody holds a lock on them.
func sweep(folder, but string) {
	left, _ := filepath.Glob(filepath.Join(folder, "."+ImageName+"-*.tmp")) // a folder with odd characters is not swept
	for _, name := range left {
		if name == but {
			continue
		}
		t, err := os.Open(name)
		if err != nil {
			continue // it is gone, or not ours
		}
		if unix.Flock(int(t.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(name)
		}
		t.Close()
	}
}

func (f *fileOutput) send(ctx context.Context, _ int, data []byte, off int64) error {
	m, err := f.file.StartWrite(ctx, nebulaio.Ptr(uintptr(unsafe.Pointer(&data[0]))), int64(len(data)), off,
		nebulaio.MoveOptions{Device: "host"})
	if err != nil {
		return err
	}
	if err := m.Wait(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range m.Report().Routes {
		f.routes[string(r.Route)] += r.Bytes
	}
	return nil
}

func (f *fileOutput) Routes() Routes { return f.routes }

// Commit makes the image durable and gives it its name.
func (f *fileOutput) Commit() error {
	path := filepath.Join(f.folder, ImageName)
	err := f.finish()
	if err == nil {
		err = f.file.Sync()
	}
	if err == nil {
		err = f.file.Close()
	}
	if err == nil {
		err = os.Rename(f.temp, path)
	}
	if err != nil {
		f.Abort()
		return errs.Wrap("write", path, errs.WithoutPath(err))
	}
	f.done = true
	f.lock.Close() // the file is synced
	if err := f.release(); err != nil {
		return err
	}
	for _, dir := range append([]string{f.folder}, parents(f.made)...) {
		if err := syncFolder(dir); err != nil {
			return &errs.Error{Kind: errs.KindOf(err), Op: "write", Name: path,
				Msg: "the image is in place, but may not be after a power loss", Err: err}
		}
	}
	return nil
}

// parents returns the folders that have new entries because folders were made.
func parents(made []string) []string {
	var all []string
	for _, dir := range made {
		all = append(all, filepath.Dir(dir))
	}
	return all
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // only synced
	return d.Sync()
}

// Abort removes the file, and the folders that were made for it.
func (f *fileOutput) Abort() {
	if f.done {
		return
	}
	f.done = true
	if f.blocks != nil {
		_ = f.release() // the caller has the first error already
	}
	if f.file != nil {
		_ = f.file.Close()
	}
	if f.temp != "" {
		_ = os.Remove(f.temp)
		f.lock.Close()
	}
	for _, dir := range f.made {
		_ = os.Remove(dir) // only an empty folder is removed
	}
}

// uploadOutput is an image as an object. Its blocks are the parts of an upload.
type uploadOutput struct {
	*blocks
	ctx  context.Context
	c    *s3.Client
	up   *s3.Upload
	done bool

	mu    sync.Mutex
	begun bool
	parts map[int]int64
}

func (u *uploadOutput) begin() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.begun {
		return nil
	}
	u.begun = true
	return u.up.Begin(u.ctx)
}

func (u *uploadOutput) send(ctx context.Context, number int, data []byte, _ int64) error {
	if number >= mostParts {
		return errs.New(errs.Unsupported, "upload", u.up.Name(), fmt.Sprintf("it has more than %d bytes",
			int64(mostParts)*partSize)).WithFix("dump to a folder")
	}
	open := func() (vfs.Blocks, error) { return &oneBlock{data: data}, nil }
	// The first block is this small only if it is the last: Commit sends it.
	if number == 0 && len(data) <= vfs.MostWhole {
		if err := u.up.Whole(ctx, int64(len(data)), open); err != nil {
			return err
		}
	} else {
		if err := u.begin(); err != nil {
			return err
		}
		if err := u.up.Part(ctx, number+1, int64(len(data)), int64(len(data)), open); err != nil {
			return err
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = int64(len(data))
	return nil
}

func (u *uploadOutput) Routes() Routes {
	var sum int64
	for _, n := range u.parts {
		sum += n
	}
	return Routes{"http": sum}
}

// Commit completes the upload: the server makes the object durable and visible.
func (u *uploadOutput) Commit() error {
	err := u.finish()
	if err == nil && u.begun {
		err = u.up.Complete(u.ctx)
	}
	if err != nil {
		u.Abort()
		return err
	}
	u.done = true
	return errors.Join(u.release(), u.c.Close())
}

// Abort gives the upload up.
func (u *uploadOutput) Abort() {
	if u.done {
		return
	}
	u.done = true
	_ = u.release() // the caller has the first error already
	if u.begun {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abandonTime)
		defer cancel()
		_ = u.up.Abort(ctx) // the server removes old unfinished uploads, too
	}
	_ = u.c.Close()
}

// oneBlock is a part of an upload as one block.
type oneBlock struct{ data []byte }

// Next returns the block once.
func (b *oneBlock) Next() ([]byte, error) {
	data := b.data
	if b.data = nil; len(data) == 0 {
		return nil, io.EOF
	}
	return data, nil
}

// Close does nothing, because the caller owns the memory.
func (b *oneBlock) Close() error { return nil }
