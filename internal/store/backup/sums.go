// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/filecopy"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// sumsName is the file that lists the files of a backup's metadata, each with its length and checksum. The list is
// needed because a log that was cut short looks like a log that ends early.
const sumsName = "SUMS"

// maxSums is the largest number of bytes that is read of the list.
const maxSums = 64 << 20

// fileSum is the length and the checksum of a whole file.
type fileSum struct {
	size int64
	crc  uint64
}

// summer computes the checksum of a file from its blocks.
type summer struct {
	join *checksum.Joiner
	sum  fileSum
}

func (s *summer) add(_ int64, b []byte) error {
	s.sum.crc = s.join.After(s.sum.crc, int64(len(b))) ^ checksum.Of(b)
	s.sum.size += int64(len(b))
	return nil
}

// sumMeta writes the list of a backup's metadata, and returns the checksum of the list itself.
func sumMeta(ctx context.Context, f vfs.FS, dir string) (string, error) {
	meta := f.PathJoin(dir, layout.MetaName)
	names, err := f.List(meta)
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	join := checksum.NewJoiner()
	var text strings.Builder
	for _, name := range names {
		if name == layout.LockName {
			continue
		}
		s, err := sumFile(ctx, f, f.PathJoin(meta, name), join)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "%s %d %016x\n", name, s.size, s.crc)
	}
	if err := layout.WriteNote(f, dir, sumsName, text.String()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%016x", checksum.Of([]byte(text.String()))), nil
}

func sumFile(ctx context.Context, f vfs.FS, path string, join *checksum.Joiner) (fileSum, error) {
	file, err := layout.OpenRegular(f, path)
	if err != nil {
		return fileSum{}, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fileSum{}, err
	}
	s := summer{join: join}
	err = filecopy.EachBlock(ctx, file, info.Size(), s.add)
	return s.sum, err
}

// readSums reads the list of a backup's metadata and compares it with its own checksum. The list is nil for a backup
// of an older version, which has none.
func readSums(f vfs.FS, dir string, n layout.Note) (map[string]fileSum, error) {
	want, ok := n["sums"]
	if !ok {
		return nil, nil
	}
	path := f.PathJoin(dir, sumsName)
	file, err := layout.OpenRegular(f, path)
	if err != nil {
		return nil, damagedBackup(path, err)
	}
	defer func() { _ = file.Close() }()
	b, err := io.ReadAll(io.LimitReader(file, maxSums))
	if err != nil {
		return nil, damagedBackup(path, err)
	}
	if got := fmt.Sprintf("%016x", checksum.Of(b)); got != want {
		return nil, damagedBackup(path, filecopy.ErrSums)
	}
	sums := map[string]fileSum{}
	for line := range strings.Lines(string(b)) {
		var name string
		var s fileSum
		if _, err := fmt.Sscanf(line, "%s %d %x\n", &name, &s.size, &s.crc); err != nil {
			return nil, damagedBackup(path, fmt.Errorf("line %q: %w", line, err))
		}
		sums[name] = s
	}
	return sums, nil
}

// damagedBackup returns the error for a file of a backup that differs from what was written, or is missing.
func damagedBackup(path string, cause error) error {
	return &errs.Error{Kind: errs.Corrupt, Op: "restore store", Name: path, Msg: "the backup is damaged", Err: cause,
		Fix: "restore another backup, or save what is readable of this one with nebulaio store salvage"}
}

// copyMeta copies the metadata of a backup and compares it with the list.
func (b *backup) copyMeta(meta string, sums map[string]fileSum) error {
	source := b.fs.PathJoin(b.from, layout.MetaName)
	names, err := b.fs.List(source)
	if err != nil {
		return damagedBackup(source, err)
	}
	for name := range sums {
		if !slices.Contains(names, name) {
			return damagedBackup(b.fs.PathJoin(source, name), fs.ErrNotExist)
		}
	}
	join := checksum.NewJoiner()
	for _, name := range names {
		from := b.fs.PathJoin(source, name)
		info, err := b.fs.Stat(from)
		if err != nil {
			return err
		}
		want, listed := sums[name]
		if info.IsDir() || name == layout.LockName || sums != nil && !listed {
			continue
		}
		s := summer{join: join}
		if err := filecopy.CopyFile(b.ctx, b.fs, from, b.fs.PathJoin(meta, name), info.Size(), s.add); err != nil {
			return err
		}
		if listed && s.sum != want {
			return damagedBackup(from, fmt.Errorf("%w: it has %d bytes, %d were written", filecopy.ErrSums, s.sum.size,
				want.size))
		}
	}
	return nil
}

// DamagedIn returns the name of a metadata file of the backup that is damaged or missing, or "" if there is none.
// DamagedIn also returns "" for a directory that is no backup, because only a backup lists its files.
func DamagedIn(ctx context.Context, f vfs.FS, dir string) string {
	n, err := layout.ReadNote(f, f.PathJoin(dir, layout.BackupName))
	if err != nil || n == nil {
		return ""
	}
	sums, err := readSums(f, dir, n)
	if err != nil {
		return sumsName
	}
	join := checksum.NewJoiner()
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if got, err := sumFile(ctx, f, f.PathJoin(dir, layout.MetaName, name), join); err != nil || got != sums[name] {
			return name
		}
	}
	return ""
}
