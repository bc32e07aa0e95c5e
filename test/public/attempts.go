// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio"
)

func attempts() []attempt {
	return []attempt{
		{"loading a file that does not exist", nebulaio.ErrNotFound, fs.ErrNotExist, loadMissing},
		{"choosing a tensor that does not exist", nebulaio.ErrNotFound, fs.ErrNotExist, chooseMissing},
		{"allocating -1 bytes", nebulaio.ErrInvalid, fs.ErrInvalid, allocateNegative},
		{"a slice that does not fit", nebulaio.ErrInvalid, fs.ErrInvalid, sliceTooFar},
		{"loading a damaged header", nebulaio.ErrCorrupt, nil, loadDamaged},
		{"loading a file of another user", nebulaio.ErrPermission, fs.ErrPermission, loadForbidden},
		{"reading a model after Free", nebulaio.ErrClosed, fs.ErrClosed, readFreed},
		{"loading with a cancelled context", nebulaio.ErrCancelled, context.Canceled, loadCancelled},
		{"loading after the deadline", nebulaio.ErrCancelled, context.DeadlineExceeded, loadLate},
		{"the route cufile without a GPU", nebulaio.ErrUnsupported, errors.ErrUnsupported, loadByCuFile},
		{"allocating more than the address space", nebulaio.ErrNoMemory, syscall.ENOMEM, allocateTooMuch},
		{"saving beyond the limit of file sizes", nebulaio.ErrIO, syscall.EFBIG, saveTooLarge},
		{"saving to a full file system", nebulaio.ErrIO, syscall.ENOSPC, saveToFullDisk},
		{"reading from a server that is not there", nebulaio.ErrIO, syscall.ECONNREFUSED, statNoServer},
	}
}

// model writes a model with one tensor of n bytes.
func (p *program) model(name string, n int) (string, error) {
	path := filepath.Join(p.dir, name)
	_, err := p.sys.Save(p.ctx, path, tensors(n), nebulaio.SaveOptions{})
	return path, err
}

func tensors(n int) []nebulaio.SaveTensor {
	return []nebulaio.SaveTensor{{Name: "w", DType: nebulaio.U8, Shape: []int64{int64(n)}, Bytes: make([]byte, n)}}
}

func (p *program) load(path string, o nebulaio.LoadOptions) error {
	m, err := p.sys.Load(p.ctx, path, o)
	if err != nil {
		return err
	}
	return m.Free()
}

func loadMissing(p *program) error {
	return p.load(filepath.Join(p.dir, "none.safetensors"), nebulaio.LoadOptions{})
}

func chooseMissing(p *program) error {
	path, err := p.model("chosen.safetensors", 8)
	if err != nil {
		return err
	}
	return p.load(path, nebulaio.LoadOptions{Tensors: []string{"bias"}})
}

func allocateNegative(p *program) error {
	_, err := p.sys.Alloc(p.ctx, "host", -1)
	return err
}

func sliceTooFar(p *program) error {
	path, err := p.model("sliced.safetensors", 8)
	if err != nil {
		return err
	}
	return p.load(path, nebulaio.LoadOptions{Slices: []nebulaio.Slice{{Tensor: "w",
		Ranges: []nebulaio.Range{{Start: 4, Stop: 9}}}}})
}

func loadDamaged(p *program) error {
	path := filepath.Join(p.dir, "damaged.safetensors")
	if err := os.WriteFile(path, append(binary.LittleEndian.AppendUint64(nil, 16), "{this is no JSON"...),
		0o600); err != nil {
		return err
	}
	return p.load(path, nebulaio.LoadOptions{})
}

func loadForbidden(p *program) error {
	path, err := p.model("forbidden.safetensors", 8)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0); err != nil {
		return err
	}
	if os.Geteuid() == 0 { // to whom nothing is forbidden
		const nobody = 65534
		if err := syscall.Setresuid(-1, nobody, -1); err != nil {
			return fmt.Errorf("%w: become another user: %w", errSkipped, err)
		}
		defer func() {
			if err := syscall.Setresuid(-1, 0, -1); err != nil {
				panic(err)
			}
		}()
	}
	return p.load(path, nebulaio.LoadOptions{})
}

func readFreed(p *program) error {
	path, err := p.model("freed.safetensors", 8)
	if err != nil {
		return err
	}
	m, err := p.sys.Load(p.ctx, path, nebulaio.LoadOptions{})
	if err != nil {
		return err
	}
	if err := m.Free(); err != nil {
		return err
	}
	_, err = m.Read("w")
	return err
}

func loadCancelled(p *program) error {
	path, err := p.model("cancelled.safetensors", 8)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	_, err = p.sys.Load(ctx, path, nebulaio.LoadOptions{})
	return err
}

func loadLate(p *program) error {
	path, err := p.model("late.safetensors", 8)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(p.ctx, time.Unix(0, 0))
	defer cancel()
	_, err = p.sys.Load(ctx, path, nebulaio.LoadOptions{})
	return err
}

func loadByCuFile(p *program) error {
	path, err := p.model("cufile.safetensors", 8)
	if err != nil {
		return err
	}
	return p.load(path, nebulaio.LoadOptions{Route: nebulaio.RouteCuFile})
}

func allocateTooMuch(p *program) error {
	m, err := p.sys.Alloc(p.ctx, "host", 1<<56)
	if err != nil {
		return err
	}
	return m.Free()
}

// saveTooLarge lowers the limit of file sizes for one save.
func saveTooLarge(p *program) error {
	signal.Ignore(syscall.SIGXFSZ) // so that the write fails and the process lives
	defer signal.Reset(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 64 << 10, Max: old.Max}); err != nil {
		return err
	}
	_, err := p.sys.Save(p.ctx, filepath.Join(p.dir, "large.safetensors"), tensors(1<<20), nebulaio.SaveOptions{})
	return errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old))
}

// saveToFullDisk saves to a file system in memory that is smaller than the file.
func saveToFullDisk(p *program) error {
	dir := filepath.Join(p.dir, "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		return fmt.Errorf("%w: mount a small tmpfs: %w", errSkipped, err)
	}
	_, err := p.sys.Save(p.ctx, filepath.Join(dir, "large.safetensors"), tensors(1<<20), nebulaio.SaveOptions{})
	return errors.Join(err, syscall.Unmount(dir, 0))
}

// statNoServer sends a request to port 1 of this machine, on which nothing listens.
func statNoServer(p *program) error {
	c, err := p.sys.NewClient(nebulaio.ClientOptions{Endpoint: "http://127.0.0.1:1", Door: "off"})
	if err != nil {
		return err
	}
	_, err = c.Stat(p.ctx, "bucket", "key", "")
	return errors.Join(err, c.Close())
}
