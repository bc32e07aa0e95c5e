// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
)

// byteRange is a range of bytes as HTTP writes it: 0-99, 100- or -100.
type byteRange struct {
	given       bool
	first, last int64 // last -1: to the end
	tail        int64 // the last bytes, if not 0
}

func (r *byteRange) value() *value {
	const want = "a range such as 0-99, 100- or -100"
	return &value{kind: "RANGE", want: want, set: func(s string) error {
		from, to, ok := strings.Cut(s, "-")
		number := func(s string) int64 {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || s[0] == '+' {
				ok = false
			}
			return n
		}
		*r = byteRange{given: true, last: -1}
		switch {
		case !ok || from == "" && to == "":
			return errForm
		case from == "":
			if r.tail = number(to); r.tail == 0 {
				return errForm
			}
		default:
			if r.first = number(from); to != "" {
				r.last = number(to)
			}
		}
		if !ok || r.last != -1 && r.last < r.first {
			return errForm
		}
		return nil
	}}
}

// of returns the offset and the length of the range in a content of size bytes.
func (r *byteRange) of(name string, size int64) (off, n int64, err error) {
	switch {
	case !r.given:
		return 0, size, nil
	case r.tail > 0:
		n = min(r.tail, size)
		return size - n, n, nil
	case r.first >= size:
		return 0, 0, errs.New(errs.Invalid, "read", name,
			fmt.Sprintf("byte %d was asked for, it has %d", r.first, size)).WithFix("ask for a smaller range")
	case r.last == -1 || r.last >= size:
		return r.first, size - r.first, nil
	}
	return r.first, r.last - r.first + 1, nil
}

func newCat(a *app) *cobra.Command {
	var objects objectFlags
	var part byteRange
	cmd := &cobra.Command{
		Use:   "cat PLACE...",
		Short: "Write the content of objects and files to stdout",
		Long: `Write the content of objects and files to stdout, one after the other.

PLACE is s3://BUCKET/KEY or a local file. A whole object is compared with the
checksum that the server keeps. If the content differs, the command fails after
the last byte. All bytes of an object come from one version of it.`,
		Args: places(1, 0, "one or more objects or files"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return objects.withClients(ctx, a, func(c *place.Clients) error {
				for _, name := range args {
					if err := catOne(ctx, a, c, name, &part); err != nil {
						return err
					}
				}
				return nil
			})
		}),
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().Var(part.value(), "range", "write only these bytes of each: 0-99, 100- or -100 for the last 100")
	objects.defineServer(cmd.Flags())
	return cmd
}

// catOne writes one object or file to stdout.
func catOne(ctx context.Context, a *app, c *place.Clients, name string, part *byteRange) error {
	t, err := openTree(ctx, c, name)
	if err != nil {
		return err
	}
	if t.Folder() {
		return errs.New(errs.Invalid, "read", name, "is a folder or bucket; expected one object or file").
			WithFix("list it with nebulaio ls " + name)
	}
	var r io.ReadCloser
	if t.Remote() {
		o, err := t.Client.Open(ctx, t.Bucket, t.Key, "")
		if err != nil {
			return err
		}
		off, n, err := part.of(name, o.Info().Size)
		if err != nil {
			return err
		}
		if r, err = o.Fetch(ctx, off, n); err != nil {
			return err
		}
	} else if r, err = openPart(name, part); err != nil {
		return err
	}
	defer r.Close()
	buf := make([]byte, 1<<20)
	for {
		if ctx.Err() != nil {
			return errs.Wrap("read", name, context.Cause(ctx))
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := a.out.Write(buf[:n]); err != nil {
				return nil //nolint:nilerr // checkedWriter reports it
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return errs.Wrap("read", name, err)
		}
	}
}

// openPart opens a part of a local file.
func openPart(name string, part *byteRange) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, errs.Wrap("read", name, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = errs.New(errs.Invalid, "read", name,
			"is a directory; expected a file").WithFix("list it with nebulaio ls " + name)
	}
	var off, n int64
	if err == nil {
		off, n, err = part.of(name, info.Size())
	}
	if err != nil {
		_ = f.Close()
		return nil, errs.Wrap("read", name, err)
	}
	if !part.given { // a pipe has no size
		return f, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, off, n), f}, nil
}
