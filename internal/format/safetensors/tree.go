// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// ResolveIn is Resolve for the names of a tree, such as the keys of a bucket.
//
// The parameter name is a tensor file (*.safetensors), an index (*.json) or a directory, with or without a final
// slash. A tree such as a bucket has no real directories, so any other name is tried as a directory first and then as
// a tensor file. The parameter shown is a function that formats a name for messages.
func ResolveIn(ctx context.Context, tree vfs.Tree, name string, shown func(string) string) ([]string, *Index, error) {
	switch {
	case strings.HasSuffix(name, ".json"):
		return resolveIndexIn(ctx, tree, name, shown)
	case strings.HasSuffix(name, suffix):
		return []string{name}, nil, nil
	}
	names, err := tree.Names(ctx, name)
	if err != nil {
		return nil, nil, errs.Wrap(opResolve, shown(name), err)
	}
	if len(names) == 0 && name != "" && !strings.HasSuffix(name, "/") {
		return []string{name}, nil, nil // opening it tells whether it is there
	}
	if len(names) == 0 {
		return nil, nil, errs.New(errs.NotFound, opResolve, shown(name),
			"nothing lies below it, expected "+looked).WithFix("name the prefix that holds the weights")
	}
	slices.Sort(names)
	// Names are put together as they stand: "a//b" and "a/b" are two keys.
	dir := name
	if dir != "" && !strings.HasSuffix(dir, "/") {
		dir += "/"
	}
	for _, n := range []string{IndexFile, ModelFile} {
		if slices.Contains(names, n) {
			return ResolveIn(ctx, tree, dir+n, shown)
		}
	}
	files, err := choose(names, shown(name), "prefix")
	if err != nil {
		return nil, nil, err
	}
	if !strings.HasSuffix(files[0], suffix) {
		return ResolveIn(ctx, tree, dir+files[0], shown)
	}
	for i, file := range files {
		files[i] = dir + file
	}
	return files, nil, nil
}

// resolveIndexIn parses the index called name and finds its shards beside it.
func resolveIndexIn(ctx context.Context, tree vfs.Tree, name string, shown func(string) string) ([]string, *Index,
	error) {
	text, err := tree.ReadAll(ctx, name, MaxIndex)
	if err != nil {
		return nil, nil, errs.Wrap(opIndex, shown(name), err)
	}
	ix, err := ParseIndex(text, shown(name))
	if err != nil {
		return nil, nil, err
	}
	if len(ix.Shards) == 0 {
		return nil, nil, errs.New(errs.Corrupt, opResolve, shown(name), "weight_map names 0 files, expected at least 1")
	}
	dir := name[:strings.LastIndexByte(name, '/')+1]
	have := map[string]bool{}
	listed := map[string]bool{} // folders of shards
	for _, shard := range ix.Shards {
		folder := shard[:strings.LastIndexByte(shard, '/')+1]
		if listed[folder] {
			continue
		}
		listed[folder] = true
		there, err := tree.Names(ctx, dir+folder)
		if err != nil {
			return nil, nil, errs.Wrap(opResolve, shown(name), err)
		}
		for _, n := range there {
			have[folder+n] = true
		}
	}
	names := make([]string, len(ix.Shards))
	var missing []string
	for i, shard := range ix.Shards {
		names[i] = dir + shard
		if !have[shard] {
			missing = append(missing, shard)
		}
	}
	if len(missing) > 0 {
		return nil, nil, errs.New(errs.NotFound, opResolve, shown(name),
			fmt.Sprintf("%d of %d shards are missing: %s, expected all beside the index", len(missing), len(names),
				listNames(missing))).
			WithFix("store the missing shards too")
	}
	return names, ix, nil
}
