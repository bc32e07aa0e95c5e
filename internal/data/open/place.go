// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// mostFiles is the most files of one folder or prefix.
const mostFiles = 50_000_000

// Entry is a file in a place.
type Entry struct {
	Name string // path or URL, with slashes
	Size int64  // in bytes
}

// Within narrows what a Place lists. The zero value lists all files.
type Within struct {
	Depth  int
	Prefix string
}

// Place holds files by name, such as the file system of this machine or a bucket. All methods are safe for concurrent
// use.
type Place interface {
	// Stat returns the entry of a file. If name is a folder, or the prefix of objects, the result folder is true. If
	// there is nothing of that name, the error is of kind NotFound.
	Stat(ctx context.Context, name string) (e Entry, folder bool, err error)
	// List calls each with the files below a folder. The names begin with the folder and a slash, unless the folder is
	// "."; their order is that of the place. An error of each ends the list. With a depth, List may leave out files in
	// folders below that depth: 1 means the files of the folder alone, and 0 means no limit. With a prefix, List may
	// leave out names that do not begin with it, after the folder.
	List(ctx context.Context, folder string, o Within, each func(Entry) error) error
	// Open opens files, and returns a file or an error for each name. The caller closes the files.
	Open(ctx context.Context, names []string) ([]dataset.Opened, []error)
}

// Local is the file system of this machine.
type Local struct{}

var _ Place = Local{}

// Stat returns the entry of a file, or true for a directory.
func (Local) Stat(_ context.Context, name string) (Entry, bool, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Entry{}, false, errs.Wrap("open data set", name, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return Entry{}, false, errs.New(errs.Invalid, "open data set", name,
			fmt.Sprintf("is neither a file nor a folder but has the mode %v", info.Mode()))
	}
	return Entry{Name: name, Size: info.Size()}, info.IsDir(), nil
}

// List calls each with all files below a directory. Links to files are followed. Of links to directories, only the
// folder itself is followed.
func (Local) List(ctx context.Context, folder string, o Within, each func(Entry) error) error {
	root, prefix := filepath.Clean(folder), rootOf(folder)
	if folder == "." {
		prefix = ""
	}
	// The slash makes WalkDir follow a folder that is a link.
	return filepath.WalkDir(root+"/", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return errs.Wrap("list data set", name, err)
		}
		below := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(name, root), "/"))
		if root == "." {
			below = filepath.ToSlash(strings.TrimPrefix(name, "./"))
		}
		if d.IsDir() {
			if o.Depth > 0 && below != "" && strings.Count(below, "/")+1 >= o.Depth {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			info, err = os.Stat(name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a link to nothing, or a file that was removed meanwhile
		}
		if err != nil {
			return errs.Wrap("list data set", name, err)
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		return each(Entry{Name: prefix + below, Size: info.Size()})
	})
}

// rootOf returns the part of the names of a folder's files that comes before their place in the folder.
func rootOf(folder string) string { return strings.TrimSuffix(folder, "/") + "/" }

// Open opens files of this machine.
func (Local) Open(ctx context.Context, names []string) ([]dataset.Opened, []error) {
	out, fails := make([]dataset.Opened, len(names)), make([]error, len(names))
	inParallel(len(names), 2*runtime.GOMAXPROCS(0), func(i int) {
		if fails[i] = ctx.Err(); fails[i] == nil {
			out[i].File, fails[i] = vfs.Open(names[i])
		}
	})
	return out, fails
}

// inParallel calls do with each number below n, on several goroutines.
func inParallel(n, goroutines int, do func(i int)) {
	if n <= 2 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(goroutines, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}
