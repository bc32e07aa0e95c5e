// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/copying"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/warm"
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	objects      objectFlags
	filter       place.Filter
	read, asJSON bool
	reads        int
}

// verifiedJSON is one line of verify --json: a key that is not the same in both places.
type verifiedJSON struct {
	Outcome place.Outcome `json:"outcome"`
	Key     string        `json:"key"`
	How     string        `json:"how,omitempty"`
	SizeA   *int64        `json:"size_a,omitempty"`
	SizeB   *int64        `json:"size_b,omitempty"`
	At      *int64        `json:"at,omitempty"`
	Error   string        `json:"error,omitempty"`
}

// comparedJSON is the last line of verify --json.
type comparedJSON struct {
	Outcome   string         `json:"outcome"` // "summary"
	Same      int64          `json:"same"`
	Bytes     int64          `json:"same_bytes"`
	Different int64          `json:"different"`
	Missing   int64          `json:"missing"`
	Extra     int64          `json:"extra"`
	Failed    int64          `json:"failed"`
	Read      int64          `json:"read_bytes"`
	How       map[string]int `json:"how"` // number of equal keys by what was compared
}

func newVerify(a *app) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify A B",
		Short: "Compare the content of two places",
		Long: `Compare the content of two places.

A and B are prefixes such as s3://BUCKET/PREFIX, local directories, or single
objects and files. The name s3://PROFILE@BUCKET/PREFIX takes the server and the
keys from another profile of the AWS tools, so that A and B can be on different
servers.

If the servers of both sides keep a checksum of the whole object, of the same
algorithm, the command compares the checksums. If one side has a checksum, the
command reads the other side. Otherwise it reads both. Names, times and ETags are
not compared.

The command lists keys that are missing in B, extra in B, and different. The exit
code is 0 if both places are the same, 5 if a content differs, and 3 if only keys
are missing or extra. With --json, the command prints one JSON object for each key
that is not the same, and a summary on the last line.`,
		Args: places(2, 2, "two places"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return f.objects.withClients(ctx, a, func(c *place.Clients) error { return f.run(ctx, a, c, args[0], args[1]) })
		}),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	filterFlags(fs, &f.filter)
	fs.BoolVar(&f.read, "read", false, "read all bytes of both sides, also if their checksums could be compared")
	fs.Var(count(&f.reads, 16, 1), "reads", "number of ranges to read at once; each takes 2 MiB of memory")
	fs.BoolVar(&f.asJSON, "json", false, "print one JSON object per line")
	f.objects.defineServer(fs)
	return cmd
}

func (f *verifyFlags) run(ctx context.Context, a *app, c *place.Clients, nameA, nameB string) error {
	left, err := openTree(ctx, c, nameA)
	if err != nil {
		return err
	}
	right, err := openTree(ctx, c, nameB)
	if err != nil {
		return err
	}
	for _, t := range []place.Tree{left, right} {
		if t.Remote() && t.Bucket == "" {
			return errs.New(errs.Invalid, "verify", t.String(), "names no bucket; expected s3://BUCKET/PREFIX").
				WithFix("name a bucket")
		}
	}
	p := &sharedProgress{p: a.startWork("comparing", f.asJSON)}
	defer p.clear()
	r := &verifyRun{f: f, a: a, p: p, out: newLines(a.out), sum: comparedJSON{Outcome: "summary", How: map[string]int{}}}
	warn := func(path, why string) { r.skipped = append(r.skipped, fmt.Sprintf("%s is left out: %s", path, why)) }
	left.Skipped, right.Skipped = nil, nil
	if !left.Remote() {
		left.Skipped = warn
	} else if !right.Remote() {
		right.Skipped = warn
	}
	// Drafts and lists of this program belong to a directory, and not to what it holds.
	f.filter.Where(func(key string) bool {
		return !copying.Ours(key) && key != warm.ManifestName && !strings.HasSuffix(key, "/"+warm.ManifestName)
	})
	err = place.Comparison{A: left, B: right, Filter: &f.filter, Read: f.read, Reads: f.reads,
		Progress: func(bytes int64) { r.read.Store(bytes) }}.Run(ctx, r.add)
	p.clear()
	if err != nil {
		return err
	}
	a.warn(r.skipped)
	return r.finish()
}
