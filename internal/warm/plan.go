// SPDX-License-Identifier: Apache-2.0

// Package warm plans which files of a model or data set a machine needs on its own disk, from the index of that model
// or data set.
package warm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/litdata"
	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/place"
)

// The kinds of plans.
const (
	Model    = "model"   // a sharded model with model.safetensors.index.json
	MDS      = "mds"     // a data set of MosaicML Streaming with index.json
	LitData  = "litdata" // a data set of litData with index.json
	File     = "file"    // one file with its checksums or index
	Anything = "prefix"  // everything below a prefix
)

// Plan lists the files to bring to the disk.
type Plan struct {
	Kind    string
	From    place.Tree // the folder of the files
	Name    string     // name of the model or data set: the last part of the source's name
	Entries []place.Entry
	Bytes   int64
	LeftOut int // files of the folder that the index does not need
}

// indexName is the index of a sharded model.
const indexName = "model.safetensors.index.json"

// Limits of what a plan holds in memory.
const (
	mostIndex = 1 << 28
	mostFiles = 10_000_000
)

// Make plans one source: a folder or prefix, an index, or a single file. If the source or a file of the index does not
// exist, the error is of kind NotFound.
func Make(ctx context.Context, t place.Tree) (Plan, error) {
	kind, e, err := t.Look(ctx)
	switch {
	case err != nil:
		return Plan{}, err
	case kind == place.Missing:
		return Plan{}, errs.New(errs.NotFound, "warm", t.String(), "nothing is there").
			WithFix("check the name; nebulaio ls lists what is there")
	case kind == place.Many:
		p := Plan{Kind: Anything, From: t, Name: nameOf(t.Place)}
		return p.folder(ctx, "")
	}
	p := Plan{Kind: File, From: t, Name: ""}
	p.From.Place = parent(t.Place)
	if strings.HasSuffix(e.Key, indexName) || e.Key == mds.IndexName {
		p.Name = nameOf(p.From.Place)
		return p.folder(ctx, e.Key)
	}
	return p.file(ctx, e.Key)
}

// parent returns the folder of an object or file.
func parent(p place.Place) place.Place {
	if p.Remote() {
		p.Key = p.Key[:strings.LastIndexByte(p.Key, '/')+1]
		return p
	}
	dir, _ := path.Split(p.Path)
	if p.Path = dir; dir == "" {
		p.Path = "."
	}
	return p
}

func nameOf(p place.Place) string {
	name := p.Base()
	if name == "" {
		name = p.Bucket
	}
	if name == "." || name == ".." || name == "/" {
		return ""
	}
	return name
}

// folder plans a folder. The index is one that the caller named, or "" to look for one.
func (p Plan) folder(ctx context.Context, index string) (Plan, error) {
	candidates := []string{indexName, mds.IndexName}
	if index != "" {
		candidates = []string{index}
	}
	for _, name := range candidates {
		text, err := p.read(ctx, name)
		if errs.Is(err, errs.NotFound) && index == "" {
			continue
		}
		if err != nil {
			return Plan{}, err
		}
		kind, needs, err := needed(name, text)
		if err != nil {
			return Plan{}, err
		}
		if kind != "" {
			p.Kind = kind
			return p.indexed(ctx, name, needs)
		}
		if index != "" {
			return Plan{}, errs.New(errs.Invalid, "warm", name, "is no index of a model or data set that is known").
				WithFix("name the folder to take everything in it")
		}
	}
	err := p.list(ctx, func(e place.Entry) bool { return true })
	return p, err
}

// needed returns the files that an index names, and the kind of the index; "" if it is none that is known.
func needed(name string, text []byte) (kind string, files []string, err error) {
	if strings.HasSuffix(name, indexName) {
		index, err := safetensors.ParseIndex(text, name)
		if err != nil {
			return "", nil, err
		}
		return Model, index.Shards, nil
	}
	var keys struct{ Chunks, Shards json.RawMessage }
	if json.Unmarshal(text, &keys) != nil {
		return "", nil, nil // another file of that name
	}
	switch {
	case keys.Chunks != nil:
		index, err := litdata.ParseIndex(text, name)
		if err != nil {
			return "", nil, err
		}
		for _, c := range index.Chunks {
			files = append(files, c.Filename)
		}
		return LitData, files, nil
	case keys.Shards != nil:
		index, err := mds.ParseIndex(text, name)
		if err != nil {
			return "", nil, err
		}
		for _, s := range index.Shards {
			if s.Compressed() && s.Zip != nil {
				files = append(files, s.Zip.Basename)
			} else {
				files = append(files, s.Raw.Basename)
			}
		}
		return MDS, files, nil
	}
	return "", nil, nil
}

// indexed takes the files that an index names, their checksums, and the small files beside them.
func (p Plan) indexed(ctx context.Context, index string, files []string) (Plan, error) {
	wanted := map[string]bool{index: true} // false: found
	for _, f := range files {
		wanted[f] = true
	}
	err := p.list(ctx, func(e place.Entry) bool {
		if _, ok := wanted[e.Key]; ok {
			wanted[e.Key] = false
			return true
		}
		if of, ok := strings.CutSuffix(e.Key, checksum.Suffix); ok {
			_, ok := wanted[of]
			return ok
		}
		return p.Kind == Model && beside(e)
	})
	if err != nil {
		return Plan{}, err
	}
	var gone []string
	for f, open := range wanted {
		if open {
			gone = append(gone, f)
		}
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		return Plan{}, errs.New(errs.NotFound, "warm", p.From.String(),
			fmt.Sprintf("%s names %d files that are not there; the first is %s", index, len(gone), gone[0])).
			WithFix("store the model or data set again, whole")
	}
	return p, nil
}

// mostBeside is the size up to which a file beside the shards of a model counts as its configuration or tokenizer.
const mostBeside = 64 << 20

// beside reports whether a file in the folder of a model is its configuration, tokenizer or code, and not weights.
func beside(e place.Entry) bool {
	if strings.Contains(e.Key, "/") || strings.HasPrefix(e.Key, ".") || e.Size > mostBeside {
		return false
	}
	switch path.Ext(e.Key) {
	case ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".h5", ".msgpack", ".ot", ".tflite":
		return false
	case checksum.Suffix:
		return false
	}
	// Another index, such as pytorch_model.bin.index.json, belongs to other weights.
	return !strings.HasSuffix(e.Key, ".index.json")
}

// file plans a single file and what belongs to it.
func (p Plan) file(ctx context.Context, key string) (Plan, error) {
	wanted := []string{key, key + checksum.Suffix}
	stem := strings.TrimSuffix(key, path.Ext(key))
	switch path.Ext(key) {
	case ".tar":
		wanted = append(wanted, key+wds.Suffix)
	case ".bin":
		wanted = append(wanted, stem+".idx")
	case ".idx":
		wanted = append(wanted, stem+".bin")
	}
	for _, name := range wanted {
		at, err := p.From.Join(name)
		if err != nil {
			return Plan{}, err
		}
		kind, e, err := place.Tree{Place: at, Client: p.From.Client}.Look(ctx)
		if err != nil {
			return Plan{}, err
		}
		if kind == place.One {
			p.Entries = append(p.Entries, e)
			p.Bytes += e.Size
		}
	}
	return p, nil
}

// list adds the files of the folder that take chooses.
func (p *Plan) list(ctx context.Context, take func(place.Entry) bool) error {
	return p.From.Walk(ctx, func(e place.Entry) error {
		switch {
		case e.Marker():
			return nil
		case !take(e):
			p.LeftOut++
			return nil
		case len(p.Entries) == mostFiles:
			return errs.New(errs.Unsupported, "warm", p.From.String(), fmt.Sprintf("has more than %d files", mostFiles)).
				WithFix("pack the files with nebulaio pack")
		}
		p.Entries = append(p.Entries, e)
		p.Bytes += e.Size
		return nil
	})
}

// read returns the content of an index.
func (p *Plan) read(ctx context.Context, name string) ([]byte, error) {
	at, err := p.From.Join(name)
	if err != nil {
		return nil, err
	}
	if at.Remote() {
		text, _, err := p.From.Client.ReadAll(ctx, at.Bucket, at.Key, "", mostIndex)
		return text, err
	}
	f, err := os.Open(at.Path)
	if err != nil {
		return nil, errs.Wrap("warm", at.Path, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostIndex+1))
	if err == nil && len(text) > mostIndex {
		err = errs.New(errs.Invalid, "warm", at.Path, fmt.Sprintf("has more than %d bytes", mostIndex))
	}
	return text, errs.Wrap("warm", at.Path, err)
}
