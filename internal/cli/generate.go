// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/synth"
	"github.com/nebulaio/nebulaio/internal/units"
)

// generateFlags are the flags of generate.
type generateFlags struct {
	shapes, out      string
	seed             uint64
	shardSize, align int64
	list, asJSON     bool
}

// shapesJSON describes one known model.
type shapesJSON struct {
	Name    string `json:"name"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// generatedJSON describes the written files.
type generatedJSON struct {
	Path    string              `json:"path"`
	Shapes  string              `json:"shapes"`
	Seed    uint64              `json:"seed"`
	Tensors int                 `json:"tensors"`
	Bytes   int64               `json:"bytes"`
	Seconds float64             `json:"seconds"`
	Files   []generatedFileJSON `json:"files"`
}

type generatedFileJSON struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"`
	DataStart int64  `json:"data_start"`
	Tensors   int    `json:"tensors"`
}

func newGenerate(a *app) *cobra.Command {
	var f generateFlags
	cmd := &cobra.Command{
		Use:   "generate --shapes NAME --out PATH",
		Short: "Write a synthetic model with the tensor names, types and shapes of a known model",
		Long: `Write a synthetic model with the tensor names, types and shapes of a known model.

PATH is the file to write. With --shard-size, PATH is the directory of the shards
and their index. The content of the tensors is pseudorandom: the same flags always
give the same bytes. Existing files are replaced atomically.`,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			if f.list {
				return a.listShapes(f.asJSON)
			}
			return a.generate(ctx, f)
		}),
	}
	fs := cmd.Flags()
	names := synth.Models()
	shapes := choice(&f.shapes, "NAME", names...)
	f.shapes, shapes.text = "", "" // there is no default model
	fs.Var(shapes, "shapes", "model to imitate: "+list(names))
	fs.StringVar(&f.out, "out", "", "`PATH` of the file or directory to write")
	fs.Var(number(&f.seed), "seed", "seed of the pseudorandom content of the tensors")
	fs.Var(size(&f.shardSize), "shard-size",
		"largest total size of the tensors in one file, such as 4GiB; 0 writes the whole model to one file")
	fs.Var(size(&f.align), "align",
		"alignment in bytes of the first tensor in the file, such as 4096 for fast direct reads; default 8")
	fs.BoolVar(&f.list, "list", false, "list the models that --shapes can name")
	fs.BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func (a *app) listShapes(asJSON bool) error {
	var all []shapesJSON
	for _, name := range synth.Models() {
		ts, err := synth.Shapes(name)
		if err != nil {
			return err
		}
		m := shapesJSON{Name: name, Tensors: len(ts)}
		for _, t := range ts {
			m.Bytes += t.Size
		}
		all = append(all, m)
	}
	if asJSON {
		return a.printJSON(map[string]any{"shapes": all})
	}
	t := newTable("name", ">tensors", ">size")
	for _, m := range all {
		t.add(m.Name, strconv.Itoa(m.Tensors), units.Bytes(m.Bytes))
	}
	a.printText(t.print)
	return nil
}

func (a *app) generate(ctx context.Context, f generateFlags) error {
	for _, need := range []struct{ flag, value, want string }{
		{"--shapes", f.shapes, list(synth.Models())},
		{"--out", f.out, "a path to write"},
	} {
		if need.value == "" {
			return errs.New(errs.Invalid, "generate", "", need.flag+" is not given; expected "+need.want).
				WithFix("see: nebulaio generate --help")
		}
	}
	ts, err := synth.Shapes(f.shapes)
	if err != nil {
		return err
	}
	var total int64
	for _, t := range ts {
		total += t.Size
	}
	began := a.Now()
	p := a.startProgress(total, f.asJSON)
	files, err := synth.Write(ctx, f.out, synth.Options{Shapes: ts, Seed: f.seed, Align: f.align, ShardSize: f.shardSize,
		Progress: p.update})
	p.clear()
	if err != nil {
		return interrupted(ctx, err)
	}
	g := generatedJSON{Path: f.out, Shapes: f.shapes, Seed: f.seed, Seconds: a.Now().Sub(began).Seconds()}
	for _, file := range files {
		g.Tensors += len(file.Tensors)
		g.Bytes += file.Size
		g.Files = append(g.Files, generatedFileJSON{Path: file.Path, Size: file.Size, DataStart: file.DataStart,
			Tensors: len(file.Tensors)})
	}
	return a.printResult(f.asJSON, g, g.print)
}

func (g generatedJSON) print(w io.Writer) {
	t := newTable("file", ">size", ">data start", ">tensors")
	for _, f := range g.Files {
		t.add(printable(f.Path), units.Bytes(f.Size), strconv.FormatInt(f.DataStart, 10), strconv.Itoa(f.Tensors))
	}
	t.print(w)
	fmt.Fprintf(w, "wrote %s in %s, %s, of %s with seed %d, in %s\n",
		sized(g.Bytes), plural(len(g.Files), "file"), plural(g.Tensors, "tensor"), g.Shapes, g.Seed, seconds(g.Seconds))
}
