// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// numbered matches a shard's name as Hugging Face writes it: model-00001-of-00004.safetensors.
var numbered = regexp.MustCompile(`^(.*)-(\d{1,6})-of-(\d{1,6})\` + suffix + `$`)

// withoutIndex returns the model that several tensor files of a directory form without an index: one complete
// numbered set of shards, or files of which none is numbered. A set with gaps is of kind NotFound, several sets are
// of kind Invalid.
func withoutIndex(files []string, dir, kind string) ([]string, error) {
	files = slices.Sorted(slices.Values(files))
	sets := map[string][]string{}
	for _, name := range files {
		set := ""
		if m := numbered.FindStringSubmatch(name); m != nil {
			set = m[1] + "-*-of-" + m[3]
		}
		sets[set] = append(sets[set], name)
	}
	if len(sets) > 1 {
		return nil, errs.New(errs.Invalid, opResolve, dir,
			fmt.Sprintf("the %s has %s, which are of several models, and no index", kind,
				listNames(files))).WithFix("name the files instead of the " + kind)
	}
	m := numbered.FindStringSubmatch(files[0])
	if m == nil {
		return files, nil
	}
	count, err := strconv.Atoi(m[3])
	if err != nil || count > MaxShards {
		return nil, errs.New(errs.Invalid, opResolve, dir, fmt.Sprintf("%s is one of %s files, expected at most %d",
			quote(files[0]), m[3], MaxShards))
	}
	have := map[int]bool{}
	for _, name := range files {
		k, _ := strconv.Atoi(numbered.FindStringSubmatch(name)[2])
		have[k] = true
	}
	var missing []string
	for k := 1; k <= count; k++ {
		if !have[k] {
			missing = append(missing, fmt.Sprintf("%s-%0*d-of-%s%s", m[1], len(m[2]), k, m[3], suffix))
		}
	}
	switch {
	case len(missing) > 0:
		return nil, errs.New(errs.NotFound, opResolve, dir,
			fmt.Sprintf("%d of %d shards are missing: %s", len(missing), count,
				listNames(missing))).WithFix("download the missing shards")
	case len(files) > count:
		return nil, errs.New(errs.Invalid, opResolve, dir,
			fmt.Sprintf("the %s has %d shards %s-*-of-%s, expected %d", kind, len(files), m[1], m[3],
				count)).WithFix("remove those of another model")
	}
	return files, nil
}

// CheckApart returns an error of kind Invalid if two of the files contain the same tensor. If two files without an
// index contain the same tensor, it is unknown which of the two is meant.
func CheckApart(model string, files []*format.File) error {
	home := map[string]string{}
	for _, f := range files {
		for i := range f.Tensors {
			name := f.Tensors[i].Name
			if first, dup := home[name]; dup {
				return errs.New(errs.Invalid, opResolve, model,
					fmt.Sprintf("tensor %s is in %s and in %s, and no index says which is meant", quote(name), first,
						f.Path)).WithFix("name one of the files")
			}
			home[name] = f.Path
		}
	}
	return nil
}

// localName reports whether a file name from an index stays within the index's directory. The name may contain
// folders, separated by slashes.
func localName(name string) bool {
	const longest, deepest = 4096, 16
	if len(name) > longest || !strings.HasSuffix(name, suffix) || strings.Contains(name, "..") {
		return false
	}
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == suffix || len(part) > 255 {
			return false
		}
	}
	return len(parts) <= deepest && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '\\' || r < 0x20 || r == 0x7f
	})
}

// shardOf returns the longest shard name of the index that the path ends in, and whether there is one.
func (ix *Index) shardOf(path string) (string, bool) {
	parts := strings.Split(path, "/")
	for i := range parts {
		name := strings.Join(parts[i:], "/")
		if _, ok := slices.BinarySearch(ix.Shards, name); ok {
			return name, true
		}
	}
	return parts[len(parts)-1], false
}
