// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// formatOf returns the packed format of a file by its name, or "".
func formatOf(name string) Format {
	switch path.Ext(name) {
	case ".tar":
		return Tar
	case ".mds":
		return MDS
	case ".tfrecord", ".tfrecords", ".tfrec":
		return TFRecord
	case ".idx", ".bin":
		return Megatron
	case ".npy":
		return NPY
	case ".safetensors":
		return SafeTensors
	}
	if strings.Contains(path.Base(name), ".tfrecord-") { // such as train.tfrecord-00000-of-00128
		return TFRecord
	}
	return ""
}

// isBeside reports whether a file only accompanies data: checksums, indexes, hidden files and files in hidden folders.
// The name is that below the folder of the source, because the source itself may be hidden.
func isBeside(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.") || strings.HasSuffix(name, wds.Suffix) ||
		strings.HasSuffix(name, checksum.Suffix)
}

// add appends a listed file, up to the most files that are possible.
func add(all *[]Entry, e Entry, source string) error {
	if len(*all) == mostFiles {
		return errs.New(errs.Unsupported, "open data set", source, fmt.Sprintf("has more than %d files", mostFiles)).
			WithFix("pack the files with nebulaio pack")
	}
	*all = append(*all, e)
	return nil
}

// finder finds the files of sources, and the formats of these files.
type finder struct{ *work }

// find lists the files of one source. A name with braces or stars can also be the name of a file. If the source is one
// of several, it may be missing where bad files are skipped.
func (w finder) find(ctx context.Context, source string, several bool) error {
	if strings.ContainsAny(source, "{*?[") {
		if _, _, err := w.place.Stat(ctx, source); err == nil {
			return w.one(ctx, source, several)
		}
	}
	names, err := expand(source)
	if err != nil {
		return err
	}
	patterns := strings.ContainsAny(source, "*?[")
	if patterns && len(names) > mostPatterns {
		return errs.New(errs.Invalid, "open data set", source, fmt.Sprintf("stands for %d patterns, expected at most %d",
			len(names), mostPatterns)).WithFix("use one star in place of the braces")
	}
	if f := w.plainly(names); f != "" && !patterns { // the files are opened anyway, many at once
		files := make([]Entry, len(names))
		for i, name := range names {
			files[i].Name = name
		}
		return w.packed(f, files)
	}
	for _, name := range names {
		if strings.ContainsAny(name, "*?[") {
			err = w.match(ctx, name)
		} else {
			err = w.one(ctx, name, several || len(names) > 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mostPatterns is the most patterns that one name with braces stands for. Each of them lists a folder.
const mostPatterns = 1000

// plainly returns the format of several files if their names or the caller tell that each has many samples, else "".
func (w finder) plainly(names []string) Format {
	f := w.o.Format
	if f == Auto {
		f = formatOf(names[0])
	}
	if len(names) < 2 || !slices.Contains([]Format{Tar, MDS, TFRecord, NPY, SafeTensors}, f) {
		return ""
	}
	for _, name := range names {
		if formatOf(name) != f {
			return ""
		}
	}
	return f
}

// one lists the files of a source without braces or patterns.
func (w finder) one(ctx context.Context, name string, several bool) error {
	e, folder, err := w.place.Stat(ctx, name)
	if errs.Is(err, errs.NotFound) && (w.o.Format == Megatron || w.o.Format == Auto) {
		if _, _, err := w.place.Stat(ctx, name+".idx"); err == nil { // Megatron names a data set without an extension
			return w.megatron(name)
		}
	}
	switch {
	case err != nil && several:
		return w.bad(name, 0, err)
	case err != nil:
		return err
	case folder:
		return w.folder(ctx, name)
	}
	return w.file(ctx, e)
}

// file takes a single file that the caller named.
func (w finder) file(ctx context.Context, e Entry) error {
	f := w.o.Format
	switch {
	case path.Base(e.Name) == mds.IndexName && f != Files && f != Groups:
		_, err := w.index(ctx, e, false)
		return err
	case f == Auto:
		if f = formatOf(e.Name); f == "" {
			return errs.New(errs.Invalid, "open data set", e.Name, fmt.Sprintf(
				"the format cannot be told from the name; expected a folder, or one of %q", suffixes())).
				WithFix("name the format, for example files")
		}
	}
	switch f {
	case Megatron:
		return w.megatron(strings.TrimSuffix(strings.TrimSuffix(e.Name, ".idx"), ".bin"))
	case Files, Groups:
		return w.addLoose(f, strings.TrimSuffix(e.Name, path.Base(e.Name)), []Entry{e})
	}
	return w.packed(f, []Entry{e})
}

func suffixes() []string {
	return []string{".tar", ".mds", ".tfrecord", ".bin", ".idx", ".npy", ".safetensors", mds.IndexName}
}

// folder takes the files of a folder or prefix.
func (w finder) folder(ctx context.Context, name string) error {
	root := rootOf(name)
	if f := w.o.Format; f == Auto || f == MDS || f == LitData {
		e, folder, err := w.place.Stat(ctx, root+mds.IndexName)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		if err == nil && !folder {
			if found, err := w.index(ctx, e, f == Auto); found || err != nil {
				return err
			}
		}
	}
	var all []Entry
	err := w.place.List(ctx, name, Within{}, func(e Entry) error {
		if isBeside(strings.TrimPrefix(e.Name, root)) {
			return nil
		}
		return add(&all, e, name)
	})
	if err != nil {
		return err
	}
	if name == "." {
		root = ""
	}
	return w.chosen(name, root, all)
}

// chosen takes those of the listed files that are data, in the order of their names. The names begin with root.
func (w finder) chosen(source, root string, all []Entry) error {
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	if len(all) == 0 {
		return errs.New(errs.NotFound, "open data set", source, "no file lies there").
			WithFix("check the name, and list what is there")
	}
	f := w.o.Format
	if f == Auto {
		var err error
		if f, err = w.guess(source, all); err != nil {
			return err
		}
	}
	if f == Files || f == Groups || f == "" {
		return w.addLoose(f, root, all)
	}
	var mine []Entry
	for _, e := range all {
		if formatOf(e.Name) == f && (f != Megatron || strings.HasSuffix(e.Name, ".idx")) {
			mine = append(mine, e)
		} else if !belongs(e.Name, f) {
			w.data.Ignored++
		}
	}
	if len(mine) == 0 {
		return errs.New(errs.NotFound, "open data set", source, fmt.Sprintf(
			"none of its %d files has the format %s, expected %s; the first is %s", len(all), f, expected(f), all[0].Name)).
			WithFix("check the name and the format")
	}
	if f == Megatron {
		for _, e := range mine {
			if err := w.megatron(strings.TrimSuffix(e.Name, ".idx")); err != nil {
				return err
			}
		}
		return nil
	}
	return w.packed(f, mine)
}

// guess returns the packed format of the files of a folder. The result is "" if the files are samples themselves: rows
// of .npy and .safetensors are samples only if the caller says so.
func (w finder) guess(source string, all []Entry) (Format, error) {
	var seen []Format
	bins := map[string]bool{}
	onlyIndexes := true // as of the pattern *.idx
	for _, e := range all {
		if stem, ok := strings.CutSuffix(e.Name, ".bin"); ok {
			bins[stem] = true
		}
		onlyIndexes = onlyIndexes && strings.HasSuffix(e.Name, ".idx")
	}
	for _, e := range all {
		f := formatOf(e.Name)
		stem, isIndex := strings.CutSuffix(e.Name, ".idx")
		packed := f == Tar || f == MDS || f == TFRecord || f == Megatron && isIndex && (bins[stem] || onlyIndexes)
		if packed && !slices.Contains(seen, f) {
			seen = append(seen, f)
		}
	}
	switch len(seen) {
	case 0:
		return "", compressed(source, all[0].Name)
	case 1:
		return seen[0], nil
	}
	return "", errs.New(errs.Invalid, "open data set", source, fmt.Sprintf("has files of the formats %q", seen)).
		WithFix("name the format to read")
}

// belongs reports whether a file without samples of its own belongs to a format: tokens, or an index of DALI.
func belongs(name string, f Format) bool {
	switch path.Ext(name) {
	case ".bin":
		return f == Megatron
	case ".idx":
		return f == Tar || f == TFRecord
	}
	return false
}

// expected returns the files that a format has, for messages.
func expected(f Format) string {
	switch f {
	case LitData:
		return mds.IndexName + " and its chunks"
	case MDS:
		return mds.IndexName + " or *.mds"
	case Megatron:
		return "*.idx with *.bin"
	case TFRecord:
		return "*.tfrecord"
	}
	return "*." + string(f)
}

// compressed refuses a folder of compressed packs, whose files would else be taken for samples.
func compressed(source, name string) error {
	stem := strings.TrimSuffix(name, path.Ext(name))
	if ext := path.Ext(name); ext != ".tgz" && (ext != ".gz" && ext != ".zst" && ext != ".zstd" && ext != ".xz" &&
		ext != ".bz2" || formatOf(stem) == "") {
		return nil
	}
	return errs.New(errs.Unsupported, "open data set", source, fmt.Sprintf(
		"%s is compressed, and its samples cannot be read one by one", name)).
		WithFix("decompress the files, or use the format files to read each file as one sample")
}

// maxIndex is the most bytes of an index.json. An index of a million shards has 300 MB.
const maxIndex = 1 << 30

// readAll returns the content of a small file.
func (w *work) readAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	var out []byte
	err := w.with(ctx, name, func(r io.ReaderAt, size int64) error {
		if size > limit {
			return errs.New(errs.Invalid, "open data set", name, fmt.Sprintf("has %d bytes, expected at most %d", size, limit))
		}
		out = make([]byte, size)
		return sample.ReadFull(r, out, 0, "read", name)
	})
	return out, err
}

// with opens a file for the duration of a call.
func (w *work) with(ctx context.Context, name string, use func(r io.ReaderAt, size int64) error) error {
	got, fails := w.place.Open(ctx, []string{name})
	if fails[0] != nil {
		return fails[0]
	}
	defer got[0].File.Close()
	return use(&watched{ctx: ctx, r: got[0].File}, got[0].File.Size())
}

// watched is a file whose reads end with a context, because a scan of a large file takes long.
type watched struct {
	ctx context.Context //nolint:containedctx // of one call of with
	r   io.ReaderAt
}

// ReadAt reads from the file, unless the context has ended.
func (f *watched) ReadAt(p []byte, off int64) (int, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.r.ReadAt(p, off)
}

// index takes the shards of an index.json of MDS or litData. If the file may be another one, the result is false for an
// index.json that belongs to neither.
func (w finder) index(ctx context.Context, e Entry, another bool) (bool, error) {
	text, err := w.readAll(ctx, e.Name, maxIndex)
	if err != nil {
		return false, err
	}
	f, dir := w.o.Format, strings.TrimSuffix(e.Name, mds.IndexName)
	if f == Auto {
		f = MDS
		var keys struct{ Chunks, Shards json.RawMessage }
		err := json.Unmarshal(text, &keys)
		if another && json.Valid(text) && (err != nil || keys.Chunks == nil && keys.Shards == nil) {
			return false, nil
		}
		if keys.Chunks != nil {
			f = LitData
		}
	}
	switch f {
	case MDS:
		return true, w.mdsIndex(dir, e.Name, text)
	case LitData:
		return true, w.litdataIndex(dir, e.Name, text)
	}
	return false, errs.New(errs.Invalid, "open data set", e.Name, fmt.Sprintf("is no file of the format %s", f)).
		WithFix("use the format mds or litdata for an index.json")
}
