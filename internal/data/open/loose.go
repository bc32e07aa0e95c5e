// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// FileColumn is the only column of the format Files: the content of the file.
const FileColumn = "file"

// looseFile is a file that is a sample or a part of one.
type looseFile struct {
	Entry
	root int // length of the folder's name, which is no part of the key
}

// addLoose takes files that are samples themselves, or parts of samples.
func (w *work) addLoose(f Format, root string, files []Entry) error {
	if f == "" { // Groups if all samples have the same parts, else Files
		f = Files
		if columns := groupedColumns(root, files); len(columns) > 1 {
			f = Groups
		}
	}
	if err := w.settle(root, f); err != nil {
		return err
	}
	for _, e := range files {
		w.loose = append(w.loose, looseFile{Entry: e, root: len(root)})
	}
	return nil
}

func tooLarge(name string, size, most int64) error {
	return errs.New(errs.Invalid, "open data set", name, fmt.Sprintf("has %d bytes, at most %d are allowed", size, most)).
		WithFix("allow larger samples, or skip bad ones")
}

// groupedColumns returns the extensions of all files if files with equal keys form samples with equal parts, else nil.
func groupedColumns(root string, files []Entry) []string {
	var columns []string
	samples := map[string]int{}
	for _, e := range files {
		key, ext, ok := wds.Split(strings.TrimPrefix(e.Name, root))
		if !ok {
			return nil
		}
		if !slices.Contains(columns, ext) {
			if len(columns) == 64 { // extensions, and no parts of names
				return nil
			}
			columns = append(columns, ext)
		}
		samples[key]++
	}
	for _, n := range samples {
		if n != len(columns) {
			return nil
		}
	}
	return columns
}

// looseSet makes the data set of the files that are samples or parts of samples.
func (w *work) looseSet(ctx context.Context) (*dataset.Set, error) {
	wrong, err := w.wrongFiles(ctx)
	if err != nil {
		return nil, err
	}
	if w.data.Format == Groups {
		return w.groupedSet(wrong)
	}
	l := dataset.NewLoose([]string{FileColumn})
	for i, f := range w.loose {
		if wrong[i] != nil {
			if err := w.bad(f.Name, 1, wrong[i]); err != nil {
				return nil, err
			}
			continue
		}
		if err := l.AddSample(f.root, len(f.Name), l.AddFile(f.Name, f.Size)); err != nil {
			return nil, err
		}
	}
	w.column(Column{Name: FileColumn})
	return dataset.NewOfFiles(l)
}

// wrongFiles returns why files cannot be parts of samples, by their positions: they are too large, or differ from the
// checksums beside them.
func (w *work) wrongFiles(ctx context.Context) (map[int]error, error) {
	wrong := map[int]error{}
	most := int64(sample.MaxPart)
	if w.o.MaxSample > 0 {
		most = min(most, w.o.MaxSample)
	}
	for i, f := range w.loose {
		if f.Size > most {
			wrong[i] = tooLarge(f.Name, f.Size, most)
			if !w.o.SkipBad {
				return nil, wrong[i]
			}
		}
	}
	if !w.o.Verify {
		return wrong, nil
	}
	for _, f := range w.loose {
		w.total += f.Size
	}
	fails := make([]error, len(w.loose))
	inParallel(len(w.loose), reading, func(i int) { fails[i] = w.verify(ctx, w.loose[i].Name, false) })
	for i, err := range fails {
		if err != nil {
			wrong[i] = err
		}
	}
	return wrong, errs.Wrap("open data set", "", ctx.Err())
}

// groupedSet joins files to samples. Files of a sample need not be neighbours: "a.jpg" and "a.txt" have "a-1.jpg"
// between them where names are sorted.
func (w *work) groupedSet(wrong map[int]error) (*dataset.Set, error) {
	type group struct {
		key, root int // lengths
		files     map[string]int
		wrong     error // why the sample is left out
	}
	var columns []string
	var order []string
	groups := map[string]*group{}
	for i, f := range w.loose {
		key, ext, ok := wds.Split(f.Name[f.root:])
		if !ok {
			w.data.Ignored++
			continue
		}
		if !slices.Contains(columns, ext) {
			if len(columns) == dataset.MaxColumns {
				return nil, errs.New(errs.Invalid, "open data set", f.Name, fmt.Sprintf(
					"the files have more than %d extensions", dataset.MaxColumns)).WithFix("use the format files")
			}
			columns = append(columns, ext)
		}
		whole := f.Name[:f.root] + key
		g := groups[whole]
		if g == nil {
			g = &group{key: f.root + len(key), root: f.root, files: map[string]int{}}
			groups[whole], order = g, append(order, whole)
		}
		if other, twice := g.files[ext]; twice {
			return nil, errs.New(errs.Invalid, "open data set", f.Name, fmt.Sprintf("and %s are the same part %q of a sample",
				w.loose[other].Name, ext)).WithFix("rename one of the files, or use the format files")
		}
		g.files[ext] = i
		if g.wrong == nil {
			g.wrong = wrong[i]
		}
	}
	slices.Sort(columns)
	l := dataset.NewLoose(columns)
	for _, whole := range order {
		g := groups[whole]
		if g.wrong != nil {
			if err := w.bad(whole, 1, g.wrong); err != nil {
				return nil, err
			}
			continue
		}
		parts := make([]int, len(columns))
		for c, ext := range columns {
			parts[c] = -1
			if i, ok := g.files[ext]; ok {
				parts[c] = l.AddFile(w.loose[i].Name, w.loose[i].Size)
			}
		}
		if err := l.AddSample(g.root, g.key, parts...); err != nil {
			return nil, err
		}
	}
	for _, c := range columns {
		w.column(Column{Name: c})
	}
	return dataset.NewOfFiles(l)
}
