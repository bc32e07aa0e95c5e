// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/copying"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/warm"
)

// warmFlags are the flags of warm.
type warmFlags struct {
	copyFlags
	to     string
	pin    string
	dryRun bool
	verify bool
}

// warmJSON is the result of warm for one source.
type warmJSON struct {
	Source  string           `json:"source"`
	Kind    string           `json:"kind"` // "model", "mds", "litdata", "file" or "prefix"
	To      string           `json:"to"`
	Files   int              `json:"files"`
	Bytes   int64            `json:"bytes"`
	LeftOut int              `json:"left_out"` // files that the index does not need
	DryRun  bool             `json:"dry_run,omitempty"`
	Names   []string         `json:"names,omitempty"`    // keys of a dry run
	Copy    *copying.Summary `json:"copy,omitempty"`     // to a directory
	Node    *warm.NodeResult `json:"node,omitempty"`     // to a node
	Checked int64            `json:"checked,omitempty"`  // files that --verify compared with the source
	Mani    string           `json:"manifest,omitempty"` // path of the list of files
	Seconds float64          `json:"seconds"`
}

func newWarm(a *app) *cobra.Command {
	var f warmFlags
	cmd := &cobra.Command{
		Use:   "warm SRC... --to DIR|NODE",
		Short: "Bring a model or data set to local disks, planned from its index",
		Long: `Bring a model or data set to local disks, planned from its index.

SRC is a folder or prefix, an index, or a single file. Of a model with
model.safetensors.index.json, the command takes the shards that the index names,
and the configuration and tokenizer files beside them. Of a data set of MosaicML
Streaming or litData, it takes the files that index.json names. Of a .tar, .bin or
.idx file, it takes the index too. Of any other prefix, it takes everything.

With --to DIR, each SRC becomes the directory DIR/NAME, where NAME is the last part
of SRC. Each file is verified and gets its name when it is whole. If the command is
interrupted, run it again: it goes on where it ended. The list of the files is
DIR/NAME/.nebulaio-warm.json.

With --to http://HOST:PORT, a NebulaIO server with upstream buckets fetches the
objects to its own disk. SRC is then s3://BUCKET/PREFIX as that server names it.
With --pin, the server does not evict the objects.`,
		Args: places(1, 0, "one or more models or data sets"),
		RunE: a.run(func(ctx context.Context, args []string) error { return f.run(ctx, a, args) }),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var(textFlag(&f.to, "DIR|NODE", "a directory, or the URL of a NebulaIO server"), "to",
		"directory for the files, or the URL of a NebulaIO server whose cache gets them")
	fs.Var(pinValue(&f.pin), "pin",
		"how long the server keeps the objects: forever, or a time such as 24h; only with a server")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print what would be copied, and copy nothing")
	fs.BoolVar(&f.verify, "verify", false,
		"compare all files with the source at the end, also those that an earlier run has copied")
	fs.Var(size(&f.o.Rate), "limit-rate", "the most bytes per second of all transfers together; 0 means no limit")
	fs.Var(count(&f.o.Concurrency, 0, 0), "concurrency",
		fmt.Sprintf("the most concurrent requests, as a number; 0 means %d", copying.DefaultConcurrency))
	fs.BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
	f.objects.defineServer(fs)
	return cmd
}

// pinValue is how long a node keeps an object.
func pinValue(dst *string) *value {
	return &value{kind: "DURATION", want: "forever, or a time such as 24h", words: []string{"forever"},
		set: func(s string) error {
			if s != "forever" {
				if d, err := time.ParseDuration(s); err != nil || d <= 0 {
					return errForm
				}
			}
			*dst = s
			return nil
		}}
}

// toNode reports whether the destination is a server.
func (f *warmFlags) toNode() bool {
	return strings.HasPrefix(f.to, "http://") || strings.HasPrefix(f.to, "https://")
}

func (f *warmFlags) run(ctx context.Context, a *app, names []string) error {
	bad := func(msg, fix string) error { return errs.New(errs.Invalid, "warm", f.to, msg).WithFix(fix) }
	switch {
	case f.to == "":
		return bad("no destination is given", "name a directory or a server with --to")
	case !f.toNode() && strings.Contains(f.to, "://"):
		return bad("is neither a directory nor http://HOST:PORT", "copy to a bucket with nebulaio sync")
	case f.pin != "" && !f.toNode():
		return bad("is a directory, and only a server pins", "leave out --pin")
	case f.verify && f.dryRun:
		return bad("nothing is copied by --dry-run", "leave out --verify")
	case f.verify && f.toNode():
		return bad("is a server, which verifies what it fetches", "leave out --verify")
	}
	objects := f.objects
	if f.toNode() {
		objects.client.Endpoint = f.to // the node is asked for its own bucket
	}
	var all []warmJSON
	err := objects.withClients(ctx, a, func(c *place.Clients) error {
		for _, name := range names {
			t, err := openTree(ctx, c, name)
			if err != nil {
				return err
			}
			j, err := f.source(ctx, a, t, name)
			if err != nil {
				return resumable(ctx, err, true)
			}
			all = append(all, j)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.printResult(f.asJSON, struct {
		Sources []warmJSON `json:"sources"`
	}{all}, func(w io.Writer) {
		for _, j := range all {
			j.print(w)
		}
	})
}

// source plans and warms one source.
func (f *warmFlags) source(ctx context.Context, a *app, t place.Tree, name string) (j warmJSON, err error) {
	if t.Remote() && t.Bucket == "" || f.toNode() && (!t.Remote() || t.Profile != "") {
		return j, errs.New(errs.Invalid, "warm", name, "is no bucket of the server; expected s3://BUCKET/PREFIX").
			WithFix("name the bucket as the server names it")
	}
	began := a.Now()
	p := a.startWork("reading the index", f.asJSON)
	plan, err := warm.Make(ctx, t)
	p.clear()
	if err != nil {
		return j, err
	}
	j = warmJSON{Source: name, Kind: plan.Kind, To: f.to, Files: len(plan.Entries), Bytes: plan.Bytes,
		LeftOut: plan.LeftOut}
	switch {
	case f.dryRun:
		j.DryRun = true
		for _, e := range plan.Entries[:min(len(plan.Entries), mostActions)] {
			j.Names = append(j.Names, e.Key)
		}
	case f.toNode():
		progress := &sharedProgress{p: a.startProgress(plan.Bytes, f.asJSON)}
		var r warm.NodeResult
		r, err = warm.Node(ctx, plan, warm.NodeOptions{Pin: f.pin, Objects: f.o.Concurrency,
			Progress: func(n int64) { progress.update(n, plan.Bytes) }})
		progress.clear()
		j.Node = &r
	default:
		err = f.toDirectory(ctx, a, plan, &j)
	}
	j.Seconds = a.Now().Sub(began).Seconds()
	return j, err
}

// toDirectory copies the files of a plan into a directory, and writes the list of them.
func (f *warmFlags) toDirectory(ctx context.Context, a *app, plan warm.Plan, j *warmJSON) error {
	j.To = filepath.Join(f.to, plan.Name)
	to := place.Tree{Place: place.Place{Path: j.To}}
	keys := make(map[string]bool, len(plan.Entries))
	for _, e := range plan.Entries {
		keys[e.Key] = true
	}
	var only place.Filter
	only.Where(func(key string) bool { return keys[key] })
	c, err := f.copier(a)
	if err != nil {
		return err
	}
	stop := f.watch(a, c, true)
	var sum copying.Summary
	if plan.Kind == warm.File { // its folder may hold millions of others
		sum, err = copyFiles(ctx, c, plan, to.Place)
	} else {
		sum, err = c.CopyTree(ctx, plan.From, to, copying.TreeOptions{Filter: &only, Sync: true})
	}
	stop()
	j.Copy = &sum
	if err != nil {
		return err
	}
	if plan.Kind == warm.File {
		return nil // its directory holds other files too
	}
	if f.verify {
		if err := f.compare(ctx, a, plan, to, &only, j); err != nil {
			return err
		}
	}
	j.Mani = filepath.Join(j.To, warm.ManifestName)
	return warm.ManifestOf(plan, a.Now()).Write(j.To)
}

// copyFiles copies a file and what belongs to it, unless the directory has them.
func copyFiles(ctx context.Context, c *copying.Copier, plan warm.Plan, to place.Place) (copying.Summary, error) {
	sum := copying.Summary{Verified: map[string]int64{}, Ways: map[string]int64{}}
	if err := os.MkdirAll(to.Path, 0o777); err != nil {
		return sum, errs.Wrap("warm", to.Path, err)
	}
	for _, e := range plan.Entries {
		path := filepath.Join(to.Path, e.Key)
		if info, err := os.Stat(path); err == nil && info.Size() == e.Size && !info.ModTime().Before(e.Modified) {
			sum.Same++
			continue
		}
		var r copying.Result
		var err error
		if plan.From.Remote() {
			r, err = c.Download(ctx, copying.Remote{Client: plan.From.Client, Bucket: plan.From.Bucket, Key: e.Name}, path)
		} else {
			r, err = c.CopyFile(ctx, e.Name, path)
		}
		if err != nil {
			return sum, err
		}
		sum.Copied++
		sum.Bytes += r.Bytes
		sum.Moved += r.Moved
		sum.Resumed += r.Resumed
		sum.Verified[r.Verified]++
		sum.Ways[r.Way]++
	}
	return sum, nil
}

// compare compares the directory with the source.
func (f *warmFlags) compare(ctx context.Context, a *app, plan warm.Plan, to place.Tree, only *place.Filter,
	j *warmJSON) error {
	p := &sharedProgress{p: a.startProgress(plan.Bytes, f.asJSON)}
	defer p.clear()
	return place.Comparison{A: plan.From, B: to, Filter: only,
		Progress: func(n int64) { p.update(min(n, plan.Bytes), plan.Bytes) }}.Run(ctx, func(x place.Finding) error {
		switch {
		case x.Err != nil:
			return x.Err
		case x.Outcome != place.Same:
			return errs.New(errs.Corrupt, "warm", filepath.Join(j.To, x.Key), "differs from the source: "+findingText(x)).
				WithFix("delete the file, and run the same command again")
		}
		j.Checked++
		return nil
	})
}

func (j warmJSON) print(w io.Writer) {
	if j.DryRun {
		for _, name := range j.Names {
			fmt.Fprintf(w, "would bring %s\n", printable(name))
		}
	}
	field(w, "source", "%s (%s)", printable(j.Source), j.Kind)
	left := ""
	if j.LeftOut > 0 {
		left = fmt.Sprintf("; %d others are not in the index", j.LeftOut)
	}
	field(w, "files", "%d, %s%s", j.Files, sized(j.Bytes), left)
	if j.DryRun {
		return
	}
	field(w, "to", "%s", printable(j.To))
	verified := map[string]int64{}
	switch {
	case j.Copy != nil:
		field(w, "copied", "%s, %d were there already", plural(int(j.Copy.Copied), "file"), j.Copy.Same)
		if j.Copy.Resumed > 0 {
			field(w, "resumed", "%s of an earlier run", sized(j.Copy.Resumed))
		}
		verified = j.Copy.Verified
	case j.Node != nil:
		field(w, "cached", "%s, %s; %d pinned", plural(int(j.Node.Objects), "object"), units.Bytes(j.Node.Bytes),
			j.Node.Pinned)
		verified = j.Node.Verified
	}
	for _, how := range slices.Sorted(maps.Keys(verified)) {
		field(w, "verified", "%s: %s", plural(int(verified[how]), "file"), verifiedText(how))
	}
	if j.Checked > 0 {
		field(w, "compared", "%s with the source", plural(int(j.Checked), "file"))
	}
	if j.Mani != "" {
		field(w, "list", "%s", printable(j.Mani))
	}
	field(w, "time", "%s", seconds(j.Seconds))
}
