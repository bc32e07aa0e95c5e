// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/megatron"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/format"
)

func writers() map[string]func([]record, string, settings) error {
	return map[string]func([]record, string, settings) error{
		"tar": writeTar, "mds": writeMDS, "bin": writeBin, "tfrecord": writeTFRecord,
	}
}

// create makes a file and passes it to fill.
func create(name string, fill func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := fill(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// shards splits samples where the bytes of a shard would exceed the limit. A shard has at least one sample.
func shards(source []record, limit int64) [][]record {
	var out [][]record
	var size int64
	for i, r := range source {
		var bytes int64
		for _, p := range r.parts {
			bytes += int64(len(p.data))
		}
		if i == 0 || size+bytes > limit {
			out, size = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], r)
		size += bytes
	}
	return out
}

func writeTar(source []record, out string, s settings) error {
	o := wds.Options{}
	if s.align {
		o.Align = 4096
	}
	for i, records := range shards(source, s.shardSize) {
		name := filepath.Join(out, fmt.Sprintf("shard-%06d.tar", i))
		var shard *wds.Shard
		err := create(name, func(file io.Writer) error {
			w, err := wds.NewWriter(file, name, o)
			if err != nil {
				return err
			}
			for _, r := range records {
				var parts []wds.Part
				for _, p := range r.parts {
					parts = append(parts, wds.Part{Ext: p.ext, Size: int64(len(p.data)), Data: bytes.NewReader(p.data)})
				}
				if _, err := w.Add(r.key, parts...); err != nil {
					return err
				}
			}
			shard, err = w.Close()
			return err
		})
		if err != nil {
			return err
		}
		if err := create(name+wds.Suffix, func(file io.Writer) error { return wds.WriteIndex(file, shard) }); err != nil {
			return err
		}
	}
	return nil
}

func writeMDS(source []record, out string, s settings) error {
	var columns []mds.Column
	for pair := range strings.FieldsSeq(s.columns) {
		name, encoding, _ := strings.Cut(pair, "=")
		size, known := mds.EncodingSize(encoding)
		if !known {
			return fmt.Errorf("the column %q has the unknown encoding %q", name, encoding)
		}
		columns = append(columns, mds.Column{Name: name, Encoding: encoding, Size: size})
	}
	o := mds.Options{SizeLimit: s.shardSize}
	if s.hashes != "" {
		o.Hashes = strings.Split(s.hashes, ",")
	}
	w, err := mds.NewWriter(columns, o)
	if err != nil {
		return err
	}
	var list []mds.Shard
	flush := func() error {
		name := mds.ShardName(len(list))
		return create(filepath.Join(out, name), func(file io.Writer) error {
			shard, err := w.Flush(file, name)
			list = append(list, shard)
			return err
		})
	}
	for _, r := range source {
		values := make([][]byte, len(columns))
		for i, c := range columns {
			for _, p := range r.parts {
				if p.ext == c.Name {
					values[i] = p.data
				}
			}
			if values[i] == nil {
				return fmt.Errorf("the sample %q has no file for the column %q", r.key, c.Name)
			}
		}
		if w.Len() > 0 && !w.Fits(values...) {
			if err := flush(); err != nil {
				return err
			}
		}
		if err := w.Add(values...); err != nil {
			return err
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return create(filepath.Join(out, mds.IndexName), func(file io.Writer) error { return mds.WriteIndex(file, list) })
}

// writeBin writes a sequence for each file. The files of a folder are a document, and so is each file outside of
// folders.
func writeBin(source []record, out string, s settings) error {
	dtypes := map[string]format.DType{"uint8": format.U8, "int8": format.I8, "int16": format.I16, "uint16": format.U16,
		"int32": format.I32, "int64": format.I64}
	name := filepath.Join(out, "data")
	var w *megatron.Writer
	err := create(name+".bin", func(file io.Writer) (err error) {
		buffered := bufio.NewWriter(file)
		if w, err = megatron.NewWriter(buffered, name+".bin", dtypes[s.dtype], false); err != nil {
			return err
		}
		document, begun := "", false
		for _, r := range source {
			for _, p := range r.parts {
				folder := path.Dir(p.name)
				if begun && (folder == "." || folder != document) {
					w.EndDocument()
				}
				document, begun = folder, true
				if err := w.Add(p.data, 0); err != nil {
					return err
				}
			}
		}
		w.EndDocument()
		return buffered.Flush()
	})
	if err != nil {
		return err
	}
	return create(name+".idx", func(file io.Writer) error { return w.WriteIndex(file, name+".idx") })
}

func writeTFRecord(source []record, out string, s settings) error {
	for i, records := range shards(source, s.shardSize) {
		name := filepath.Join(out, fmt.Sprintf("shard-%05d.tfrecord", i))
		err := create(name, func(file io.Writer) error {
			return create(name+".idx", func(index io.Writer) error {
				w := tfrecord.NewWriter(file, index, name)
				for _, r := range records {
					for _, p := range r.parts {
						if err := w.Add(p.data); err != nil {
							return err
						}
					}
				}
				return w.Flush()
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
