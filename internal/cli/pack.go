// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/data/pack"
	"github.com/nebulaio/nebulaio/internal/data/tokens"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// packFlags are the flags of pack.
type packFlags struct {
	objects   objectFlags
	o         pack.Options
	dtype     string
	tokenizer string
	eod       string
	encodings []string
	asJSON    bool
}

// packJSON is the result of pack.
type packJSON struct {
	Source      string     `json:"source"`
	Path        string     `json:"path"`
	Format      string     `json:"format"`
	SourceFiles int        `json:"source_files"`
	SourceBytes int64      `json:"source_bytes"`
	Samples     int64      `json:"samples"`
	Shards      int        `json:"shards"`
	Resumed     int        `json:"resumed_shards"`
	Files       int        `json:"files"`
	Bytes       int64      `json:"bytes"`
	Verified    bool       `json:"verified"`
	Complete    bool       `json:"was_complete"`
	Empty       int64      `json:"empty_documents,omitempty"`
	BadCount    int        `json:"bad_count"`
	Bad         []pack.Bad `json:"bad"`
	Seconds     float64    `json:"seconds"`
}

func newPack(a *app) *cobra.Command {
	var f packFlags
	cmd := &cobra.Command{
		Use:   "pack SRC OUT --format FORMAT",
		Short: "Pack many small files into shards of training data",
		Long: `Pack many small files into shards of training data.

SRC is a folder or s3://BUCKET/PREFIX. The files a/b/key.jpg and a/b/key.cls are
the parts jpg and cls of the sample a/b/key. OUT is an empty folder or
s3://BUCKET/PREFIX. The format is tar (WebDataset), mds (MosaicML Streaming),
tfrecord (tf.train.Example), or bin (tokens for Megatron).

Each shard appears under its name when it is complete and durable, with its
checksums beside it. If pack is interrupted or killed, run the same command again:
pack goes on with the missing shards. At the end, pack reads all files back and
compares them with their checksums.

For --format bin, each .npy file in SRC has the tokens of a document, or a
document in each row. A .bin file has the tokens of a document as plain
little-endian numbers. With --tokenizer, a .txt file is a document, and each line
of a .jsonl file is one.`,
		Args: sourceAndOut("a source and a destination"),
		RunE: a.run(func(ctx context.Context, args []string) error { return packFiles(ctx, a, args[0], args[1], f) }),
	}
	fs := cmd.Flags()
	formats := choice(&f.o.Format, "FORMAT", pack.Formats()...)
	f.o.Format, formats.text = "", ""
	fs.Var(formats, "format", "format of the pack: "+list(pack.Formats()))
	fs.Var(size(&f.o.ShardSize), "shard-size",
		"largest size of a shard, such as 512MiB; default 256MiB for tar, 64MiB for mds, 128MiB for tfrecord, 1GiB for bin")
	fs.BoolVar(&f.o.Aligned, "aligned", false, "let each part of a sample begin at a multiple of 4096 bytes, only for tar")
	fs.Var(&value{kind: "SEED", want: "a whole number from 0 to 2^64-1", set: func(s string) (err error) {
		f.o.Shuffle = true
		if f.o.Seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			return errForm
		}
		return nil
	}}, "shuffle", "store the samples in the random order that SEED chooses; default sorted by key")
	fs.BoolVar(&f.o.SkipBad, "skip-bad", false, "leave out files that cannot be packed, and list them in the result")
	fs.BoolVar(&f.o.Restart, "restart", false, "remove an old or unfinished pack in OUT, and begin again")
	fs.BoolVar(&f.o.NoVerify, "no-verify", false,
		"do not read the written files back to compare them with their checksums")
	fs.Var(&value{kind: "EXT=ENCODING", want: "a part and its encoding, such as txt=str", set: func(s string) error {
		ext, encoding, ok := strings.Cut(s, "=")
		if !ok || ext == "" || encoding == "" {
			return errForm
		}
		f.encodings = append(f.encodings, s)
		return nil
	}}, "encoding", "MDS encoding of a part, such as txt=str or cls=int64; can be given several times; default bytes")
	dtypes := choice(&f.dtype, "DTYPE", tokenNames()...)
	f.dtype, dtypes.text = "", ""
	fs.Var(dtypes, "dtype", "type of tokens for bin: "+list(tokenNames())+
		"; default uint16 or int32 by the size of the vocabulary, or the type of the first .npy file")
	fs.Var(textFlag(&f.tokenizer, "FILE", "a file"), "tokenizer",
		"tokenizer.json that encodes .txt and .jsonl files for bin")
	fs.Var(textFlag(&f.eod, "TOKEN", "a token"), "append-eod",
		"token at the end of each document for bin, such as <|endoftext|> or its number")
	fs.Var(textFlag(&f.o.TextField, "NAME", "a field"), "text-field",
		"field of .jsonl lines that has the text; default text")
	f.objects.defineServer(fs)
	fs.BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

// tokenNames returns the types of tokens as NumPy calls them.
func tokenNames() []string { return []string{"uint16", "int32", "uint8", "int8", "int16", "int64"} }

// tokenType returns a type of tokens by the name that NumPy gives it.
func tokenType(name string) format.DType {
	return format.DType(strings.ToUpper(strings.NewReplacer("uint", "u", "int", "i").Replace(name)))
}

// encoder is a tokenizer for packs.
type encoder struct {
	*tokens.Tokenizer
	sum string // of tokenizer.json
}

// openTokenizer opens a tokenizer.json. Its checksum tells another run whether it packs with the same tokenizer.
func openTokenizer(path string) (pack.Encoder, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errs.Wrap("open tokenizer", path, errs.WithoutPath(err))
	}
	defer f.Close()
	sum := sha256.New()
	t, err := tokens.Read(io.TeeReader(f, sum), path, tokens.Options{})
	if err != nil {
		return nil, err
	}
	return &encoder{Tokenizer: t, sum: hex.EncodeToString(sum.Sum(nil))}, nil
}

// VocabularySize returns a number above all tokens.
func (e *encoder) VocabularySize() int { return e.Size() }

// Identity returns the checksum of tokenizer.json.
func (e *encoder) Identity() string { return e.sum }

func packFiles(ctx context.Context, a *app, from, to string, f packFlags) error {
	if f.o.Format == "" {
		return errs.New(errs.Invalid, "pack", "", "--format is not given; expected "+list(pack.Formats())).
			WithFix("see: nebulaio pack --help")
	}
	if err := f.tokens(); err != nil {
		return err
	}
	src, closeSrc, err := placeOf(a, from, &f.objects)
	if err != nil {
		return err
	}
	defer closeSrc()
	out, closeOut, err := placeOf(a, to, &f.objects)
	if err != nil {
		return err
	}
	defer closeOut()
	began := a.Now()
	packing := a.startWork("listing the files", f.asJSON)
	f.o.Progress = packing.update
	var verifying *progress
	f.o.Verifying = func(done, total int64) {
		if verifying == nil {
			packing.clear()
			verifying = a.startProgress(total, f.asJSON)
		}
		verifying.update(done, total)
	}
	r, err := pack.Run(ctx, src, out, f.o)
	packing.clear()
	if verifying != nil {
		verifying.clear()
	}
	if err != nil {
		return interrupted(ctx, err)
	}
	j := packJSON{Source: from, Path: to, Format: r.Format, SourceFiles: r.SourceFiles, SourceBytes: r.SourceBytes,
		Samples: r.Samples, Shards: r.Shards, Resumed: r.Resumed, Files: r.Files, Bytes: r.Bytes, Verified: r.Verified,
		Complete: r.WasComplete, Empty: r.Empty, BadCount: r.BadCount, Bad: append([]pack.Bad{}, r.Bad...),
		Seconds: a.Now().Sub(began).Seconds()}
	return a.printResult(f.asJSON, j, j.print)
}

// tokens converts the flags of tokens and encodings to options.
func (f *packFlags) tokens() error {
	if f.dtype != "" {
		f.o.DType = tokenType(f.dtype)
	}
	for _, e := range f.encodings {
		ext, encoding, _ := strings.Cut(e, "=")
		if f.o.Encodings == nil {
			f.o.Encodings = map[string]string{}
		}
		f.o.Encodings[strings.ToLower(ext)] = encoding
	}
	if f.tokenizer != "" {
		var err error
		if f.o.Encoder, err = openTokenizer(f.tokenizer); err != nil {
			return err
		}
	}
	if f.eod == "" {
		return nil
	}
	f.o.HasEOD = true
	if n, err := strconv.ParseUint(f.eod, 10, 32); err == nil {
		f.o.EOD = uint32(n)
		return nil
	}
	if e, ok := f.o.Encoder.(*encoder); ok {
		if f.o.EOD, ok = e.ID(f.eod); ok {
			return nil
		}
	}
	return errs.New(errs.Invalid, "pack", "", fmt.Sprintf("--append-eod %q is no token of the tokenizer", f.eod)).
		WithFix("give a token of tokenizer.json, or its number")
}

// placeOf returns the folder or the prefix that a path or URL names. When the place is no longer used, the caller calls
// the returned function.
func placeOf(a *app, name string, f *objectFlags) (pack.Place, func(), error) {
	rest, remote := strings.CutPrefix(name, "s3://")
	if !remote {
		if scheme, _, ok := strings.Cut(name, "://"); ok {
			return nil, nil, errs.New(errs.Invalid, "open", name,
				"the scheme "+scheme+" is not known; expected a folder or s3://BUCKET/PREFIX")
		}
		return pack.NewFolder(name), func() {}, nil
	}
	bucket, prefix, _ := strings.Cut(rest, "/")
	if bucket == "" {
		return nil, nil, errs.New(errs.Invalid, "open", name, "names no bucket; expected s3://BUCKET/PREFIX")
	}
	o, err := f.options(a)
	if err != nil {
		return nil, nil, err
	}
	endpoint := o.Endpoint
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	c, err := s3.New(s3.Options{Endpoint: endpoint, Region: o.Region, AccessKey: o.AccessKey, SecretKey: o.SecretKey,
		SessionToken: o.SessionToken, Connections: o.Connections, CAFile: o.CAFile})
	if err != nil {
		return nil, nil, err
	}
	return pack.NewBucket(c, bucket, prefix), func() { c.Close() }, nil
}

func (j packJSON) print(w io.Writer) {
	field(w, "path", "%s", printable(j.Path))
	field(w, "format", "%s", j.Format)
	field(w, "samples", "%d in %s", j.Samples, plural(j.Shards, "shard"))
	field(w, "source", "%s in %s", sized(j.SourceBytes), plural(j.SourceFiles, "file"))
	field(w, "written", "%s in %s", sized(j.Bytes), plural(j.Files, "file"))
	switch {
	case j.Complete:
		field(w, "resumed", "the pack was complete already")
	case j.Resumed > 0:
		field(w, "resumed", "%s of an earlier run", plural(j.Resumed, "shard"))
	}
	if j.Empty > 0 {
		field(w, "empty", "%d documents without tokens were left out", j.Empty)
	}
	if j.BadCount > 0 {
		field(w, "bad", "%s left out:", plural(j.BadCount, "file"))
		for _, b := range j.Bad[:min(len(j.Bad), 20)] {
			fmt.Fprintf(w, "  %s: %s\n", printable(b.Name), printable(b.Reason))
		}
	}
	if j.Verified {
		field(w, "verified", "yes: all files equal their checksums")
	} else if !j.Complete {
		field(w, "verified", "no")
	}
	field(w, "time", "%s", seconds(j.Seconds))
}

// sourceAndOut checks that a command has exactly two paths.
func sourceAndOut(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 {
			return errs.New(errs.Invalid, cmd.Name(), "", fmt.Sprintf("%s given; expected %s", plural(len(args), "path"), what))
		}
		for _, arg := range args {
			if arg == "" {
				return errs.New(errs.Invalid, cmd.Name(), "", `a path is ""; expected `+what)
			}
		}
		return nil
	}
}
