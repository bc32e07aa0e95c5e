// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/litdata"
	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/megatron"
	"github.com/nebulaio/nebulaio/internal/data/npy"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/data/wds"
)

// line is what a list says of a sample.
type line struct {
	Shard    string            `json:"shard"`
	Key      string            `json:"key"`
	Parts    map[string]digest `json:"parts"`
	Document int               `json:"document"` // of a sequence, from 0
	DType    string            `json:"dtype,omitempty"`
}

// digest stands for the bytes of a part.
type digest struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func readers() map[string]func(string, io.Writer, settings) error {
	return map[string]func(string, io.Writer, settings) error{
		"tar": readTar, "mds": readMDS, "litdata": readLitData, "bin": readBin, "tfrecord": readTFRecord, "npy": readNpy,
	}
}

// open opens a file, passes the file and its size to use, and closes it.
func open(name string, use func(file *os.File, size int64) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	stat, err := file.Stat()
	if err != nil {
		return err
	}
	return use(file, stat.Size())
}

// list writes a line for each sample of a table. The function more, which can be nil, adds to a line.
func list(out io.Writer, file io.ReaderAt, table *sample.Table, more func(i int, l *line)) error {
	encoder := json.NewEncoder(out)
	for i := range table.Len() {
		l := line{Shard: filepath.Base(table.File()), Key: table.Key(i), Parts: map[string]digest{}}
		for c, name := range table.Columns() {
			e, ok := table.Part(i, c)
			if !ok {
				continue
			}
			sum := sha256.New()
			if _, err := io.Copy(sum, io.NewSectionReader(file, e.Offset, e.Size)); err != nil {
				return err
			}
			l.Parts[name] = digest{e.Size, hex.EncodeToString(sum.Sum(nil))}
		}
		if more != nil {
			more(i, &l)
		}
		if err := encoder.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// files returns the files of a folder with a suffix, sorted, or the path itself if it is a file.
func files(path, suffix string) ([]string, error) {
	if stat, err := os.Stat(path); err != nil || !stat.IsDir() {
		return []string{path}, err
	}
	found, err := filepath.Glob(filepath.Join(path, "*"+suffix))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has no file *%s", path, suffix)
	}
	return found, err
}

// readTar lists the samples of archives. If an archive has an index of ours, the index and a scan must agree.
func readTar(path string, out io.Writer, _ settings) error {
	names, err := files(path, ".tar")
	if err != nil {
		return err
	}
	for _, name := range names {
		err := open(name, func(file *os.File, size int64) error {
			shard, err := wds.Open(file, size, name)
			if err != nil {
				return err
			}
			if err := agree(shard, file, size, name); err != nil {
				return err
			}
			return list(out, file, shard.Table, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// agree compares the index beside an archive with the scan of the archive.
func agree(scanned *wds.Shard, file *os.File, size int64, name string) error {
	if _, err := os.Stat(name + wds.Suffix); os.IsNotExist(err) {
		return nil
	}
	return open(name+wds.Suffix, func(index *os.File, indexSize int64) error {
		shard, err := wds.ReadIndex(index, indexSize, name+wds.Suffix)
		if err != nil {
			return err
		}
		if err := shard.Check(file, size); err != nil {
			return err
		}
		var a, b strings.Builder
		if err := list(&a, file, scanned.Table, nil); err != nil {
			return err
		}
		if err := list(&b, file, shard.Table, nil); err != nil {
			return err
		}
		if a.String() != b.String() {
			return fmt.Errorf("%s: the index and the scan of the archive differ", name)
		}
		return nil
	})
}

func readMDS(path string, out io.Writer, _ settings) error {
	text, err := os.ReadFile(filepath.Join(path, mds.IndexName))
	if err != nil {
		return err
	}
	index, err := mds.ParseIndex(text, filepath.Join(path, mds.IndexName))
	if err != nil {
		return err
	}
	for i := range index.Shards {
		shard := &index.Shards[i]
		name := filepath.Join(path, shard.Raw.Basename)
		if shard.Compressed() {
			name = filepath.Join(path, shard.Zip.Basename)
		}
		err := open(name, func(file *os.File, size int64) error {
			table, err := mds.Open(file, size, name, shard)
			if err != nil {
				return err
			}
			return list(out, file, table, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func readLitData(path string, out io.Writer, s settings) error {
	text, err := os.ReadFile(filepath.Join(path, litdata.IndexName))
	if err != nil {
		return err
	}
	index, err := litdata.ParseIndex(text, filepath.Join(path, litdata.IndexName))
	if err != nil {
		return err
	}
	for i := range index.Chunks {
		chunk := &index.Chunks[i]
		name := filepath.Join(path, chunk.Filename)
		err := open(name, func(file *os.File, size int64) error {
			var table *sample.Table
			var err error
			if s.block > 0 {
				table, err = litdata.OpenBlocks(file, size, name, &index.Config, chunk, s.block)
			} else {
				table, err = litdata.Open(file, size, name, &index.Config, chunk)
			}
			if err != nil {
				return err
			}
			return list(out, file, table, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readBin lists the sequences of all pairs of .bin and .idx files of a folder.
func readBin(path string, out io.Writer, _ settings) error {
	names, err := files(path, ".idx")
	if err != nil {
		return err
	}
	for _, name := range names {
		bin := strings.TrimSuffix(name, ".idx") + ".bin"
		err := open(bin, func(tokens *os.File, binSize int64) error {
			return open(name, func(idx *os.File, size int64) error {
				index, err := megatron.Open(idx, size, name, bin, binSize, megatron.Options{})
				if err != nil {
					return err
				}
				document := 0
				return list(out, tokens, index.Table, func(i int, l *line) {
					for int64(i) >= index.Documents[document+1] {
						document++
					}
					l.Document, l.DType = document, fmt.Sprint(index.DType)
				})
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readTFRecord lists the records of files and compares all CRCs. If a file has a text index, both must agree.
func readTFRecord(path string, out io.Writer, _ settings) error {
	names, err := files(path, ".tfrecord")
	if err != nil {
		return err
	}
	for _, name := range names {
		err := open(name, func(file *os.File, size int64) error {
			shard, err := tfrecord.Open(file, size, name, tfrecord.Options{CheckData: true})
			if err != nil {
				return err
			}
			if _, err := os.Stat(name + ".idx"); err == nil {
				err := open(name+".idx", func(idx *os.File, idxSize int64) error {
					return compare(idx, idxSize, shard.Table, file, size, name)
				})
				if err != nil {
					return err
				}
			}
			return list(out, file, shard.Table, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// compare checks that the text index of a TFRecord file lists the records that a scan has found.
func compare(idx *os.File, idxSize int64, scanned *sample.Table, file *os.File, size int64, name string) error {
	indexed, err := tfrecord.OpenIndex(idx, idxSize, name+".idx", file, size, name)
	if err != nil {
		return err
	}
	same := indexed.Table.Len() == scanned.Len()
	for i := 0; same && i < scanned.Len(); i++ {
		a, _ := scanned.Part(i, 0)
		b, _ := indexed.Table.Part(i, 0)
		same = a == b && indexed.CheckData(i) == nil
	}
	if !same {
		return fmt.Errorf("%s: the index and the scan of the file differ", name)
	}
	return nil
}

func readNpy(path string, out io.Writer, _ settings) error {
	return open(path, func(file *os.File, size int64) error {
		array, err := npy.Open(file, size, path)
		if err != nil {
			return err
		}
		return list(out, file, array.Table, func(_ int, l *line) { l.DType = fmt.Sprint(array.DType) })
	})
}
