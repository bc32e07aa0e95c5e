// SPDX-License-Identifier: Apache-2.0

// Command samples writes packs of training data with our writers, and lists the samples that our readers find.
//
// The tests in test/peers compare its packs and lists with the packages of other projects:
//
//	samples write tar|mds|bin|tfrecord [flags] SRC OUT
//	samples read tar|mds|litdata|bin|tfrecord|npy [flags] PATH
//
// SRC is a folder of files. A file KEY.EXT is the part EXT of the sample KEY. In the formats bin and tfrecord, each
// file is a sample. A list has one line of JSON for each sample.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "samples:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	shardSize int64  // bytes from which a sample goes to the next shard
	columns   string // NAME=ENCODING of each MDS column, separated by spaces
	dtype     string // of the tokens of a sequence
	align     bool   // whether the parts of a tar begin at multiples of 4096 bytes
	hashes    string // of MDS shards, separated by commas
	block     int    // tokens of a block that a list of litData chunks has, or 0 for whole rows
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: samples write|read FORMAT [flags] PATHS")
	}
	var s settings
	flags := flag.NewFlagSet("samples", flag.ContinueOnError)
	flags.Int64Var(&s.shardSize, "shard-size", 1<<26, "bytes from which a sample goes to the next shard")
	flags.StringVar(&s.columns, "columns", "", "NAME=ENCODING of each MDS column, separated by spaces")
	flags.StringVar(&s.dtype, "dtype", "uint16", "type of a token")
	flags.BoolVar(&s.align, "align", false, "begin the parts of a tar at multiples of 4096 bytes")
	flags.StringVar(&s.hashes, "hashes", "", "hashes of MDS shards, separated by commas")
	flags.IntVar(&s.block, "block", 0, "list blocks of this many tokens of litData chunks")
	if err := flags.Parse(args[2:]); err != nil {
		return err
	}
	verb, format, paths := args[0], args[1], flags.Args()
	switch {
	case verb == "write" && len(paths) == 2:
		write, ok := writers()[format]
		if !ok {
			return fmt.Errorf("no writer of the format %q", format)
		}
		source, err := scan(paths[0])
		if err != nil {
			return err
		}
		if err := os.MkdirAll(paths[1], 0o755); err != nil {
			return err
		}
		return write(source, paths[1], s)
	case verb == "read" && len(paths) == 1:
		read, ok := readers()[format]
		if !ok {
			return fmt.Errorf("no reader of the format %q", format)
		}
		return read(paths[0], os.Stdout, s)
	}
	return fmt.Errorf("usage: samples write FORMAT [flags] SRC OUT, or samples read FORMAT PATH")
}
