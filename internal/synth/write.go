// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
)

const opWrite = "write synthetic model"

// Options describes the model that Write writes.
type Options struct {
	// Shapes are the tensors of the model to write. Write uses only the name, dtype and shape of each tensor.
	Shapes []format.Tensor
	// Seed determines the content; see Content and FileSeed.
	Seed uint64
	// Align is the alignment of the first data byte, as in safetensors.EncodeHeader; 0 means AlignDefault.
	Align int64
	// ShardSize is the largest number of tensor bytes per file. A tensor with more than ShardSize bytes gets its own
	// file. If ShardSize is 0, Write writes one file.
	ShardSize int64
	// Workers is the number of goroutines that fill a file; 0 means min(4, CPUs).
	Workers int
	// Progress, if not nil, is called after each write with the bytes written so far and the bytes to write in all
	// files. Calls never overlap.
	Progress func(done, total int64)
}

// Write writes a model and returns its files in the form that Parse returns.
//
// If ShardSize is 0, the parameter path is the file to write. If ShardSize is set, the parameter path is a directory,
// which Write creates if necessary. If ShardSize is set, the directory gets an index and files named
// model-00001-of-000NN.safetensors. The tensors of each file are in the reference writer's order, and the metadata is
// {"format":"pt"}.
//
// Write completes and syncs all files under temporary names before it renames the first. Write renames the index
// last, and then syncs the directory. If Write fails or ctx ends, Write removes everything that it made. Write
// replaces an existing file of the same name.
func Write(ctx context.Context, path string, o Options) ([]*format.File, error) {
	if o.ShardSize < 0 || o.Workers < 0 {
		return nil, errs.New(errs.Invalid, opWrite, path, fmt.Sprintf("shard size is %d and workers %d, expected 0 or more",
			o.ShardSize, o.Workers))
	}
	w := &writer{dir: filepath.Dir(path), opts: o}
	if o.ShardSize > 0 {
		w.dir = path
	}
	plans, err := plan(path, o)
	if err != nil {
		return nil, err
	}
	var files []*format.File
	for _, p := range plans {
		w.total += p.file.Size
		files = append(files, p.file)
	}
	if err := w.write(ctx, plans); err != nil {
		return nil, err
	}
	return files, nil
}

// filePlan is one planned file: its header bytes and the positions of its tensors.
type filePlan struct {
	header []byte
	seed   uint64
	file   *format.File
}

// plan lays out the files of a model.
func plan(path string, o Options) ([]filePlan, error) {
	groups := [][]format.Tensor{slices.Clone(o.Shapes)}
	if o.ShardSize > 0 {
		var err error
		if groups, err = split(path, o.Shapes, o.ShardSize); err != nil {
			return nil, err
		}
	}
	plans := make([]filePlan, len(groups))
	for i, ts := range groups {
		name := path
		if o.ShardSize > 0 {
			name = filepath.Join(path, fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(groups)))
		}
		safetensors.SortReference(ts)
		header, err := safetensors.EncodeHeader(ts, map[string]string{"format": "pt"}, o.Align)
		if err != nil {
			return nil, errs.Wrap(opWrite, name, err)
		}
		end := int64(len(header))
		for j := range ts {
			if ts[j].Size, err = safetensors.SizeOf(ts[j].DType, ts[j].Shape); err != nil {
				return nil, errs.Wrap(opWrite, name, err)
			}
			ts[j].Offset = end
			end += ts[j].Size
		}
		plans[i] = filePlan{header: header, seed: FileSeed(o.Seed, i), file: &format.File{
			Path: name, Size: end, DataStart: int64(len(header)), Tensors: ts, Metadata: map[string]string{"format": "pt"}}}
	}
	return plans, nil
}

// split groups tensors, in their order, into shards of at most most bytes.
func split(path string, shapes []format.Tensor, most int64) ([][]format.Tensor, error) {
	var groups [][]format.Tensor
	sum := int64(0)
	for _, t := range shapes {
		size, err := safetensors.SizeOf(t.DType, t.Shape)
		if err != nil {
			return nil, errs.Wrap(opWrite, path, err)
		}
		if len(groups) == 0 || sum+size > most && sum > 0 {
			groups = append(groups, nil)
			sum = 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], t)
		sum += size
	}
	if len(groups) == 0 || len(groups) > safetensors.MaxShards {
		return nil, errs.New(errs.Invalid, opWrite, path, fmt.Sprintf("there would be %d shards, expected 1 to %d",
			len(groups), safetensors.MaxShards))
	}
	return groups, nil
}

// writer performs one Write.
type writer struct {
	dir   string
	opts  Options
	total int64

	mu   sync.Mutex // guards done and orders calls of Progress
	done int64
}

func (w *writer) progress(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done += n
	if w.opts.Progress != nil {
		w.opts.Progress(w.done, w.total)
	}
}

// write writes all files under temporary names and then renames them.
func (w *writer) write(ctx context.Context, plans []filePlan) (err error) {
	sharded := w.opts.ShardSize > 0
	var made []string // what to remove on failure, in the order it was made
	defer func() {
		if err != nil {
			for _, name := range slices.Backward(made) {
				os.Remove(name)
			}
		}
	}()
	if sharded {
		switch err := os.Mkdir(w.dir, 0o777); {
		case err == nil:
			made = append(made, w.dir)
		case !errors.Is(err, fs.ErrExist):
			return wrap(w.dir, err)
		}
	}
	type move struct{ from, to string }
	var moves []move
	stage := func(to string, fill func(f *os.File) error) error {
		temp, err := writeTemp(to, fill, func(name string) { made = append(made, name) })
		moves = append(moves, move{temp, to})
		return err
	}
	for _, p := range plans {
		if err := stage(p.file.Path, func(f *os.File) error { return w.fill(ctx, f, p) }); err != nil {
			return err
		}
	}
	if sharded {
		text, err := indexText(plans)
		if err != nil {
			return wrap(w.dir, err)
		}
		put := func(f *os.File) error { _, err := f.Write(text); return wrap(f.Name(), err) }
		if err := stage(filepath.Join(w.dir, safetensors.IndexFile), put); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return errs.Wrap(opWrite, w.dir, err)
	}
	for _, m := range moves {
		if err := os.Rename(m.from, m.to); err != nil {
			return wrap(m.to, err)
		}
		made = append(made, m.to)
	}
	if err := syncDir(w.dir); err != nil {
		return err
	}
	if slices.Contains(made, w.dir) {
		return syncDir(filepath.Dir(w.dir))
	}
	return nil
}

// indexText encodes the index of the planned shards.
func indexText(plans []filePlan) ([]byte, error) {
	var ix struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	ix.WeightMap = map[string]string{}
	for _, p := range plans {
		for _, t := range p.file.Tensors {
			if _, dup := ix.WeightMap[t.Name]; dup {
				return nil, errs.New(errs.Invalid, opWrite, p.file.Path,
					fmt.Sprintf("tensor name %q is a duplicate, expected each name once", t.Name))
			}
			ix.WeightMap[t.Name] = filepath.Base(p.file.Path)
			ix.Metadata.TotalSize += t.Size
		}
	}
	text, err := json.MarshalIndent(ix, "", "  ")
	return append(text, '\n'), err
}
