// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/data/pack"
)

// unpackFlags are the flags of unpack.
type unpackFlags struct {
	objects objectFlags
	o       pack.UnpackOptions
	asJSON  bool
}

// unpackJSON is the result of unpack.
type unpackJSON struct {
	Source string `json:"source"`
	Path   string `json:"path"`
	pack.Unpacked
	Seconds float64 `json:"seconds"`
}

func newUnpack(a *app) *cobra.Command {
	var f unpackFlags
	cmd := &cobra.Command{
		Use:   "unpack SRC OUT",
		Short: "Write the samples of a pack of training data to files",
		Long: `Write the samples of a pack of training data to files.

SRC is a folder or s3://BUCKET/PREFIX with a pack: tar (WebDataset), MDS, litData,
TFRecord, Megatron .bin and .idx, or .npy. OUT is an empty folder or
s3://BUCKET/PREFIX. Each part of a sample becomes the file KEY.EXT. Samples without
keys have their numbers as keys. Tokens become .npy files.

If SRC has checksums beside its files, unpack compares the files with them first.
If unpack is interrupted or killed, run the same command again: unpack goes on with
the missing samples.`,
		Args: sourceAndOut("a pack and a destination"),
		RunE: a.run(func(ctx context.Context, args []string) error { return unpackFiles(ctx, a, args[0], args[1], f) }),
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.o.NoVerify, "no-verify", false, "do not compare the pack with its checksums")
	f.objects.defineServer(fs)
	fs.BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func unpackFiles(ctx context.Context, a *app, from, to string, f unpackFlags) error {
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
	p := a.startWork("opening the pack", f.asJSON)
	defer p.clear()
	in, err := pack.OpenPack(ctx, src)
	if err != nil {
		return interrupted(ctx, err)
	}
	f.o.Progress = p.update
	r, err := pack.Unpack(ctx, in, out, f.o)
	p.clear()
	if err != nil {
		return interrupted(ctx, err)
	}
	j := unpackJSON{Source: from, Path: to, Unpacked: *r, Seconds: a.Now().Sub(began).Seconds()}
	return a.printResult(f.asJSON, j, j.print)
}

func (j unpackJSON) print(w io.Writer) {
	field(w, "path", "%s", printable(j.Path))
	field(w, "samples", "%d", j.Samples)
	field(w, "written", "%s in %d files", sized(j.Bytes), j.Files)
	switch {
	case j.WasComplete:
		field(w, "resumed", "everything was unpacked already")
	case j.Resumed > 0:
		field(w, "resumed", "%s of an earlier run", plural(j.Resumed, "piece"))
	}
	verified := "no checksums were compared"
	if j.Verified > 0 {
		verified = plural(j.Verified, "file") + " of the pack equal their checksums"
	}
	field(w, "verified", "%s", verified)
	field(w, "time", "%s", seconds(j.Seconds))
}
