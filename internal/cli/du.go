// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/units"
)

// usageJSON is one line of du --json: a folder with all that is below it.
type usageJSON struct {
	Name    string `json:"name"`
	Objects int64  `json:"objects"` // or files
	Bytes   int64  `json:"bytes"`
}

func newDu(a *app) *cobra.Command {
	var objects objectFlags
	var filter place.Filter
	var depth int
	var human, asJSON bool
	cmd := &cobra.Command{
		Use:   "du PLACE...",
		Short: "Count the objects and the bytes below a place",
		Long: `Count the objects and the bytes below a place.

PLACE is s3://BUCKET/PREFIX or a local directory. With --depth, the command also
counts each folder, down to that depth. A folder is printed when it is counted,
so that the place itself comes last. With --json, the command prints one JSON
object per line.`,
		Args: places(1, 0, "one or more places such as s3://BUCKET/PREFIX"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return objects.withClients(ctx, a, func(c *place.Clients) error {
				out := newLines(a.out)
				p := a.startWork("counting", asJSON)
				defer p.clear()
				for _, name := range args {
					t, err := openTree(ctx, c, name)
					if err != nil {
						return err
					}
					u := &usage{t: t, depth: depth, p: p, print: func(u usageJSON) error {
						if asJSON {
							return out.add(u)
						}
						p.clear()
						a.printText(func(w io.Writer) { u.line(w, human) })
						return a.out.failed()
					}}
					if err := u.count(ctx, &filter); err != nil {
						return err
					}
				}
				return nil
			})
		}),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var(count(&depth, 0, 0), "depth", "number of levels of folders to count separately; 0 counts the place alone")
	filterFlags(fs, &filter)
	fs.BoolVar(&human, "human", false, "print sizes with units such as MiB")
	fs.BoolVar(&asJSON, "json", false, "print one JSON object per line")
	objects.defineServer(fs)
	return cmd
}

func (u usageJSON) line(w io.Writer, human bool) {
	size := fmt.Sprint(u.Bytes)
	if human {
		size = units.Bytes(u.Bytes)
	}
	fmt.Fprintf(w, "%15s  %10d  %s\n", size, u.Objects, printable(u.Name))
}

// usage counts a tree in the order of its keys. A folder is complete when the first key after it comes, so that only
// the folders above the current key are remembered.
type usage struct {
	t     place.Tree
	depth int
	p     *progress
	open  []usageJSON // the place, and the folders above the current key
	path  []string    // the names of the folders in open, after the place
	print func(usageJSON) error
}

func (u *usage) count(ctx context.Context, filter *place.Filter) error {
	kind, e, err := u.t.Look(ctx)
	switch {
	case err != nil:
		return err
	case kind == place.Missing:
		return errs.New(errs.NotFound, "du", u.t.String(), "nothing is there").
			WithFix("check the name; nebulaio ls lists what is there")
	case kind == place.One:
		return u.print(usageJSON{Name: u.t.String(), Objects: 1, Bytes: e.Size})
	}
	u.open = []usageJSON{{Name: u.t.AsFolder().String()}}
	err = filter.Of(u.t).Walk(ctx, func(e place.Entry) error {
		parts := strings.Split(e.Key, "/")
		parts = parts[:min(len(parts)-1, u.depth)]
		same := 0
		for same < len(parts) && same < len(u.path) && parts[same] == u.path[same] {
			same++
		}
		if err := u.close(same); err != nil {
			return err
		}
		for _, part := range parts[same:] {
			u.path = append(u.path, part)
			above := strings.TrimSuffix(u.open[0].Name, "/") + "/"
			u.open = append(u.open, usageJSON{Name: above + strings.Join(u.path, "/") + "/"})
		}
		for i := range u.open {
			u.open[i].Objects++
			u.open[i].Bytes += e.Size
		}
		if n := u.open[0].Objects; n%1000 == 0 {
			u.p.say(fmt.Sprintf("counted %d, %s", n, units.Bytes(u.open[0].Bytes)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := u.close(0); err != nil {
		return err
	}
	return u.print(u.open[0])
}

// close prints the folders below the first n of the path, innermost first.
func (u *usage) close(n int) error {
	for len(u.path) > n {
		last := len(u.open) - 1
		if err := u.print(u.open[last]); err != nil {
			return err
		}
		u.open, u.path = u.open[:last], u.path[:len(u.path)-1]
	}
	return nil
}
