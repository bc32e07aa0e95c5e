// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path"
	"strings"
)

// part is one file of a source.
type part struct {
	ext  string // after the first dot of the name of the file
	name string // the path relative to the source
	data []byte
}

// record is one sample of a source.
type record struct {
	key   string // the path up to the first dot of the name of the file
	parts []part // sorted by name
}

// scan reads all files of a folder and groups them into samples, in the order of their names.
func scan(folder string) ([]record, error) {
	var records []record
	at := map[string]int{} // by key: files of a folder "a.b" can stand between "a.a" and "a.c"
	root := os.DirFS(folder)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		dir, base := path.Split(name)
		stem, ext, _ := strings.Cut(base, ".")
		i, ok := at[dir+stem]
		if !ok {
			i = len(records)
			at[dir+stem] = i
			records = append(records, record{key: dir + stem})
		}
		records[i].parts = append(records[i].parts, part{ext: ext, name: name, data: data})
		return nil
	})
	return records, err
}
