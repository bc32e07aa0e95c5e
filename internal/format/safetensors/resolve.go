// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	opResolve = "resolve model"
	// ModelFile is the name of an unsharded model in a model directory.
	ModelFile = "model.safetensors"
	// IndexFile is the name of the index in a sharded model's directory.
	IndexFile = "model.safetensors.index.json"
	// indexSuffix ends the names of index files.
	indexSuffix = ".safetensors.index.json"
)

// Resolve returns the paths of a model's files, and its index if it has one.
//
// The parameter path names a tensor file, an index (*.json) or a directory. In a directory, Resolve uses the first
// match of this list: model.safetensors.index.json, then model.safetensors, then the only *.safetensors.index.json,
// then all *.safetensors. If a directory has no index, its *.safetensors files must be one complete set of numbered
// shards, or none may be numbered. Resolve ignores hidden files.
//
// If the model has an index, Resolve returns its files in the order of Index.Shards. Every returned path was a
// regular file, or a symbolic link to one, when Resolve looked. If no model is found, the error has the kind
// NotFound; if there are several candidates, the kind Invalid.
func Resolve(path string) ([]string, *Index, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &errs.Error{Kind: errs.NotFound, Op: opResolve, Name: path, Err: pathCause(err),
			Fix: missingFix(path)}
	}
	if err != nil {
		return nil, nil, errs.Wrap(opResolve, path, pathCause(err))
	}
	if st.IsDir() {
		paths, err := pick(path)
		if err != nil || !strings.HasSuffix(paths[0], ".json") {
			return paths, nil, err
		}
		path = paths[0]
	}
	if strings.HasSuffix(path, ".json") {
		return resolveIndex(path)
	}
	if err := regular(path); err != nil {
		return nil, nil, err
	}
	return []string{path}, nil, nil
}

// missingFix returns a fix for a path that does not exist. Unknown URLs are taken for paths.
func missingFix(path string) string {
	scheme, rest, found := strings.Cut(path, ":/")
	if found && rest != "" && !strings.ContainsAny(scheme, "/.") {
		return "objects are named s3://BUCKET/KEY, nebula://HOST:PORT/BUCKET/KEY or, with TLS, " +
			"nebulas://HOST:PORT/BUCKET/KEY; copy others to this machine first"
	}
	return "correct the path: a .safetensors file, an index or a model directory of this machine"
}

// pick returns the files in dir that form the model: an index alone, or regular tensor files.
func pick(dir string) ([]string, error) {
	for _, name := range []string{IndexFile, ModelFile} {
		file := filepath.Join(dir, name)
		switch _, err := os.Stat(file); {
		case err == nil && name == IndexFile:
			return []string{file}, nil
		case err == nil:
			return []string{file}, regular(file)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, errs.Wrap(opResolve, file, pathCause(err))
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, errs.Wrap(opResolve, dir, pathCause(err))
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	files, err := choose(names, dir, "directory")
	if err != nil {
		return nil, err
	}
	for i, file := range files {
		files[i] = filepath.Join(dir, file)
		if strings.HasSuffix(file, suffix) {
			if err := regular(files[i]); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

const looked = IndexFile + ", " + ModelFile + ", one *" + indexSuffix + " or *" + suffix

// choose returns the files that form the model, an index or tensor files, from the names in a directory without the
// usual names.
func choose(names []string, dir, kind string) ([]string, error) {
	var indexes, files, other []string
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "."):
		case strings.HasSuffix(name, indexSuffix):
			indexes = append(indexes, name)
		case strings.HasSuffix(name, suffix):
			files = append(files, name)
		default:
			other = append(other, name)
		}
	}
	switch {
	case len(indexes) == 1:
		return indexes, nil
	case len(indexes) == 0 && len(files) > 0:
		return withoutIndex(files, dir, kind)
	}
	if found := append(indexes, files...); len(found) > 0 {
		return nil, errs.New(errs.Invalid, opResolve, dir,
			fmt.Sprintf("the %s has %s, expected %s", kind, listNames(found),
				looked)).WithFix("name one of the files instead of the " + kind)
	}
	return nil, errs.New(errs.NotFound, opResolve, dir,
		fmt.Sprintf("the %s has no safetensors file but %s, expected %s", kind, listNames(other),
			looked)).WithFix("name the " + kind + " that holds the weights")
}

// resolveIndex parses the index at path and finds its shards beside it.
func resolveIndex(path string) ([]string, *Index, error) {
	ix, err := OpenIndex(path)
	if err != nil {
		return nil, nil, err
	}
	if len(ix.Shards) == 0 {
		return nil, nil, errs.New(errs.Corrupt, opResolve, path, "weight_map names 0 files, expected at least 1")
	}
	dir := filepath.Dir(path)
	paths := make([]string, len(ix.Shards))
	var missing []string
	for i, shard := range ix.Shards {
		paths[i] = filepath.Join(dir, shard)
		switch err := regular(paths[i]); {
		case errs.Is(err, errs.NotFound):
			missing = append(missing, shard)
		case err != nil:
			return nil, nil, err
		}
	}
	if len(missing) > 0 {
		return nil, nil, errs.New(errs.NotFound, opResolve, path,
			fmt.Sprintf("%d of %d shards are missing: %s, expected all beside the index", len(missing), len(paths),
				listNames(missing))).
			WithFix("download the missing shards")
	}
	return paths, ix, nil
}

// regular fails unless path is a regular file, after symbolic links.
func regular(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return errs.Wrap(opResolve, path, pathCause(err))
	}
	if !st.Mode().IsRegular() {
		return errs.New(errs.Invalid, opResolve, path, irregular(st.Mode()))
	}
	return nil
}

// listNames joins the first few names for a message.
func listNames(names []string) string {
	const most = 6
	if len(names) == 0 {
		return "nothing"
	}
	quoted := make([]string, 0, most+1)
	for i, n := range names {
		if i == most {
			quoted = append(quoted, strconv.Itoa(len(names)-most)+" more")
			break
		}
		quoted = append(quoted, quote(n))
	}
	return strings.Join(quoted, ", ")
}
