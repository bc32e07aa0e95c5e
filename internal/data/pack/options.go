// SPDX-License-Identifier: Apache-2.0

// Package pack packs folders and bucket prefixes of small files into shards of training data, and unpacks them.
//
// A pack is made in steps. The source is listed, and its samples are assigned to shards by their names and sizes alone.
// Each shard is written under a temporary name, flushed, and renamed. A record of the shard follows. After a kill, the
// next run packs the shards without a record. Equal sources and options give equal bytes.
package pack

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// Formats of packs.
const (
	Tar      = "tar"
	MDS      = "mds"
	Bin      = "bin"
	TFRecord = "tfrecord"
)

// Formats returns the names of all formats.
func Formats() []string { return []string{Tar, MDS, Bin, TFRecord} }

// DefaultShardSize returns the shard size of a format in bytes, if the user names none.
func DefaultShardSize(format string) int64 {
	switch format {
	case MDS:
		return mds.DefaultSizeLimit
	case TFRecord:
		return 128 << 20
	case Bin:
		return 1 << 30
	}
	return 256 << 20
}

// Encoder converts text to tokens. Several goroutines use an Encoder at the same time.
type Encoder interface {
	// Encode returns the tokens of a text.
	Encode(text []byte) ([]uint32, error)
	// VocabularySize returns the number of different tokens: all tokens are below it.
	VocabularySize() int
	// Identity returns a text that differs for tokenizers that encode differently, such as the sum of tokenizer.json.
	Identity() string
}

// Options choose what Run writes.
type Options struct {
	Format    string // one of Formats
	ShardSize int64  // the most bytes of a shard; 0 means DefaultShardSize. A larger sample has a shard of its own
	// Aligned lets the parts of samples begin at multiples of 4096 bytes. Only tar archives have room for that.
	Aligned bool
	// Shuffle stores the samples in the random order that Seed chooses.
	Shuffle bool
	Seed    uint64
	SkipBad bool // leave out bad files and count them
	Restart bool // remove an older or unfinished pack first
	// NoVerify skips the comparison of the written files with their checksums at the end.
	NoVerify bool
	// Encodings are the MDS encodings of columns. Columns that are not named are "bytes".
	Encodings map[string]string
	// DType is the type of tokens in a pack of the format Bin: U8, I8, I16, U16, I32 or I64. If DType is empty, the
	// vocabulary or the first file decides.
	DType format.DType
	// Encoder encodes .txt and .jsonl files for the format Bin. Without an Encoder, the source must have tokens.
	Encoder Encoder
	// TextField is the field of a .jsonl line that has the text; empty means "text".
	TextField string
	// EOD is the token that is appended to each document, if HasEOD is set.
	EOD    uint32
	HasEOD bool
	// Progress receives the number of source bytes that are packed, and the total. Calls do not overlap.
	Progress func(done, total int64)
	// Verifying receives the number of written bytes that are compared, and the total. Calls do not overlap.
	Verifying func(done, total int64)

	lanes   int // number of shards that are written at the same time; 0 means the default. Tests set it
	readers int // number of readers of each lane; 0 means the default
}

// tokenTypes returns the types that a Megatron dataset can have, with the smallest and the largest token.
func tokenTypes() []tokenType {
	return []tokenType{{format.U8, 0, 255}, {format.I8, 0, 127}, {format.I16, 0, 32767}, {format.U16, 0, 65535},
		{format.I32, 0, 1<<31 - 1}, {format.I64, 0, 1<<63 - 1}}
}

// tokenType is a type of tokens.
type tokenType struct {
	dtype     format.DType
	low, high int64
}

// check refuses options that contradict each other, and fills in defaults.
func (o *Options) check() error {
	fail := func(fix, msg string, args ...any) error {
		return errs.New(errs.Invalid, "pack", "", fmt.Sprintf(msg, args...)).WithFix(fix)
	}
	if !slices.Contains(Formats(), o.Format) {
		return fail("name a format", "the format is %q, expected %s", o.Format, strings.Join(Formats(), ", "))
	}
	if o.ShardSize == 0 {
		o.ShardSize = DefaultShardSize(o.Format)
	}
	most := int64(1) << 40
	if o.Format == MDS {
		most = 1<<32 - 1
	}
	if o.ShardSize < 4096 || o.ShardSize > most {
		return fail("choose a size in this range", "the shard size is %d bytes, expected 4096 to %d", o.ShardSize, most)
	}
	if o.Aligned && o.Format != Tar {
		return fail("use --format tar, or leave out --aligned",
			"the format %s has no room between the parts of samples, so they cannot be aligned", o.Format)
	}
	if len(o.Encodings) > 0 && o.Format != MDS {
		return fail("leave out --encoding", "the format %s has no encodings of columns, only mds has", o.Format)
	}
	for _, column := range slices.Sorted(maps.Keys(o.Encodings)) {
		if _, known := mds.EncodingSize(o.Encodings[column]); !known || column == keyColumn {
			return fail("use an encoding of mosaicml-streaming, such as bytes, str, json, jpeg or int64",
				"the encoding of column %q is %q, which is not known", column, o.Encodings[column])
		}
	}
	return o.checkTokens(fail)
}

// checkTokens checks the options of the format Bin.
func (o *Options) checkTokens(fail func(fix, msg string, args ...any) error) error {
	if o.Format != Bin {
		if o.Encoder != nil || o.HasEOD || o.DType != "" || o.TextField != "" {
			return fail("use --format bin, or leave out the options of tokens",
				"a tokenizer, a text field, a dtype or an end-of-document token was given, and the format %s has no tokens",
				o.Format)
		}
		return nil
	}
	if o.TextField != "" && o.Encoder == nil {
		return fail("name a tokenizer", "a text field was given, and no tokenizer")
	}
	if o.TextField == "" && o.Encoder != nil {
		o.TextField = "text"
	}
	if o.DType == "" && o.Encoder != nil {
		// Megatron draws the same line: below 65,500, all tokens and a few special ones fit into 16 bits.
		if o.DType = format.I32; o.Encoder.VocabularySize() < 65500 {
			o.DType = format.U16
		}
	}
	if o.DType == "" {
		return nil
	}
	at := slices.IndexFunc(tokenTypes(), func(t tokenType) bool { return t.dtype == o.DType })
	if at < 0 {
		return fail("use uint16 or int32", "the type of tokens is %q, expected uint8, int8, int16, uint16, int32 or int64",
			o.DType)
	}
	high := tokenTypes()[at].high
	if o.Encoder != nil && int64(o.Encoder.VocabularySize())-1 > high {
		return fail("use a larger type, such as int32", "the vocabulary has %d tokens, and %s ends at %d",
			o.Encoder.VocabularySize(), o.DType, high)
	}
	if o.HasEOD && int64(o.EOD) > high {
		return fail("use a larger type, such as int32", "the end-of-document token is %d, and %s ends at %d", o.EOD,
			o.DType, high)
	}
	return nil
}
