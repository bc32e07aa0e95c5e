// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

const (
	opIndex = "parse safetensors index"
	opCheck = "check safetensors index"
	// suffix is what the names of tensor files end in.
	suffix = ".safetensors"
)

// Index is the content of a model.safetensors.index.json, which maps each tensor of a sharded model to its file.
type Index struct {
	// Path is the path of the index file itself.
	Path string `json:"path"`
	// TotalSize is metadata.total_size, the sum of all tensors' bytes according to the writer. TotalSize is 0 if the
	// field is absent or not a plain integer.
	TotalSize int64 `json:"total_size"`
	// Shards lists the file names of the index, each once, sorted. The files are in the index's folder or in folders
	// below it, such as "sub/1.safetensors".
	Shards []string `json:"shards"`
	// Weights maps the name of each tensor to the name of its shard.
	Weights map[string]string `json:"weights"`
}

// OpenIndex reads and parses the index file at path. The index file may have at most MaxIndex bytes.
func OpenIndex(path string) (*Index, error) {
	f, size, err := openRegular(opIndex, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := indexSize(size, path); err != nil {
		return nil, err
	}
	text := make([]byte, size)
	if n, err := io.ReadFull(f, text); err != nil {
		return nil, &errs.Error{Kind: errs.IO, Op: opIndex, Name: path,
			Msg: fmt.Sprintf("read %d bytes, expected %d", n, len(text)), Err: pathCause(err)}
	}
	return parseIndex(text, path)
}

// ParseIndex parses the text of an index and does not change the text. The parameter path is used only in errors and
// in Index.Path.
//
// The text of an index is one JSON object in which no key occurs twice. The required field weight_map maps tensor
// names to file names. Each file name in an index ends in .safetensors and stays below the index's folder. Fields
// that ParseIndex does not use are ignored but must be well-formed. An invalid index is an error of kind Corrupt.
func ParseIndex(text []byte, path string) (*Index, error) {
	if err := indexSize(int64(len(text)), path); err != nil {
		return nil, err
	}
	return parseIndex(slices.Clone(text), path)
}

func indexSize(n int64, path string) error {
	if n > MaxIndex {
		return errs.New(errs.Corrupt, opIndex, path, fmt.Sprintf("the index has %d bytes, expected at most %d", n, MaxIndex))
	}
	return nil
}

// parseIndex is ParseIndex, but may overwrite the text.
func parseIndex(text []byte, path string) (*Index, error) {
	s := &scanner{src: text, op: opIndex, path: path}
	if at := invalidUTF8(text); at >= 0 {
		return nil, s.fail(at, fmt.Sprintf("the index holds the byte 0x%02x that is not UTF-8", text[at]), "UTF-8 text")
	}
	s.space()
	if s.peek() != '{' {
		return nil, s.fail(s.pos, "the index is "+s.token(), "an object with weight_map")
	}
	ix := &Index{Path: path}
	for again := s.open('}'); again; {
		at := s.pos
		key, err := s.str("a key of the index")
		if err != nil {
			return nil, err
		}
		if err := s.once(0, at, key); err != nil {
			return nil, err
		}
		s.space()
		if err := s.expect(':', "after a key of the index"); err != nil {
			return nil, err
		}
		s.space()
		switch {
		case string(key) == "weight_map":
			err = ix.weightMap(s)
		case string(key) == "metadata" && s.peek() == '{':
			err = ix.metadata(s)
		default:
			err = s.skip("an ignored field", 1)
		}
		if err != nil {
			return nil, err
		}
		if again, err = s.more('}', "the index"); err != nil {
			return nil, err
		}
	}
	s.space()
	if s.pos < len(s.src) {
		return nil, s.fail(s.pos, "the text after the index is "+s.token(), "the end of the file")
	}
	if ix.Weights == nil {
		return nil, s.fail(0, "key \"weight_map\" is missing", "an object with weight_map")
	}
	return ix, nil
}

// metadata scans the metadata object and keeps total_size if it is a plain integer. Some writers put floats or text
// there.
func (ix *Index) metadata(s *scanner) error {
	mark := len(s.keys)
	for again := s.open('}'); again; {
		at := s.pos
		key, err := s.str("a metadata key")
		if err != nil {
			return err
		}
		if err := s.once(mark, at, key); err != nil {
			return err
		}
		s.space()
		if err := s.expect(':', "after a metadata key"); err != nil {
			return err
		}
		s.space()
		from := s.pos
		if err := s.skip("metadata", 2); err != nil {
			return err
		}
		if string(key) == "total_size" {
			if n, err := strconv.ParseInt(string(s.src[from:s.pos]), 10, 64); err == nil && n >= 0 {
				ix.TotalSize = n
			}
		}
		if again, err = s.more('}', "metadata"); err != nil {
			return err
		}
	}
	s.keys = s.keys[:mark]
	return nil
}

// weightMap scans the map of tensors to files.
func (ix *Index) weightMap(s *scanner) error {
	if s.peek() != '{' {
		return s.fail(s.pos, "weight_map is "+s.token(), "an object of tensor names and file names")
	}
	ix.Weights = map[string]string{}
	files := map[string]string{} // each file name is held once, however many tensors it has
	for again := s.open('}'); again; {
		at := s.pos
		raw, err := s.str("a tensor name")
		if err != nil {
			return err
		}
		name := string(raw)
		if msg := checkName(name); msg != "" {
			got, want, _ := strings.Cut(msg, ", expected ")
			return s.fail(at, got, want)
		}
		if _, dup := ix.Weights[name]; dup {
			return s.fail(at, "tensor name "+quote(name)+" is a duplicate", "each name once")
		}
		if len(ix.Weights) == MaxTensors {
			return s.fail(at, "tensor "+quote(name)+" is one too many", "at most "+strconv.Itoa(MaxTensors)+" tensors")
		}
		s.kind, s.name = "tensor", name
		s.space()
		if err := s.expect(':', "after the name"); err != nil {
			return err
		}
		s.space()
		at = s.pos
		value, err := s.str("its file name")
		if err != nil {
			return err
		}
		file, known := files[string(value)]
		if !known {
			file = string(value)
			if !localName(file) {
				return s.fail(at, "its file name is "+quote(file),
					"a name below the index's folder that ends in "+suffix+", without '\\', '..' or control characters")
			}
			if len(files) == MaxShards {
				return s.fail(at, "file "+quote(file)+" is one too many", "at most "+strconv.Itoa(MaxShards)+" files")
			}
			files[file] = file
		}
		ix.Weights[name] = file
		s.kind = ""
		if again, err = s.more('}', "weight_map"); err != nil {
			return err
		}
	}
	ix.Shards = slices.Sorted(maps.Keys(files))
	return nil
}

// Check compares the index with the parsed headers of all its shards.
//
// The parameter files may have any order; Check matches files and shards by the end of their paths. If the parameter
// files does not contain each shard exactly once, the error has the kind Invalid. Each tensor must be in the shard to
// which the index maps it, and in no other. A tensor in a wrong shard, in two shards or in none is an error of kind
// Corrupt.
func (ix *Index) Check(files []*format.File) error {
	invalid := func(msg string) error { return errs.New(errs.Invalid, opCheck, ix.Path, msg) }
	corrupt := func(msg string) error {
		return errs.New(errs.Corrupt, opCheck, ix.Path,
			msg).WithFix("download the index and the shards again, all of one revision")
	}
	given := make(map[string]bool, len(files))
	home := make(map[string]string, len(ix.Weights))
	for _, f := range files {
		shard, ok := ix.shardOf(f.Path)
		if !ok {
			return invalid(fmt.Sprintf("file %s is not in the index, expected one of its %d shards", quote(shard),
				len(ix.Shards)))
		}
		if given[shard] {
			return invalid(fmt.Sprintf("shard %s is given twice, expected once", quote(shard)))
		}
		given[shard] = true
		for i := range f.Tensors {
			name := f.Tensors[i].Name
			if first, dup := home[name]; dup {
				return corrupt(fmt.Sprintf("tensor %s is in shards %s and %s, expected one", quote(name), quote(first),
					quote(shard)))
			}
			home[name] = shard
		}
	}
	for _, shard := range ix.Shards {
		if !given[shard] {
			return invalid(fmt.Sprintf("shard %s is not given, expected all %d shards", quote(shard), len(ix.Shards)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ix.Weights)) {
		want := ix.Weights[name]
		switch have, ok := home[name]; {
		case !ok:
			return corrupt(fmt.Sprintf("tensor %s is in no shard, expected it in %s", quote(name), quote(want)))
		case have != want:
			return corrupt(fmt.Sprintf("tensor %s is in shard %s, expected it in %s", quote(name), quote(have), quote(want)))
		}
	}
	if len(home) == len(ix.Weights) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(home)) {
		if _, ok := ix.Weights[name]; !ok {
			return corrupt(fmt.Sprintf("tensor %s of shard %s is not in the index, expected every tensor of a shard there",
				quote(name), quote(home[name])))
		}
	}
	return nil
}
